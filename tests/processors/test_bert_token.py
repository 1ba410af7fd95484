from __future__ import annotations

from typing import Any

import numpy as np

from xdpx.loaders.marks import WORD_START as W
from xdpx.processors.samples import Ragged


def test_the_first_token_of_each_word_stands_for_it(make: Any, sampled: Any) -> None:
    processor = make("bert_token")
    batch = processor.collate(sampled(processor, [[[5 | W, 6, 8 | W]], [[9 | W]]]))
    assert batch["net_input"]["input_ids"].tolist() == [[2, 5, 6, 8, 3], [2, 9, 3, 0, 0]]
    assert batch["net_input"]["word_starts"].tolist() == [[1, 3], [1, 0]]
    assert batch["net_input"]["word_mask"].tolist() == [[True, True], [True, False]]
    assert batch["ntokens"] == 8


def test_words_that_are_cut_off_lose_their_tags(make: Any, sampled: Any) -> None:
    processor = make("bert_token", max_len=5)
    samples = sampled(processor, [[[5 | W, 6, 8 | W, 9 | W]]], targets=[0])
    tags = Ragged(np.array([1, 2, 3], np.int32), np.array([0, 3]))
    batch = processor.collate(samples.replaced("target", tags), pad_multiple=4)
    assert batch["target"].tolist() == [[1, 2, -100, -100]]
    assert processor.split(batch, 1)[0]["ntokens"] == 5


def test_without_words_every_token_is_one(make: Any, sampled: Any) -> None:
    processor = make("bert_token")
    assert processor.collate(sampled(processor, [[[5, 6]]]))["net_input"]["word_starts"].tolist() == [[1, 2]]
