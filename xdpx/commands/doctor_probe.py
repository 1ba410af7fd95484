"""Print what torch or jax finds on this machine; run as a subprocess, since importing one may hang or crash.

Run as `python -m xdpx.commands.doctor_probe torch`; prints one JSON object: the version, the devices, and failures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TypedDict

from xdpx.config.faults import named


class Device(TypedDict):
    """One device: its name, the bytes of its memory (0 if unknown), and what went wrong with a small product on it."""

    name: str
    memory_bytes: int
    trouble: str


class Probe(TypedDict):
    """The findings of one library: its version, what it was built for, its devices."""

    version: str
    built_for: str
    devices: list[Device]


def probe_torch() -> Probe:
    """Multiply two small matrices on the CPU and on each device that PyTorch sees."""
    import torch

    names = ["cpu"]
    if torch.cuda.is_available():
        names += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    elif torch.backends.mps.is_available():
        names.append("mps")

    def multiply(name: str) -> float:
        ones = torch.ones(64, 64, device=name)
        return float((ones @ ones).sum())

    def describe(name: str) -> tuple[str, int]:
        if not name.startswith("cuda"):
            return name, 0
        facts = torch.cuda.get_device_properties(name)
        return f"{name} {facts.name}, compute capability {facts.major}.{facts.minor}", facts.total_memory

    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    if torch.version.hip:
        built_for = f"ROCm {torch.version.hip}"
    return Probe(version=torch.__version__, built_for=built_for, devices=_tried(names, describe, multiply))


def probe_jax() -> Probe:
    """Multiply two small matrices on each device that JAX sees."""
    import jax
    import jax.numpy as jnp

    devices = {str(device): device for device in jax.local_devices()}

    def multiply(name: str) -> float:
        ones = jax.device_put(jnp.ones((64, 64)), devices[name])
        return float((ones @ ones).sum())

    def describe(name: str) -> tuple[str, int]:
        device = devices[name]
        facts = device.memory_stats() or {}
        return f"{name} {device.device_kind}", int(facts.get("bytes_limit", 0))

    backend = jax.default_backend()
    return Probe(version=jax.__version__, built_for=backend.upper(), devices=_tried(list(devices), describe, multiply))


def _tried(
    names: list[str], describe: Callable[[str], tuple[str, int]], multiply: Callable[[str], float]
) -> list[Device]:
    """Return a description of each device, with the error of a product of matrices of ones on it, if any."""
    found = []
    for name in names:
        try:
            text, memory_bytes = describe(name)
            total = multiply(name)
            trouble = "" if total == 64**3 else f"a product of ones came to {total:g}, not {64**3}"
        except Exception as error:  # any exception of a driver is the finding
            text, memory_bytes, trouble = name, 0, named(error)
        found.append(Device(name=text, memory_bytes=memory_bytes, trouble=trouble))
    return found


PROBES = {"torch": probe_torch, "jax": probe_jax}

if __name__ == "__main__":
    json.dump(PROBES[sys.argv[1]](), sys.stdout)
