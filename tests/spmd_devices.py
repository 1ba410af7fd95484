"""Eight imitated devices for every test of the JAX half, and a place for what was compiled."""

from __future__ import annotations

import getpass
import os
import tempfile
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
