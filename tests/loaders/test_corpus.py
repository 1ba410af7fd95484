"""Sentences joined into blocks, whole words marked, and messages joined into sessions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdpx.datasets.sample_making import Recipe
from xdpx.loaders import loaders, marks
from xdpx.loaders.base import Blocks
from xdpx.loaders.corpus import BreakMode, CorpusLoader, SentenceMerger, SessionMerger
from xdpx.loaders.parsers import parsers
from xdpx.loaders.parsers.base import Rows
from xdpx.processors import processors
from xdpx.processors.samples import Samples
from xdpx.tokenizers import tokenizers
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.vocabulary import Vocabulary

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


TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "我", "们", "喜", "欢", "猫", "play", "##ing", "!"]


def chosen(table: Any, name: str, **keys: Any) -> Any:
    kind = table[name]
    return kind.Parameters(**keys), kind


@pytest.fixture
def recipe(tmp_path: Any) -> Any:
    """Build a recipe of a loader and a processor."""
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    vocabulary = Vocabulary(TOKENS)
    known, kind = chosen(tokenizers, "bert", vocab_file=str(tmp_path / "vocab.txt"))
    tokenizer = kind(known)

    def build(loader: str, processor: str, **keys: Any) -> Recipe:
        of_loader, loader_class = chosen(loaders, loader, tokenizer="bert", **keys)
        masks = {"mask_prob": 0.1, "max_predictions": 2} if processor == "bert_lm" else {}
        of_processor, processor_class = chosen(processors, processor, max_len=16, **masks)
        return Recipe(
            parsers["none"](parsers["none"].Parameters()),
            loader_class(of_loader),
            Encoder(tokenizer, vocabulary),
            processor_class(of_processor, vocabulary=vocabulary),
        )

    return build


def test_the_first_token_of_each_word_is_marked(recipe: Any) -> None:
    encoded = recipe("corpus_mix", "bert_lm").encode("tokens", ["我们 喜欢 猫", "", "playing!  猫"])
    assert marks.plain(encoded.values).tolist() == [5, 6, 7, 8, 9, 10, 11, 12, 9]
    begins = marks.has(marks.WORD_START, encoded.values).tolist()
    assert begins == [True, False, True, False, True, True, False, False, True]
    assert encoded.offsets.tolist() == [0, 5, 5, 9]


@pytest.mark.parametrize(("loader", "processor"), [("corpus", "bert_lm"), ("corpus_mix", "causal_lm")])
def test_nobody_who_cannot_read_marks_gets_any(recipe: Any, loader: str, processor: str) -> None:
    encoded = recipe(loader, processor).encode("tokens", ["我们 喜欢 猫"])
    assert encoded.values.tolist() == [5, 6, 7, 8, 9]


def test_sentences_are_marked_for_who_asks(recipe: Any) -> None:
    encoded = recipe("corpus", "bert_sop").encode("tokens", ["我们", "", "猫"])
    assert marks.has(marks.SENTENCE_START, encoded.values).tolist() == [True, False, True]


def test_words_are_guessed_whole(recipe: Any) -> None:
    made = recipe("corpus_mix", "bert_lm")
    encoded = made.encode("tokens", ["我们 喜欢 猫"])
    sample = made.processor.numerize({"tokens": encoded.values.tolist()}, None)
    assert made.processor.decode(sample) == "我 们 喜 欢 猫"

    samples = Samples.from_dicts([sample], made.processor.columns(labelled=False))
    found = {tuple(made.processor.collate(samples, epoch=epoch)["target"].tolist()) for epoch in range(60)}
    assert found == {(5, 6), (7, 8), (9,)}


def test_blocks_of_few_words_are_dropped() -> None:
    loader = loaders["corpus_mix"](loaders["corpus_mix"].Parameters(tokenizer="bert", min_word_len=2, break_mode="eos"))
    merger = loader.merger(32)
    word = marks.WORD_START
    values = np.array([5 | word, 6, 7 | word, 8, 9 | word, 10, 11], np.int32)
    blocks = merger.feed(Blocks(values, np.array([0, 4, 7])), np.array([False, False]))
    rest = merger.finish()
    assert [*marks.plain(blocks.values).tolist(), *marks.plain(rest.values).tolist()] == [5, 6, 7, 8]


def messages(*rows: list[str], first: int = 1, **keys: Any) -> Any:
    kind = loaders["session_corpus"]
    loader = kind(kind.Parameters(tokenizer="bert", **keys))
    return loader.records(Rows(list(rows), list(range(first, len(rows) + first)), []), labelled=False)


def test_a_number_that_does_not_grow_or_a_blank_line_begins_a_session() -> None:
    found = messages(["1", "a", "x"], ["2", "b", "y"], ["1", "a", "z"], [""], ["7", "b", "w"])
    assert found.fields["text"] == ["x", "y", "", "z", "", "w"]


def test_a_block_of_rows_may_begin_with_a_session_or_within_one() -> None:
    assert messages(["1", "a", "x"], ["2", "b", "y"], first=9).fields["text"] == ["", "x", "y"]
    assert messages(["2", "a", "x"], ["3", "b", "y"], first=9).fields["text"] == ["x", "y"]


def test_lines_of_one_sender_are_joined_up_to_so_many() -> None:
    rows = [[str(number), sender, text] for number, (sender, text) in enumerate(zip("aaabb", "vwxyz", strict=True))]
    assert messages(*rows).fields["text"] == ["v w", "x", "y z"]
    assert messages(*rows, max_consecutive=1).fields["text"] == list("vwxyz")


def test_lines_that_are_no_messages_are_named() -> None:
    found = messages(["1", "a", "x"], ["one", "a", "x"], ["2", "a"])
    assert [(line, problem.partition(" ")[0]) for line, problem in found.bad] == [(2, "has"), (3, "has")]


def test_sessions_are_joined_over_blocks_and_short_ones_dropped() -> None:
    merger = SessionMerger(2)
    first = merger.feed(Blocks(np.array([5, 6, 7], np.int32), np.array([0, 2, 3])), np.array([False, False]))
    second = merger.feed(Blocks(np.array([8, 9], np.int32), np.array([0, 1, 1, 2])), np.array([False, True, False]))
    assert len(first.values) == 0
    assert second.values.tolist() == [5, 6, 7, 8]
    assert second.offsets.tolist() == [0, 4]
    assert merger.finish().offsets.tolist() == [0]
