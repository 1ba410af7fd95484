from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def _devices_as_everywhere() -> None:
    """Create JAX's imitated devices first: a plan with another number, in this process, would set it for all tests."""
    import jax

    jax.devices()
