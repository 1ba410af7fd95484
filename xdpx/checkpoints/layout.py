"""How the checkpoints of `x-train` are named.

`checkpoint-<step>.pt` holds the weights that a user wants to keep (`torch.save` of a state_dict), and
`checkpoint-<step>.pts` the full state from which training continues. Each is committed by itself, with its own
manifest, so that either can be pruned without touching the other.
"""

from __future__ import annotations

import re

WEIGHTS = ".pt"
STATE = ".pts"
_NAME = re.compile(r"checkpoint-(\d+)(\.pts?)")


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


def step_of(file_name: str, suffix: str = WEIGHTS) -> int | None:
    """Return the step that a checkpoint file is of, None when the name is no such file's."""
    match = _NAME.fullmatch(file_name)
    return int(match[1]) if match and match[2] == suffix else None
