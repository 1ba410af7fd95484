"""Eight imitated devices for all tests of the JAX half, a compilation cache, and compiler settings."""

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

QUICK = "--xla_cpu_use_fusion_emitters=false"
"""A flag that XLA reads once per process. Without it, MLIR generates the code of each fused loop for CPUs, which takes
three fifths of the compilation time where optimizations are reduced, and a quarter elsewhere."""

LITTLE = "JAX_DISABLE_MOST_OPTIMIZATIONS"
OPTIMIZED_LITTLE = tuple(
    str(Path(__file__).parent / room)
    for room in (
        "careless/test_own_inputs", "careless/test_packed", "careless/test_resuming", "careless/test_summaries",
        "careless/test_weights", "checkpoints/test_spmd", "engines/spmd", "experiments", "journeys/test_engines",
        "journeys/test_spmd", "journeys/test_three_doors", "journeys/test_trackers", "models/spmd", "optimizers/spmd",
        "promises/test_docs", "promises/test_how", "promises/test_notebooks", "tasks/spmd",
    )
)  # fmt: skip
"""Rooms and files whose tests spend most time on compiling: reduced optimizations halve it, but change the last bits.
So golden runs, which are compared bit by bit, and memory plans are compiled as for users."""


def is_optimized_little(path: Path) -> bool:
    """Return whether a test is in one of `OPTIMIZED_LITTLE`."""
    return str(path).startswith(OPTIMIZED_LITTLE)


def optimize_little(wanted: bool) -> None:
    """Turn reduced optimizations on or off, here and in processes that are started from now on."""
    os.environ[LITTLE] = str(int(wanted))
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(LITTLE.lower(), wanted)


def compile_quickly() -> None:
    """Set the environment; call this before anything imports jax. Changes the last bits, so not for golden runs."""
    given = os.environ.get("XLA_FLAGS", "")
    if QUICK not in given.split():
        os.environ["XLA_FLAGS"] = f"{given} {QUICK}".strip()


def imitate_devices() -> None:
    """Set the environment; call this before anything imports jax. Existing values are kept."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
