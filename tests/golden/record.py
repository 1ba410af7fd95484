"""Outcomes of golden runs, the files that store them, and their comparison."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

HALF_PRECISION = ("bf16", "fp16")
"""Runs whose names contain one of these have so few digits that results soon differ between processors."""
RELATIVE, RELATIVE_IN_HALF_PRECISION = 1e-5, 1e-2


@dataclass(frozen=True)
class Outcome:
    """The logged losses of a run, in order, and the SHA-256 of its final weights."""

    losses: Sequence[float]
    weights: str


Run = Callable[[Path], Outcome]
"""Trains in a folder that all runs of a door share."""
Runs = Mapping[str, Run]


def hash_of(weights: Mapping[str, torch.Tensor | NDArray[np.generic]]) -> str:
    """Return the SHA-256 of weights: their names, types, shapes and bits, in order of the names."""
    found = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        values = weight.detach().cpu().numpy() if isinstance(weight, torch.Tensor) else np.asarray(weight)
        found.update(f"{name} {values.dtype} {values.shape}\n".encode())
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def computer(*packages: str) -> str:
    """Return a line with everything that affects the last bits: processor, vector instructions, package versions."""
    vectors = torch.backends.cpu.get_cpu_capability()
    able = torch.cpu.get_capabilities()  # some processors of the same model multiply bf16 in special units
    units = [unit.upper() for unit in ("amx_bf16", "avx512_bf16") if able.get(unit)]
    return ", ".join([_processor(), vectors, *units, *(f"{name} {version(name)}" for name in packages)])


def _processor() -> str:
    """Return the name of the processor, or its architecture if the system does not report the name."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write(path: Path, outcomes: Mapping[str, Outcome], *, on: str) -> None:
    """Write outcomes, below a line with the computer that computed them."""
    lines = [f"# {on}"]
    for name, outcome in outcomes.items():
        lines.append(" | ".join((name, " ".join(map(float.hex, outcome.losses)), outcome.weights)))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read(path: Path) -> tuple[dict[str, Outcome], str]:
    """Return the outcomes by name and the computer, as stored by `write`."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    outcomes = {}
    for line in lines:
        name, losses, weights = line.split(" | ")
        outcomes[name] = Outcome([float.fromhex(word) for word in losses.split()], weights)
    return outcomes, head.removeprefix("# ")


def difference(name: str, found: Outcome, golden: Outcome, *, to_the_bit: bool) -> str | None:
    """Return a line on how a run differs from its golden outcome; None if it does not."""
    if len(found.losses) != len(golden.losses):
        return f"{name}: {len(found.losses)} losses instead of {len(golden.losses)}"
    apart = [_apart(*both) for both in zip(found.losses, golden.losses, strict=True)]
    half = any(word in name for word in HALF_PRECISION)
    allowed = 0.0 if to_the_bit else RELATIVE_IN_HALF_PRECISION if half else RELATIVE
    too_far = [index for index, far in enumerate(apart) if far > allowed]
    if too_far:
        first = too_far[0]
        values = f"{found.losses[first]!r} instead of {golden.losses[first]!r}"
        return f"{name}: losses differ by up to {max(apart):.1e}; the first is number {first + 1}: {values}"
    if to_the_bit and found.weights != golden.weights:
        return f"{name}: the final weights differ, though every logged loss is the same"
    return None


def _apart(one: float, other: float) -> float:
    """Return the relative difference: 0 if both are NaN or the same infinity, infinite if only one is not finite."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    far = abs(one - other) / max(abs(one), abs(other))
    return far if math.isfinite(far) else math.inf
