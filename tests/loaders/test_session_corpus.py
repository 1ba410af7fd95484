from __future__ import annotations

from typing import Any

import numpy as np

from xdpx.loaders import loaders
from xdpx.loaders.base import Blocks
from xdpx.loaders.parsers.base import Rows
from xdpx.loaders.session_corpus import SessionMerger


def records(*rows: list[str], **keys: Any) -> Any:
    kind = loaders["session_corpus"]
    loader = kind(kind.Parameters(tokenizer="bert", **keys))
    return loader.records(Rows(list(rows), list(range(1, len(rows) + 1)), []), labelled=False)


def test_a_number_that_does_not_grow_or_a_blank_line_begins_a_session() -> None:
    found = records(["1", "a", "x"], ["2", "b", "y"], ["1", "a", "z"], [""], ["7", "b", "w"])
    assert found.fields["text"] == ["x", "y", "", "z", "", "w"]


def test_lines_of_one_sender_are_joined_up_to_so_many() -> None:
    rows = [[str(number), sender, text] for number, (sender, text) in enumerate(zip("aaabb", "vwxyz", strict=True))]
    assert records(*rows).fields["text"] == ["v w", "x", "y z"]
    assert records(*rows, max_consecutive=1).fields["text"] == list("vwxyz")


def test_lines_that_are_no_messages_are_named() -> None:
    found = records(["1", "a", "x"], ["one", "a", "x"], ["2", "a"])
    assert [(line, problem.partition(" ")[0]) for line, problem in found.bad] == [(2, "has"), (3, "has")]


def test_sessions_are_joined_over_blocks_and_short_ones_dropped() -> None:
    merger = SessionMerger(2)
    first = merger.feed(Blocks(np.array([5, 6, 7], np.int32), np.array([0, 2, 3])), np.array([False, False]))
    second = merger.feed(Blocks(np.array([8, 9], np.int32), np.array([0, 1, 1, 2])), np.array([False, True, False]))
    assert len(first.values) == 0
    assert second.values.tolist() == [5, 6, 7, 8]
    assert second.offsets.tolist() == [0, 4]
    assert merger.finish().offsets.tolist() == [0]
