"""Which dataset to evaluate, which batch is the last, and the number of its samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from xdpx.trainer.data.plan import length


def eval_set(asked: Any, given: Any) -> tuple[str, Any]:
    """Return the name under which its loader is cached, and the dataset to evaluate.

    Args:
        asked: argument of `evaluate`: a dataset, the name of one of several, None for that of the Trainer.
        given: `eval_dataset` of the Trainer: a dataset, or a dict of several.
    """
    if asked is None and given is None:
        raise ValueError("Trainer: there is no eval_dataset. Pass one to the Trainer, or to evaluate().")
    if isinstance(asked, str):
        if not isinstance(given, Mapping) or asked not in given:
            there = f"has {', '.join(map(str, given))}" if isinstance(given, Mapping) else "is not a dict of data sets"
            raise ValueError(
                f"eval_dataset: '{asked}' was requested, but it {there}. Name one of them, or pass the data set."
            )
        return asked, given[asked]
    return "eval", given if asked is None else asked


def was_scored(log_history: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Return whether a set, by the name under which its loader is kept, was evaluated by the run that is continued."""
    prefix = "eval_" if name == "eval" else f"eval_{name}_"
    return any(key.startswith(prefix) for row in log_history for key in row)


def refuse_data(dataset: Any, description: str) -> None:
    """Raise TypeError or ValueError for data whose samples can be read neither by index nor as a stream.

    Args:
        dataset: what samples are to be read from.
        description: which data it is, such as "training".
    """
    if dataset is None:
        raise ValueError(f"{description} data: is None. Give a list, a Dataset, or an IterableDataset.")
    kind, advice = type(dataset).__name__, ""
    if isinstance(dataset, Mapping) and 0 not in dataset:
        advice = f"It holds {', '.join(map(str, dataset))}: give one of them."
    elif isinstance(dataset, DataLoader):
        advice = "Give its dataset, since the Trainer makes the batches; or override get_train_dataloader."
    elif hasattr(dataset, "iloc"):
        advice = "Give datasets.Dataset.from_pandas(frame), or frame.to_dict('records')."
    elif isinstance(dataset, str) or not (hasattr(dataset, "__getitem__") or isinstance(dataset, IterableDataset)):
        advice = "Give a list, a Dataset, or an IterableDataset, which can be read again in every epoch."
    if advice:
        raise TypeError(f"{description} data: a {kind} cannot be indexed by sample. {advice}")
    if description == "training" and length(dataset) == 0:
        raise ValueError("train_dataset: is empty. Give samples to train on.")


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


def rows_of(batch: object) -> int | None:
    """Return the number of rows of a batch: by its first tensor, or of a list of samples without any, its length."""
    size = find_batch_size(batch)
    return len(batch) if size is None and isinstance(batch, list) else size
