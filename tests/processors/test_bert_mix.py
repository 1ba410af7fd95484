"""Samples of mixed granularity: every piece knows its word, whatever was cut off."""

from __future__ import annotations

from typing import Any

import numpy as np

from xdpx.loaders import marks
from xdpx.processors.samples import Ragged, Samples

W = marks.WORD_START


def rows(*given: list[int]) -> Ragged:
    return Ragged(np.array([one for row in given for one in row], np.int32), np.cumsum([0, *map(len, given)]))


def sampled(processor: Any, fields: dict[str, Ragged]) -> Samples:
    columns, _ = processor.numerize_many(fields, None)
    return Samples({name: columns[name] for name in processor.columns(labelled=False)})


def test_pieces_are_counted_by_the_words_they_belong_to(make: Any) -> None:
    processor = make("bert_single_mix", max_len=6)
    fields = {
        "tokens": rows([5 | W, 6, 7 | W], [], [8 | W, 9, 5 | W, 6, 7 | W]),
        "words": rows([30, 31], [], [32, 33, 34]),
    }
    batch = processor.collate(sampled(processor, fields))["net_input"]
    cls, sep = processor.cls_index, processor.sep_index
    assert batch["input_ids"].tolist() == [[cls, 5, 6, 7, sep, 0], [cls, sep, 0, 0, 0, 0], [cls, 8, 9, 5, 6, sep]]
    assert batch["word_index"].tolist() == [[0, 1, 1, 2, 0, 0], [0] * 6, [0, 1, 1, 2, 2, 0]]
    assert batch["words"].tolist() == [[30, 31], [0, 0], [32, 33]]
    assert batch["word_mask"].tolist() == [[True, True], [False, False], [True, True]]


def test_words_of_the_second_text_go_on_where_those_of_the_first_end(make: Any) -> None:
    processor = make("bert_pair_mix")
    fields = {
        "tokens1": rows([5 | W, 6], [7 | W]), "tokens2": rows([8 | W, 9 | W], [5 | W, 6]),
        "words1": rows([30], [31]), "words2": rows([32, 33], [34]),
    }  # fmt: skip
    batch = processor.collate(sampled(processor, fields))["net_input"]
    assert batch["word_index"].tolist() == [[0, 1, 1, 0, 2, 3, 0], [0, 1, 0, 2, 2, 0, 0]]
    assert batch["words"].tolist() == [[30, 32, 33], [31, 34, 0]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0]]


def test_without_marks_every_token_is_a_word_and_without_words_all_are_unknown(make: Any) -> None:
    processor = make("bert_single_mix")
    batch = processor.collate(sampled(processor, {"tokens": rows([5, 6, 7])}))
    assert batch["net_input"]["word_index"].tolist() == [[0, 1, 2, 3, 0]]
    assert batch["net_input"]["words"].tolist() == [[1, 1, 1]]
    assert batch["ntokens"] == 5
