"""Rank and world size of this process, and collectives over Python objects. Never imports torch by itself."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from itertools import islice, zip_longest
from typing import Any, TypeVar

T = TypeVar("T")

LOST_PEER_CODE = 69
"""Exit code of a process that ends because it lost another process of its group."""

LAUNCH = "XDPX_LAUNCH"
"""Environment variable with the id of the launch that started this process, common to all its restarts."""

LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")
"""Parts of the messages of torch.distributed, and of JAX on CPUs, when the process at the other end is gone."""


SECONDS_TO_ASK = 0.5
"""Seconds between two times that processes ask each other, while each does its share of some work."""


class StopTogether(Exception):
    """Raised on all processes that share some work, because one of them was told to stop."""


_NOTHING = object()


def _group() -> Any | None:
    """Return torch.distributed if a process group is initialised, else None."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _from_environment(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise


def get_rank() -> int:
    """Return the rank of this process: of the process group, else `$RANK`, else 0."""
    group = _group()
    return int(group.get_rank()) if group else _from_environment("RANK", 0)


def get_world_size() -> int:
    """Return the number of processes: of the process group, else `$WORLD_SIZE`, else 1."""
    group = _group()
    return int(group.get_world_size()) if group else _from_environment("WORLD_SIZE", 1)


def is_master(args: object = None) -> bool:
    """Return whether this process has rank 0, which writes files and prints.

    Args:
        args: ignored; accepted for older code that passes its parameters.
    """
    del args
    return get_rank() == 0


def barrier() -> None:
    """Wait until all processes have called this. On all processes; returns at once if there is only one."""
    group = _group()
    if group and group.get_world_size() > 1:
        group.barrier()


def place_in_group() -> tuple[int, int]:
    """Return (world size, rank) of the process group; (1, 0) before it is initialised, whatever `$RANK` says."""
    group = _group()
    return (int(group.get_world_size()), int(group.get_rank())) if group else (1, 0)


def gather_objects(value: T) -> list[T]:
    """Return the values of all processes, by rank; they must be picklable. On all processes."""
    group = _group()
    if group is None or group.get_world_size() == 1:
        return [value]
    everything: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(everything, value)
    return everything


def broadcast_object(value: T) -> T:
    """Return the value of rank 0. On all processes."""
    group = _group()
    if group is None or group.get_world_size() == 1:
        return value
    carrier: list[Any] = [value]
    group.broadcast_object_list(carrier, src=0)
    received: T = carrier[0]
    return received


def dealt(items: Iterable[T]) -> Iterator[T]:
    """Yield every world-size-th item, starting at this rank: this process's share. `collected` is the inverse."""
    size, rank = place_in_group()
    return islice(items, rank, None, size)


def collected(shares: Iterable[T]) -> list[T]:
    """Return on rank 0 the items of all shares in their original order, the inverse of `dealt`; elsewhere [].

    On all processes.
    """
    group = _group()
    if group is None or group.get_world_size() == 1:
        return list(shares)
    everything: list[Any] | None = [None] * group.get_world_size() if group.get_rank() == 0 else None
    group.gather_object(list(shares), everything)
    rounds = zip_longest(*(everything or []), fillvalue=_NOTHING)
    return [each for one_round in rounds for each in one_round if each is not _NOTHING]


def by_the_first(work: Callable[[], T]) -> T:
    """Call `work` on rank 0 only, and return its result on all processes. On all processes.

    With this, all processes act on the same state of a disk, although they would read it at different times.

    Raises:
        Exception: what `work` raised on rank 0, on all processes, so that they stay in step.
    """
    group = _group()
    if group is None or group.get_world_size() == 1:
        return work()
    result, failure = None, None
    if group.get_rank() == 0:
        try:
            result = work()
        except Exception as error:
            failure = error
    result, failure = broadcast_object((result, failure))
    if failure is not None:
        raise failure
    return result  # type: ignore[return-value] # a T, since nothing was raised


def any_process(flag: bool) -> bool:
    """Return whether a flag is true on at least one process. On all processes; all-reduces one number on the CPU."""
    return any_process_of_each([flag])[0]


def any_process_of_each(flags: Sequence[bool]) -> list[bool]:
    """Return the result of `any_process` for each flag, with one all-reduce. On all processes."""
    group = _group()
    if group is None or group.get_world_size() == 1:
        return list(flags)
    up = sys.modules["torch"].tensor([float(flag) for flag in flags])
    group.all_reduce(up)
    return [number > 0 for number in up.tolist()]


def until_any(items: Iterable[T], told: Callable[[], bool]) -> Generator[T]:
    """Yield `items`; before one of them, raise StopTogether if a process was told to stop, then on all processes.

    A process asks the others about every `SECONDS_TO_ASK`, after a number of items on which all agree, so that asking
    costs nothing measurable; a single process before each item. They need not have the same number of items: one that
    has no more keeps asking until nobody has any. When that is so, nothing is raised: all is done.

    Args:
        items: of this process.
        told: whether this process was told to stop.

    Raises:
        StopTogether: some process was told.
    """
    is_alone, going, left, stride, since = place_in_group()[0] == 1, True, 1, 1, time.monotonic()
    walk = iter(items)
    with closing(walk) if isinstance(walk, Generator) else nullcontext():
        while True:
            left -= 1
            if left == 0 or not going:
                was_long = time.monotonic() - since > SECONDS_TO_ASK
                stops, was_long, anyone_goes = any_process_of_each([told(), was_long, going])
                if not anyone_goes:
                    return
                if stops:
                    raise StopTogether
                stride = max(1, stride // 2) if was_long or is_alone else 2 * stride
                left, since = stride, time.monotonic()
            item = next(walk, _NOTHING) if going else _NOTHING
            going = item is not _NOTHING
            if going:
                yield item  # type: ignore[misc] # a T


def is_lost_peer(error: BaseException) -> bool:
    """Return whether an error was caused by the loss of another process."""
    text = str(error)
    of_group = isinstance(error, RuntimeError) or (isinstance(error, ValueError) and "Gloo" in text)  # the latter: JAX
    return of_group and any(words in text for words in LOST_PEER)
