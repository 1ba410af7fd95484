"""Names of the checkpoint files of `x-train`.

`checkpoint-<step>.pt` holds the weights (`torch.save` of a state_dict), `checkpoint-<step>.pts` the full state to
resume training from. Each is committed separately, with its own manifest, so that they can be deleted independently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

WEIGHTS = ".pt"
STATE = ".pts"
_NAME = re.compile(r"checkpoint-(\d+)(\.pts?)")
_SNAPSHOT = re.compile(r"snapshot(?:\.resume-(\d+))?\.zip")


def weights_name(step: int) -> str:
    """Return the commit name of the weights of a step; the file adds `.pt`."""
    return f"checkpoint-{step}"


def state_name(step: int) -> str:
    """Return the commit name of the full state of a step, which is also the name of its file."""
    return f"checkpoint-{step}{STATE}"


def weights_file(step: int) -> str:
    """Return the file name of the weights of a step."""
    return f"checkpoint-{step}{WEIGHTS}"


def state_file(step: int) -> str:
    """Return the file name of the full state of a step."""
    return f"checkpoint-{step}{STATE}"


def newest_snapshot(names: Iterable[str]) -> str | None:
    """Return the name of the newest snapshot of the code among the names of files; None if there is none."""
    found = [match for match in map(_SNAPSHOT.fullmatch, names) if match]
    return max(found, key=lambda match: int(match[1] or 0))[0] if found else None


def step_of(file_name: str, suffix: str = WEIGHTS) -> int | None:
    """Return the step in the name of a checkpoint file; None for other names or suffixes."""
    match = _NAME.fullmatch(file_name)
    return int(match[1]) if match and match[2] == suffix else None
