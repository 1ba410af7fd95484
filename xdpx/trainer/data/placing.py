"""Count the samples of a batch, whatever it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor


def find_batch_size(tree: object) -> int | None:
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
