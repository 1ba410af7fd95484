"""Batches as trees of tensors: put them on a device, count their samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def to_device(tree: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """Return the same batch with its tensors on a device; what is there already, and what is no tensor, is left alone.

    Args:
        tree: tensors in nested mappings, tuples and lists; an object with a method `to` moves itself.
        device: where to.
        non_blocking: do not wait for the copy; safe from pinned memory.
    """
    if isinstance(tree, Tensor):
        return tree if _is_there(tree, device) else tree.to(device, non_blocking=non_blocking)
    if type(tree) is dict:
        return {name: to_device(value, device, non_blocking=non_blocking) for name, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(to_device(value, device, non_blocking=non_blocking) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(to_device(value, device, non_blocking=non_blocking) for value in tree)
    if callable(getattr(tree, "to", None)):
        return _moved(tree, device, non_blocking)
    if isinstance(tree, Mapping):
        return type(tree)({name: to_device(value, device, non_blocking=non_blocking) for name, value in tree.items()})  # type: ignore[call-arg]
    return tree


def find_batch_size(tree: Any) -> int | None:
    """Return the first dimension of the first tensor or array that has one, None if there is none."""
    if type(tree) is dict:  # asked at every step, and the first column nearly always says it
        for value in tree.values():
            if isinstance(value, Tensor) and value.ndim:
                return value.shape[0]
            break
    if isinstance(tree, Tensor | np.ndarray):
        return tree.shape[0] if tree.ndim else None
    if isinstance(tree, Mapping):
        parts: Any = tree.values()
    elif isinstance(tree, list | tuple):
        parts = tree
    else:
        return None
    return next((size for size in map(find_batch_size, parts) if size is not None), None)


def _is_there(tensor: Tensor, device: torch.device) -> bool:
    at = tensor.device
    return at == device or (at.type == device.type and (device.index is None or at.type == "cpu"))


def _moved(thing: Any, device: torch.device, non_blocking: bool) -> Any:
    """Let an object such as a `BatchEncoding` move itself; not every `to` knows of `non_blocking`."""
    try:
        return thing.to(device, non_blocking=non_blocking)
    except TypeError:
        return thing.to(device)
