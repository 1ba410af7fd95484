"""Running out of memory: recognise it, repeat the work in smaller pieces, or tell the user what to do."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from xdpx.engines.base import Batch, OutOfMemory, Predictions, Split
from xdpx.logger import log
from xdpx.utils.distributed_utils import any_process
from xdpx.utils.memory import is_out_of_memory

T = TypeVar("T")

MOST_PARTS = 2**6
"""A batch is halved at most six times."""

SHRINK = 0.9
"""Factor for the batch size each time memory runs out (`auto_find_batch_size`)."""


class InParts:
    """Runs work on batches, and repeats it with each batch split into twice as many parts when memory runs out.

    Args:
        split: splits a batch; None never splits, so running out of memory is an error that says what to do.
    """

    def __init__(self, split: Split | None) -> None:
        self.split = split

    def do(
        self,
        work: Callable[[list[Batch]], T],
        batches: Sequence[Batch],
        parts: int,
        *,
        what: str,
        release: Callable[[], None],
    ) -> tuple[T, int]:
        """Return the result of `work` on the split batches, and the number of parts each batch was split into.

        Args:
            work: called with the parts, and again with smaller ones after it ran out of memory.
            batches: to be split.
            parts: initial number; 1 leaves the batches whole.
            what: name of the work, for messages.
            release: frees what failed work has left behind.

        Raises:
            OutOfMemory: even the smallest parts are too large, or batches may not be split.
        """
        while True:
            pieces = self._cut(batches, parts)
            try:
                return work(pieces), parts
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if parts >= MOST_PARTS or len(self._cut(batches, parts * 2)) == len(pieces):
                    raise OutOfMemory(self._advice(what, parts)) from error
            # Only here: inside the handler, the error still references every tensor of the work.
            release()
            parts *= 2
            same = "the result stays the same up to rounding"
            log.warning(f"memory ran out in {what}: from now on each batch is split into {parts} parts; {same}")

    def _cut(self, batches: Sequence[Batch], parts: int) -> list[Batch]:
        if self.split is None or parts == 1:
            return list(batches)
        return [part for batch in batches for part in self.split(batch, parts)]

    def _advice(self, what: str, parts: int) -> str:
        if self.split is None:
            return (
                f"memory ran out in {what}: set auto_ga: true, or lower batch_size and raise update_freq by the same "
                "factor (the result stays the same), or preprocess with a lower max_len."
            )
        return (
            f"memory ran out in {what}, although each batch was split into {parts} parts. Lower batch_size, preprocess "
            "with a lower max_len, set gradient_checkpointing: true (BERT), or use a smaller model or more memory."
        )


def free_cache(device: torch.device) -> None:
    """Return unused memory to the device."""
    gc.collect()  # a graph that failed half way may contain reference cycles
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def advised(what: str) -> Generator[None]:
    """Replace torch's error when memory runs out for `what` by one that says what helps; smaller batches do not.

    Raises:
        OutOfMemory: instead of the error of torch.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"memory ran out for {what}, which a smaller batch_size would not change. Use a smaller model, train fewer "
            "of its weights (fix_lm: true for BERT), set ema_decay: 1.0 to keep no average, or use more memory."
        ) from error


def joined(parts: Sequence[Predictions]) -> Predictions:
    """Return the predictions of a batch from those of its parts: rows concatenated, scalars added."""
    if len(parts) == 1:
        return parts[0]
    return {name: _join([part[name] for part in parts]) for name in parts[0]}


def _join(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Tensor) and values[0].dim() > 0:
        return torch.cat(list(values))
    if isinstance(values[0], np.ndarray):  # of texts, which no device holds
        return np.concatenate(values)
    return sum(values[1:], start=values[0])


class HeardByAll(MemoryError):
    """Raised on all processes when memory ran out on one of them."""


@contextmanager
def raised_on_all(active: bool) -> Generator[None]:
    """If memory runs out on one process, raise on all of them, so that all start over. On all processes.

    Args:
        active: whether there are other processes, and they do not wait for this one inside the block.

    Raises:
        HeardByAll: memory ran out on a process.
    """
    failure: BaseException | None = None
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not active or not is_out_of_memory(error):
            raise
        failure = error
    if active and any_process(failure is not None):
        raise HeardByAll("memory ran out on one of the processes") from failure


def with_fitting_batches(
    attempt: Callable[[int], T], size: int, begin_anew: Callable[[], None], *, together: bool = False
) -> T:
    """Return the result of `attempt` with the largest batches that fit into memory, from `size` samples down.

    Args:
        attempt: called with a number of samples.
        size: samples to begin with.
        begin_anew: undoes the changes of a failed attempt.
        together: whether other processes take part: then none may start over alone, see `raised_on_all`.

    Raises:
        RuntimeError: not even one sample fits.
    """
    while size > 0:
        try:
            return attempt(size)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or (together and not isinstance(error, HeardByAll)):
                raise
            log.warning(f"batches of {size} samples do not fit into memory: starting over with {int(size * SHRINK)}.")
        size = int(size * SHRINK)
        begin_anew()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    raise RuntimeError(
        "auto_find_batch_size: not even a batch of one sample fits into memory. Use shorter sequences, "
        "activation_checkpointing=True, bf16=True, or a smaller model."
    )
