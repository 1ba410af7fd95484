"""Garbage is collected rarely while a command starts, and as usual from its first update on."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from xdpx.utils import collecting


@pytest.fixture(autouse=True)
def _own_threshold() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    collecting._usual.clear()
    gc.set_threshold(*before)


def test_rarely_lasts_until_as_usual_which_restores_what_was() -> None:
    gc.set_threshold(300, 4, 5)
    collecting.rarely()
    collecting.rarely()  # by a process that was forked off one that does so already
    assert gc.get_threshold() == collecting.RARELY
    collecting.as_usual()
    assert gc.get_threshold() == (300, 4, 5)


def test_as_usual_changes_nothing_where_a_library_was_called() -> None:
    gc.set_threshold(300, 4, 5)
    collecting.as_usual()
    assert gc.get_threshold() == (300, 4, 5)
