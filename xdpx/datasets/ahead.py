"""Prefetching: a thread produces the next items while the consumer works on the current one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import TypeVar

T = TypeVar("T")
Produce = Callable[[threading.Event], Iterator[T]]
"""Called in the thread; returns the iterator. It must end soon after the event is set, also while it is waiting."""

_SECONDS_BETWEEN_LOOKS = 0.1


@dataclass(frozen=True)
class _End:
    """Marks the end of the items; `error` is set if an exception ended them."""

    error: BaseException | None = None


def ahead(produce: Produce[T], *, depth: int) -> Generator[T]:
    """Yield the items of `produce` in order, prefetching up to `depth` of them.

    Its exceptions are raised here, after the items before them. Closing the generator ends the thread and waits for it.
    """
    queue: Queue[T | _End] = Queue(depth)
    stop = threading.Event()
    thread = threading.Thread(target=_work, args=(produce, queue, stop), name="xdpx-batches", daemon=True)
    thread.start()
    try:
        while not isinstance(item := queue.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stop.set()
        _empty(queue)
        thread.join()


def _work(produce: Produce[T], queue: Queue[T | _End], stop: threading.Event) -> None:
    end = _End()
    try:
        for item in produce(stop):
            if not _put(queue, item, stop):
                return
    except BaseException as error:  # raised again in the consumer's thread
        end = _End(error)
    _put(queue, end, stop)


def _put(queue: Queue[T | _End], item: T | _End, stop: threading.Event) -> bool:
    """Put an item into the queue as soon as there is room; return False if `stop` is set before."""
    while not stop.is_set():
        try:
            queue.put(item, timeout=_SECONDS_BETWEEN_LOOKS)
        except Full:
            continue
        return True
    return False


def _empty(queue: Queue[T | _End]) -> None:
    try:
        while True:
            queue.get_nowait()
    except Empty:
        return
