"""Eight imitated devices for all tests of the JAX half, what was compiled for reuse, and compiler settings."""

from __future__ import annotations

import getpass
import os
import sys
import tempfile
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "8",
    "JAX_COMPILATION_CACHE_DIR": str(Path(tempfile.gettempdir()) / f"xdpx-tests-compiled-{getpass.getuser()}"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
}

QUICK = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")
"""Flags that XLA reads once per process. Without the first, MLIR generates the code of each fused loop for CPUs, which
takes three fifths of the compilation time where optimizations are reduced, and a quarter elsewhere. Without the second,
each program is cut into up to 32 to be compiled in parallel, which takes a quarter more CPU time."""

LITTLE = "JAX_DISABLE_MOST_OPTIMIZATIONS"
OPTIMIZED_LITTLE = tuple(
    str(Path(__file__).parent / room)
    for room in (
        "careless/test_own_inputs", "careless/test_packed", "careless/test_resuming", "careless/test_summaries",
        "careless/test_weights", "checkpoints/test_spmd", "engines/spmd", "experiments", "faults/test_experiment",
        "journeys/test_engines", "journeys/test_spmd", "journeys/test_three_doors", "journeys/test_trackers",
        "launch/test_slurm_commands", "models/spmd", "optimizers/spmd", "promises/test_docs", "promises/test_how",
        "promises/test_notebooks", "tasks/spmd",
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
    given = os.environ.get("XLA_FLAGS", "").split()
    os.environ["XLA_FLAGS"] = " ".join([*given, *(flag for flag in QUICK if flag not in given)])


def imitate_devices() -> None:
    """Set the environment; call this before anything imports jax. Existing values are kept."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


COMPILED: dict[str, tuple[Any, int]] = {}
"""Key in JAX's compilation cache -> the compiled program and the seconds that compiling it took."""

SECONDS_WORTH_WRITING = 1
LOWERED_PER_CONTEXT = 64
"""How many programs share an MLIR context, which keeps each constant of theirs until it ends."""


@cache
def reuse_programs() -> None:
    """Make JAX keep compiled programs in this process, and create few MLIR contexts; call this once jax is imported.

    Writing a small program to the disk takes three times as long as compiling it, and loading the dialects of a new
    context a quarter of the time of lowering. Only what takes a second to compile is written, for other processes.
    """
    import jax
    from jax._src import compilation_cache
    from jax._src.interpreters import mlir

    read, write = compilation_cache.get_executable_and_time, compilation_cache.put_executable_and_time
    begun, lowered, shared = mlir.make_ir_context, count(), dict[str, Any]()

    def get(key: str, *rest: Any) -> Any:
        if key not in COMPILED and (found := read(key, *rest))[0] is not None:  # another process has written it
            COMPILED[key] = found
        return COMPILED.get(key, (None, None))

    def put(key: str, name: str, program: Any, backend: Any, seconds: int) -> None:
        COMPILED[key] = program, seconds
        if seconds >= SECONDS_WORTH_WRITING:
            write(key, name, program, backend, seconds)

    def context() -> Any:
        if next(lowered) % LOWERED_PER_CONTEXT == 0:
            shared["context"] = begun()
        return shared["context"]

    compilation_cache.get_executable_and_time, compilation_cache.put_executable_and_time = get, put
    mlir.make_ir_context = context
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def forget_programs() -> None:
    """Drop all that was compiled."""
    COMPILED.clear()
    sys.modules["jax"].clear_caches()
