"""Eight imitated devices for every test of the JAX half, a place for what was compiled, and pairs of real processes."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "8",
    "JAX_COMPILATION_CACHE_DIR": str(Path(tempfile.gettempdir()) / f"xdpx-tests-compiled-{getpass.getuser()}"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}


def imitate_devices() -> None:
    """Set the environment; call it before anybody imports jax. What is set already stays."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def run_pair(script: Path, words: Sequence[str], *, seconds: float) -> list[tuple[int, str]]:
    """Run `script PORT INDEX words...` as two processes that find each other, and give (exit code, output) of each.

    Both are killed when they take longer than `seconds`; their exit codes are then those of the kill.
    """
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = str(door.getsockname()[1])
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    both = [
        subprocess.Popen(
            [sys.executable, str(script), port, str(index), *words],
            env=environment, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True,
        )
        for index in range(2)
    ]  # fmt: skip
    try:
        told = [each.communicate(timeout=seconds)[0] for each in both]
    except subprocess.TimeoutExpired:
        for each in both:
            each.kill()
        told = [each.communicate()[0] for each in both]
    return [(each.returncode, text) for each, text in zip(both, told, strict=True)]
