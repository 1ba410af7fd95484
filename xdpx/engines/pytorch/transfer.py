"""Move batches to the device, and results back to the host; used by every way to train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

NUMBERS = "biufc"
"""Kinds of numpy types that a device can hold: not objects or text."""

_CPU = torch.device("cpu")


def to_device(tree: object, device: torch.device, *, non_blocking: bool = False, arrays: bool = True) -> Any:
    """Return the batch on a device; what is already there, and what no device can hold, is left as it is.

    Args:
        tree: tensors and arrays in nested mappings, tuples and lists; an object with a method `to` moves itself.
        device: where to.
        non_blocking: do not wait for the copy of a tensor; safe from pinned memory. Arrays are pinned here.
        arrays: whether to turn numeric numpy arrays, which processors return, into tensors; otherwise they are left.
    """
    if isinstance(tree, Tensor):
        return tree if _is_there(tree, device) else tree.to(device, non_blocking=non_blocking)
    if isinstance(tree, np.ndarray):
        if not arrays or tree.dtype.kind not in NUMBERS:
            return tree
        value = torch.from_numpy(tree if tree.flags.writeable else tree.copy())
        return value.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else value.to(device)
    if type(tree) is dict:
        moved = {}
        for name, each in tree.items():  # a call for each tensor would take as long as the rest, where all are there
            there = isinstance(each, Tensor) and each.device == device
            moved[name] = each if there else to_device(each, device, non_blocking=non_blocking, arrays=arrays)
        return moved
    if tree is None or isinstance(tree, int | float | str):
        return tree
    if isinstance(tree, list | tuple):
        parts = [to_device(each, device, non_blocking=non_blocking, arrays=arrays) for each in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if callable(getattr(tree, "to", None)):
        return _moved(tree, device, non_blocking)
    if isinstance(tree, Mapping):
        moved = to_device(dict(tree.items()), device, non_blocking=non_blocking, arrays=arrays)
        return type(tree)(moved)  # type: ignore[call-arg]
    return tree


def is_free_to_read(device: torch.device) -> bool:
    """Return whether the host can read values on a device without waiting for it."""
    return device == _CPU


def _is_there(tensor: Tensor, device: torch.device) -> bool:
    at = tensor.device
    return at == device or (at.type == device.type and (device.index is None or at.type == "cpu"))


def _moved(thing: Any, device: torch.device, non_blocking: bool) -> Any:
    """Return an object such as a `BatchEncoding`, moved by its own `to`, which may lack `non_blocking`."""
    try:
        return thing.to(device, non_blocking=non_blocking)
    except TypeError:
        return thing.to(device)


def to_float(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return plain floats, with one wait and transfer per device and type."""
    waiting: dict[tuple[torch.device, torch.dtype], dict[str, Tensor]] = {}
    for name, value in facts.items():
        if isinstance(value, Tensor):
            value = value if value.dim() == 0 else value.reshape(())
            waiting.setdefault((value.device, value.dtype), {})[name] = value
    arrived: dict[str, float] = {}
    for values in waiting.values():
        arrived |= zip(values, map(float, torch.stack([*values.values()]).detach().tolist()), strict=True)
    return {name: arrived[name] if name in arrived else float(value) for name, value in facts.items()}


def to_arrays(predictions: Mapping[str, Any]) -> dict[str, Any]:
    """Return numpy arrays for tensors with rows and floats for scalars."""
    return {name: _arrived(value) for name, value in predictions.items()}


def _arrived(value: object) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.dim() == 0:
        return float(value)
    value = value.detach()
    return (value.float() if value.is_floating_point() else value).cpu().numpy()
