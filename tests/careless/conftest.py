from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def _devices_as_everywhere() -> None:
    """Have JAX count its imitated devices first: a plan of another number, in this process, would decide it for all."""
    import jax

    jax.devices()
