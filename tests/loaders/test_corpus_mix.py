from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.datasets.sample_making import Recipe
from xdpx.loaders import loaders, marks
from xdpx.loaders.base import Blocks
from xdpx.loaders.parsers import parsers
from xdpx.processors import processors
from xdpx.processors.samples import Samples
from xdpx.tokenizers import tokenizers
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.vocabulary import Vocabulary

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
