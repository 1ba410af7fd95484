"""Sentences joined into blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdpx.loaders.base import Blocks
from xdpx.loaders.corpus import BreakMode, CorpusLoader, SentenceMerger

MODES: list[BreakMode] = ["none", "none_doc", "complete", "complete_doc", "eos"]
DOCUMENTS = [[3, 2, 4], [1, 7, 1], [2]]
"""Lengths of the sentences of three documents, 20 tokens together."""


def encoded(lengths: list[int], first: int = 0) -> tuple[Blocks, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    borders = np.array([length == 0 for length in lengths], np.bool_)
    return Blocks(np.arange(first, first + offsets[-1], dtype=np.int32), offsets), borders


def sizes(blocks: list[Blocks]) -> list[int]:
    return [int(size) for block in blocks for size in np.diff(block.offsets)]


def merged(mode: BreakMode, size: int, lines: list[int], cuts: list[int]) -> list[Blocks]:
    """Merge the lines (0 is a blank one), fed in several portions."""
    merger = SentenceMerger(mode, size)
    found, first = [], 0
    for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        texts, borders = encoded(lines[start:end], first)
        first += int(texts.offsets[-1])
        found.append(merger.feed(texts, borders))
    return [*found, merger.finish()]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("none", [5, 5, 5, 5]),
        ("none_doc", [5, 4, 5, 4, 2]),
        ("complete", [5, 5, 5, 5]),
        ("complete_doc", [5, 4, 1, 5, 3, 2]),
        ("eos", [3, 2, 4, 1, 5, 2, 1, 2]),
    ],
)
def test_where_blocks_of_five_end(mode: BreakMode, expected: list[int]) -> None:
    lines = [length for document in DOCUMENTS for length in [*document, 0]]
    assert sizes(merged(mode, 5, lines, [])) == expected


@given(
    mode=st.sampled_from(MODES),
    size=st.integers(1, 9),
    lines=st.lists(st.integers(0, 12), max_size=30),
    data=st.data(),
)
def test_how_the_file_was_cut_into_portions_changes_nothing(
    mode: BreakMode, size: int, lines: list[int], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=4)))
    whole, portions = merged(mode, size, lines, []), merged(mode, size, lines, cuts)
    assert sizes(portions) == sizes(whole)
    tokens = np.concatenate([block.values for block in portions])
    assert tokens.tolist() == list(range(sum(lines)))
    assert all(0 < each <= size for each in sizes(whole))


@given(size=st.integers(1, 9), lines=st.lists(st.integers(1, 12), max_size=30))
def test_complete_blocks_end_with_sentences_unless_one_is_too_long(size: int, lines: list[int]) -> None:
    lines = [min(length, size) for length in lines]
    ends = set(np.cumsum(lines).tolist())
    assert set(np.cumsum(sizes(merged("complete", size, lines, []))).tolist()) <= ends


def test_blocks_leave_room_for_special_tokens() -> None:
    loader = CorpusLoader(CorpusLoader.Parameters(tokenizer="space"))
    texts, borders = encoded([20])
    merger = loader.merger(8)
    assert merger is not None
    assert sizes([merger.feed(texts, borders), merger.finish()]) == [5, 5, 5, 5]
