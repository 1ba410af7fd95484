from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.loaders.marks import WORD_START as W
from xdpx.processors.base import samples_of
from xdpx.processors.samples import Ragged, Samples


def test_the_first_token_of_each_word_stands_for_it(make: Any, sampled: Any) -> None:
    processor = make("bert_token")
    batch = processor.collate(sampled(processor, [[[5 | W, 6, 8 | W]], [[9 | W]]]))
    assert batch["net_input"]["input_ids"].tolist() == [[2, 5, 6, 8, 3], [2, 9, 3, 0, 0]]
    assert batch["net_input"]["word_starts"].tolist() == [[1, 3], [1, 0]]
    assert batch["net_input"]["word_mask"].tolist() == [[True, True], [True, False]]
    assert batch["ntokens"] == 8


def in_windows(processor: Any, texts: list[list[int]]) -> Samples:
    """Return the samples of texts, with the number of its text as the target of each."""
    tokens = Ragged(np.concatenate(texts), np.cumsum([0, *map(len, texts)]))
    return Samples(processor.numerize_many({"tokens": tokens}, np.arange(len(texts)))[0])


def test_words_beyond_max_len_stand_in_further_windows_with_their_tags(make: Any) -> None:
    processor = make("bert_token", max_len=5)
    samples = in_windows(processor, [[5 | W, 6, 8 | W, 9 | W, 10 | W, 11], [7 | W]])
    tags = Ragged(np.array([1, 2, 3, 4, 5], np.int32), np.array([0, 4, 5]))
    batch = processor.collate(processor.with_label_sets(samples, tags), pad_multiple=4)
    assert batch["net_input"]["input_ids"][:, 1:4].tolist()[:2] == [[5, 6, 8], [6, 8, 9]]
    assert [row[row >= 0].tolist() for row in batch["target"]] == [[1], [2], [3], [4], [5]]
    assert batch["window"].tolist() == [0, 1, 2, 3, 0]


@pytest.mark.parametrize("stride", [None, 1, 2, 4, 9])
def test_every_word_is_one_of_exactly_one_window(make: Any, stride: int | None) -> None:
    processor = make("bert_token", max_len=6, doc_stride=stride)
    dice = np.random.default_rng(3)
    texts = [np.where(dice.random(size) < 0.6, W, 0) | dice.integers(5, 12, size) for size in range(1, 30)]
    texts = [np.concatenate([[5 | W], text]).tolist() for text in texts]
    samples = in_windows(processor, texts)
    texts_again = np.cumsum(samples.numbers("window") == 0) - 1
    starts, ids = samples.ragged("word_starts"), samples.ragged("input_ids")
    for number, text in enumerate(texts):
        windows = np.flatnonzero(texts_again == number)
        found = np.concatenate([ids.row(each)[starts.row(each)] for each in windows])
        assert found.tolist() == [token & ~W for token in text if token & W]


def test_samples_of_an_older_store_have_one_window_each(make: Any, sampled: Any) -> None:
    processor = make("bert_token")
    samples = sampled(processor, [[[5 | W]], [[6 | W]]])
    del samples.columns["window"]
    assert processor.collate(samples)["window"].tolist() == [0, 0]


def test_without_words_every_token_is_one(make: Any, sampled: Any) -> None:
    processor = make("bert_token")
    assert processor.collate(sampled(processor, [[[5, 6]]]))["net_input"]["word_starts"].tolist() == [[1, 2]]


def test_a_word_that_begins_too_far_behind_to_be_stored_is_refused(make: Any) -> None:
    processor = make("bert_token", max_len=40_000)
    tokens = Ragged(np.full(39_000, 5, np.int32), np.array([0, 39_000]))
    with pytest.raises(ConfigError, match="32768, which int16 would store as -32768"):
        samples_of(processor, {"tokens": tokens}, None, processor.columns(labelled=False))
