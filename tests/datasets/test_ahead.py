from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from threading import Event

import pytest

from xdpx.datasets.ahead import ahead

Threads = Callable[[], list[threading.Thread]]


def test_items_come_in_order_and_then_it_ends(reading_threads: Threads) -> None:
    assert list(ahead(lambda _: iter(range(50)), depth=2)) == list(range(50))
    assert reading_threads() == []


def test_work_is_done_ahead_but_only_so_far(reading_threads: Threads) -> None:
    made: list[int] = []

    def produce(_: Event) -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    items = ahead(produce, depth=3)
    assert next(items) == 0
    end = time.monotonic() + 60
    while len(made) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    assert 3 <= len(made) <= 6
    items.close()
    assert reading_threads() == []


def test_an_error_comes_after_the_items_before_it(reading_threads: Threads) -> None:
    def produce(_: Event) -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    items = ahead(produce, depth=4)
    assert next(items) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)
    assert reading_threads() == []


def test_closing_early_ends_the_thread_that_waits_for_the_world(reading_threads: Threads) -> None:
    def produce(stop: Event) -> Iterator[int]:
        yield 1
        stop.wait(60)

    items = ahead(produce, depth=1)
    next(items)
    start = time.monotonic()
    items.close()
    assert time.monotonic() - start < 30  # half of what it would have waited
    assert reading_threads() == []


def test_nothing_starts_before_the_first_item_is_asked_for(reading_threads: Threads) -> None:
    items = ahead(lambda _: iter([1]), depth=1)
    assert reading_threads() == []
    assert next(items) == 1
    items.close()
