"""Find out if the processes have different rows, or in different orders: digests of the first few of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from xdpx.logger import log
from xdpx.utils.distributed_utils import is_master

ROWS_COMPARED = 16
DEEPEST = 8
"""Levels of a row that a digest is made of; a row may refer to itself."""


def digest(rows: Sequence[Any]) -> int:
    """Return a number in (0, 2^32) made of the contents of the first rows; 0 if there is none.

    The same rows have the same digest in each process. Of objects without contents that can be seen, it has the type.
    """
    found = hashlib.blake2b(digest_size=4)  # sums of many are exact as floats
    for part in _contents(list(rows[:ROWS_COMPARED])):
        found.update(part)
    return max(int.from_bytes(found.digest()), 1) if rows else 0


def warn_of_unlike_orders(digests: Sequence[float], what: str) -> None:
    """Warn, on process 0, if a process has another digest of the first rows than process 0.

    Args:
        digests: of each process, or the sums of those of the epochs that it began.
        what: the data that were read, such as "train_dataset".
    """
    other = _unlike_the_first(digests)
    if other is None:
        return
    log.warning(
        f"{what}: process {other} reads other rows of the stream than process 0, or in another order. Each takes its "
        "share of what it reads, so some rows are used twice, and others never. Shuffle with a seed that all "
        "processes share, or by the epoch that `set_epoch` receives; or set dispatch_batches=True in "
        "accelerator_config, so that process 0 reads for all. A stream that gives each process its own rows, as after "
        "split_dataset_by_node, is divided a second time: override get_train_dataloader or get_eval_dataloader, "
        "and return a DataLoader of it. If only random changes to the same rows differ, there is nothing to do.",
        once=True,
    )


def _unlike_the_first(digests: Sequence[float]) -> int | None:
    """Return, on process 0, the first process with another digest than process 0; None if there is none."""
    return next((rank for rank, each in enumerate(digests) if each != digests[0] and is_master()), None)


def some_rows(dataset: Any) -> list[Any]:
    """Return a few rows of a dataset that gives them without computing anything; of another dataset, none."""
    if isinstance(dataset, Subset):
        return [list(dataset.indices[:ROWS_COMPARED]), *some_rows(dataset.dataset)]
    if type(dataset).__module__.startswith("datasets.") and hasattr(dataset, "with_format"):
        whole = dataset.with_format("arrow")  # neither decoded nor transformed
        return [whole[index].to_pylist() for index in _places(len(dataset))]
    if not isinstance(dataset, list | tuple) and type(dataset) is not TensorDataset:
        return []
    return [dataset[index] for index in _places(len(dataset))]


def _places(size: int) -> list[int]:
    return sorted({0, size // 2, size - 1}) if size else []


def warn_of_unlike_rows(digests: Sequence[int], what: str) -> None:
    """Warn, on process 0, if a process has another digest of `some_rows` of its data than process 0.

    Args:
        digests: of each process.
        what: the data, such as "train_dataset".
    """
    other = _unlike_the_first(digests)
    if other is None:
        return
    log.warning(
        f"{what}: process {other} has other rows than process 0, or in another order. Each takes its share of its own "
        "rows, so some are used twice, and others never. Shuffle and split with a fixed seed, and sort "
        "what comes from sets or folders. If rows differ only by a path or a time, there is nothing to do.",
        once=True,
    )


def warn_of_like_batches(first: object, second: object, num_workers: int) -> None:
    """Warn if the first batches of a stream, which come from two workers, are the same."""
    if is_master() and digest([first]) == digest([second]):
        log.warning(
            f"dataloader_num_workers: the first batches that two of {num_workers} workers read from the stream are the "
            f"same: each worker reads all of it, so that each row comes {num_workers} times, in evaluations and "
            "predictions, too. Let its __iter__ yield another share of the rows to each worker "
            "(torch.utils.data.get_worker_info), or use one worker. If it does, and the rows are alike, there is "
            "nothing to do.",
            once=True,
        )


def _contents(value: object, depth: int = 0) -> Iterator[bytes]:
    """Yield what a value consists of; neither addresses nor hashes, which differ between processes."""
    yield f"{type(value).__name__} ".encode()
    if isinstance(value, Tensor) and value.layout is torch.strided:
        yield f"{value.dtype} {list(value.shape)} ".encode()
        yield value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
    elif hasattr(value, "__array_interface__"):
        array = np.asarray(value)
        yield f"{array.dtype} {array.shape} ".encode()
        yield from _contents(array.tolist(), depth + 1) if array.dtype.hasobject else [array.tobytes()]
    elif value is None or isinstance(value, str | bytes | int | float | complex):
        yield f"{value!r} ".encode("utf-8", "surrogatepass")
    elif depth < DEEPEST:
        named = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
        for part in value if isinstance(value, list | tuple) else named.items():
            yield from _contents(part, depth + 1)
