"""Where this process stands among its peers. torch is asked only when the program has imported it already."""

from __future__ import annotations

import os
import sys
from typing import Any


def _group() -> Any | None:
    """Give torch.distributed when a process group is up, else None."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _from_environment(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise


def get_rank() -> int:
    """Give the index of this process among all of them; 0 when it is alone."""
    group = _group()
    return int(group.get_rank()) if group else _from_environment("RANK", 0)


def get_world_size() -> int:
    """Give how many processes train together; 1 when this one is alone."""
    group = _group()
    return int(group.get_world_size()) if group else _from_environment("WORLD_SIZE", 1)


def is_master(args: object = None) -> bool:
    """Whether this process is the one that writes files and prints.

    Args:
        args: taken for the sake of older code that passes its parameters, and not looked at.
    """
    del args
    return get_rank() == 0


def barrier() -> None:
    """Wait until all processes are here. Must be called on all of them; returns at once when there is one."""
    group = _group()
    if group and group.get_world_size() > 1:
        group.barrier()
