"""Memory runs out: tell it from other errors, do the same work in smaller pieces, or say what can be done."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from xdpx.engines.base import Batch, OutOfMemory, Predictions, Split
from xdpx.logger import log
from xdpx.utils.distributed_utils import any_process
from xdpx.utils.memory import is_out_of_memory

T = TypeVar("T")

MOST_PARTS = 2**6
"""A batch is halved six times at most."""

SHRINK = 0.9
"""What the size of batches is multiplied by, each time that memory runs out (`auto_find_batch_size`)."""


class InParts:
    """Does work on batches, and does it anew with each batch cut into twice as many parts when memory runs out.

    Args:
        split: cuts a batch; None never cuts, and memory running out is an error that says what to do.
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
        """Return what `work` gives for the cut batches, and the number of parts that each was cut into.

        Args:
            work: is called with the pieces, and again with smaller ones.
            batches: to be cut.
            parts: to begin with; 1 leaves the batches whole.
            what: `work` in words.
            release: lets go of what work that failed has left.

        Raises:
            OutOfMemory: even the smallest parts are too large, or nothing may be cut.
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
            # Only now: the error, while it lived, held on to every tensor of the work.
            release()
            parts *= 2
            same = "the result stays the same up to rounding"
            log.warning(f"memory ran out in {what}: from now on each batch is cut into {parts} parts; {same}")

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
            f"memory ran out in {what}, although each batch was cut into {parts} parts. Lower batch_size, preprocess "
            "with a lower max_len, set gradient_checkpointing: true (BERT), or use a smaller model or more memory."
        )


def free_cache(device: torch.device) -> None:
    """Return memory that nothing uses back to the device."""
    gc.collect()  # a graph that failed half way may hold itself
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def advised(what: str) -> Generator[None]:
    """Where memory runs out for `what`, say that smaller batches are no help, and what is.

    Raises:
        OutOfMemory: in place of the error of torch.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"memory ran out for {what}, which no smaller batch_size would change. Use a smaller model, train fewer of "
            "its weights (fix_lm: true for BERT), set ema_decay: 1.0 to keep no average, or use more memory."
        ) from error


def joined(parts: Sequence[Predictions]) -> Predictions:
    """Put the predictions of the parts of a batch together: rows one after another, single numbers added."""
    if len(parts) == 1:
        return parts[0]
    return {name: _join([part[name] for part in parts]) for name in parts[0]}


def _join(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Tensor) and values[0].dim() > 0:
        return torch.cat(list(values))
    return sum(values[1:], start=values[0])


class HeardByAll(MemoryError):
    """Memory ran out on one process, and all of them know it: each has raised this."""


@contextmanager
def raised_on_all(active: bool) -> Generator[None]:
    """Where memory runs out on one process, raise on all of them, so that all begin anew. On all processes.

    Args:
        active: whether there are others, who have not waited for this process in the work within.

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
    """Return what `attempt` gives for the largest batches that fit into memory, from `size` samples down.

    Args:
        attempt: is called with a number of samples.
        size: samples to begin with.
        begin_anew: undoes what an attempt that failed has changed.
        together: whether other processes take part: one alone must not begin anew, see `raised_on_all`.

    Raises:
        RuntimeError: not even one sample fits.
    """
    while size > 0:
        try:
            return attempt(size)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or (together and not isinstance(error, HeardByAll)):
                raise
            log.warning(f"batches of {size} samples do not fit into memory: begins anew with {int(size * SHRINK)}.")
        size = int(size * SHRINK)
        begin_anew()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    raise RuntimeError(
        "auto_find_batch_size: not even a batch of one sample fits into memory. Use shorter sequences, "
        "activation_checkpointing=True, bf16=True, or a smaller model."
    )
