"""Convert state_dicts to tensors and plain values, the only content of a checkpoint."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from xdpx.checkpoints.trusted import PLAIN


class OnlyPicklable(TypeError):
    """A value that could only be pickled."""


def plain(value: object, where: str = "") -> Any:
    """Return an equal value of dicts, lists, tuples, tensors and plain values.

    Args:
        value: e.g. a `state_dict()`; arrays become tensors, enum members their values.
        where: its name in the message.

    Raises:
        OnlyPicklable: it contains an object of another kind; the message says where, and its class.
    """
    if isinstance(value, torch.Tensor) or type(value) in PLAIN:
        return value
    if isinstance(value, Mapping):
        return {plain(key, where): plain(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [plain(part, f"{where}[{index}]") for index, part in enumerate(value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    return _plain_leaf(value, where)


def _plain_leaf(value: object, where: str) -> Any:
    if isinstance(value, enum.Enum):
        return plain(value.value, where)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.from_numpy(value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise OnlyPicklable(f"{where.lstrip('.') or 'it'} is a {type(value).__module__}.{type(value).__qualname__}")


def plain_json(value: object) -> Any:
    """Return an equal value for JSON; other objects become text."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_json(part) for part in value]
    if isinstance(value, enum.Enum):
        return plain_json(value.value)
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
