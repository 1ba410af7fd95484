"""Most of what this room's tests pay for is compiling: XLA optimizes little here, which takes a third less.

Last bits are others then. Rooms that compare numbers closely are compiled as users compile.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOM = Path(__file__).parent
NAME = "JAX_DISABLE_MOST_OPTIMIZATIONS"


def _optimize_little(wanted: bool) -> None:
    """Tell JAX here, and in processes that are started from now on."""
    os.environ[NAME] = str(int(wanted))
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(NAME.lower(), wanted)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin before any fixture: jobs that several tests look at are compiled like the others."""
    _optimize_little(True)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End after all fixtures; other rooms must not be given what was compiled here."""
    _optimize_little(False)
    if "jax" in sys.modules and (nextitem is None or ROOM not in nextitem.path.parents):
        sys.modules["jax"].clear_caches()
