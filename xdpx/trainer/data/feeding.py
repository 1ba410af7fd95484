"""Which dataset to evaluate, which batch is the last, and the number of its samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor


def eval_set(asked: Any, given: Any) -> tuple[str, Any]:
    """Return the name under which its loader is cached, and the dataset to evaluate.

    Args:
        asked: argument of `evaluate`: a dataset, the name of one of several, None for that of the Trainer.
        given: `eval_dataset` of the Trainer: a dataset, or a dict of several.
    """
    if asked is None and given is None:
        raise ValueError("Trainer: there is no eval_dataset. Give one to the Trainer, or to evaluate.")
    if isinstance(asked, str):
        return asked, given[asked]
    return "eval", given if asked is None else asked


def with_last(loader: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """Yield each batch with whether it is the last one."""
    if hasattr(loader, "end_of_dataloader"):
        yield from ((batch, loader.end_of_dataloader) for batch in loader)
        return
    batches = iter(loader)
    current = next(batches, None)
    while current is not None:
        following = next(batches, None)
        yield current, following is None
        current = following


def find_batch_size(tree: object) -> int | None:
    """Return the first dimension of the first tensor or array that has one, None if there is none."""
    if type(tree) is dict:  # fast path, since this runs at every step
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
