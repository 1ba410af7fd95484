"""Where this process stands among its peers. torch is asked only when the program has imported it already."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any, TypeVar

T = TypeVar("T")

LOST_PEER_CODE = 69
"""Exit code of a process that ended because another one had ended before."""

LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")
"""What torch.distributed says when a process that this one talks to is gone."""


_NOTHING = object()


def _group() -> Any | None:
    """Return torch.distributed when a process group is up, else None."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _from_environment(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise


def get_rank() -> int:
    """Return the index of this process among all of them; 0 when it is alone."""
    group = _group()
    return int(group.get_rank()) if group else _from_environment("RANK", 0)


def get_world_size() -> int:
    """Return how many processes train together; 1 when this one is alone."""
    group = _group()
    return int(group.get_world_size()) if group else _from_environment("WORLD_SIZE", 1)


def is_master(args: object = None) -> bool:
    """Tell whether this process is the one that writes files and prints.

    Args:
        args: taken for the sake of older code that passes its parameters, and not looked at.
    """
    del args
    return get_rank() == 0


def barrier() -> None:
    """Wait until all processes are here. Must be called on all of them; returns at once when there is one."""
    group = _group()
    if group and group.get_world_size() > 1:
        group.barrier()


def place_in_group() -> tuple[int, int]:
    """Return (how many processes have joined, the index of this one); (1, 0) before that, whatever a launcher says."""
    group = _group()
    return (int(group.get_world_size()), int(group.get_rank())) if group else (1, 0)


def gather_objects(value: T) -> list[T]:
    """Return the values of all processes, by rank. Anything that pickles may be gathered. On all processes."""
    group = _group()
    if group is None or group.get_world_size() == 1:
        return [value]
    everything: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(everything, value)
    return everything


def broadcast_object(value: T) -> T:
    """Return the value of the first process. On all processes."""
    group = _group()
    if group is None or group.get_world_size() == 1:
        return value
    carrier: list[Any] = [value]
    group.broadcast_object_list(carrier, src=0)
    received: T = carrier[0]
    return received


def dealt(items: Iterable[T]) -> Iterator[T]:
    """Yield this process's share of items that are dealt out to all processes in turn. `collected` undoes it."""
    size, rank = place_in_group()
    return islice(items, rank, None, size)


def collected(shares: Iterable[T]) -> list[T]:
    """Return on the first process what all made of their shares, in the order of one process; elsewhere nothing."""
    group = _group()
    if group is None or group.get_world_size() == 1:
        return list(shares)
    everything: list[Any] | None = [None] * group.get_world_size() if group.get_rank() == 0 else None
    group.gather_object(list(shares), everything)
    rounds = zip_longest(*(everything or []), fillvalue=_NOTHING)
    return [each for one_round in rounds for each in one_round if each is not _NOTHING]


def by_the_first(work: Callable[[], T]) -> T:
    """Let the first process do some work, and return its result on all of them. On all processes.

    What is read from a disk, or is changed there, is so the same for all, whoever looks when.

    Raises:
        Exception: what the work raised on the first process, on all of them: they take the same way from there on.
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
    return result  # type: ignore[return-value] # of T, where nothing was raised


def any_process(flag: bool) -> bool:
    """Tell whether a flag is up on at least one process. On all processes; one number travels, over the host."""
    return any_process_of_each([flag])[0]


def any_process_of_each(flags: Sequence[bool]) -> list[bool]:
    """Tell of each flag what `any_process` tells, in one go."""
    group = _group()
    if group is None or group.get_world_size() == 1:
        return list(flags)
    up = sys.modules["torch"].tensor([float(flag) for flag in flags])
    group.all_reduce(up)
    return [number > 0 for number in up.tolist()]


def is_lost_peer(error: BaseException) -> bool:
    """Tell whether an error says no more than that another process is gone."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(words in text for words in LOST_PEER)
