"""Eight imitated devices for every test of the JAX half, a place for what was compiled, and how much is optimized."""

from __future__ import annotations

import getpass
import os
import sys
import tempfile
from pathlib import Path

SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "8",
    "JAX_COMPILATION_CACHE_DIR": str(Path(tempfile.gettempdir()) / f"xdpx-tests-compiled-{getpass.getuser()}"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}

LITTLE = "JAX_DISABLE_MOST_OPTIMIZATIONS"
OPTIMIZED_LITTLE = tuple(
    str(Path(__file__).parent / room)
    for room in ("engines/spmd", "experiments", "models/spmd", "optimizers/spmd", "tasks/spmd")
)
"""Rooms whose tests pay for compiling most of all: XLA optimizes little there, which takes a third less. Last bits are
others then; what is compared to the last bit, as golden runs are, is compiled as users compile."""


def is_optimized_little(path: Path) -> bool:
    """Tell whether a test is in one of `OPTIMIZED_LITTLE`."""
    return str(path).startswith(OPTIMIZED_LITTLE)


def optimize_little(wanted: bool) -> None:
    """Tell JAX here, and in processes that are started from now on."""
    os.environ[LITTLE] = str(int(wanted))
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(LITTLE.lower(), wanted)


def imitate_devices() -> None:
    """Set the environment; call it before anybody imports jax. What is set already stays."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
