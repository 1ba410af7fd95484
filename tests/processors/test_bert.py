from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.processors.bert import balanced_cut


def test_a_text_stands_between_its_special_tokens(make: Any, sampled: Any) -> None:
    processor = make("bert_single")
    batch = processor.collate(sampled(processor, [[[5, 6, 8]], [[]]], targets=[1, 0]), pad_multiple=8)
    assert batch["net_input"]["input_ids"].tolist() == [[2, 5, 6, 8, 3, 0, 0, 0], [2, 3, 0, 0, 0, 0, 0, 0]]
    assert batch["net_input"]["attention_mask"].sum(1).tolist() == [5, 2]
    assert batch["ntokens"] == 7


def test_a_long_text_keeps_room_for_its_special_tokens(make: Any) -> None:
    processor = make("bert_single", max_len=4)
    assert processor.numerize({"tokens": [5, 6, 8]}, None) == {"input_ids": [2, 5, 6, 3], "length": 4}
    assert processor.full_length({"tokens": [5, 6, 8]}) == 5


def test_token_types_tell_the_second_text_from_the_first_and_from_padding(make: Any, sampled: Any) -> None:
    processor = make("bert_pair")
    batch = processor.collate(sampled(processor, [[[5, 6], [8]], [[5], []]]))["net_input"]
    assert batch["input_ids"].tolist() == [[2, 5, 6, 3, 8, 3], [2, 5, 3, 3, 0, 0]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 0, 0]]
    assert batch["attention_mask"].tolist() == [[True] * 6, [True] * 4 + [False] * 2]


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 20))
def test_pairs_are_cut_as_if_token_by_token_off_the_longer_text(first: int, second: int, room: int) -> None:
    expected = [first, second]
    while sum(expected) > room:
        expected[0 if expected[0] > expected[1] else 1] -= 1
    kept = balanced_cut(np.array([first]), np.array([second]), room)
    assert [int(kept[0][0]), int(kept[1][0])] == expected


def test_a_long_pair_is_cut_to_max_len(make: Any) -> None:
    sample = make("bert_pair", max_len=8).numerize({"tokens1": [5] * 9, "tokens2": [6] * 2}, 0)
    assert sample == {"input_ids": [2, 5, 5, 5, 3, 6, 6, 3], "second_start": 5, "length": 8, "target": 0}


def test_two_separators_may_stand_between_two_texts(make: Any) -> None:
    pair, question = (make(name, max_len=9, separators=2) for name in ("bert_pair", "bert_qa"))
    sample = pair.numerize({"tokens1": [5] * 9, "tokens2": [6] * 2}, 0)
    assert sample == {"input_ids": [2, 5, 5, 5, 3, 3, 6, 6, 3], "second_start": 6, "length": 9, "target": 0}
    assert pair.full_length({"tokens1": [5] * 9, "tokens2": [6] * 2}) == 15
    found = question.numerize({"question": [5], "context": [6, 8]}, None)
    assert (found["input_ids"], found["second_start"]) == ([2, 5, 3, 3, 6, 8, 3], 4)
    assert pair.meta()["separators"] == 2
    assert "separators" not in make("bert_pair").meta()


@pytest.mark.parametrize("multiple", [1, 8])
def test_a_batch_of_pairs_is_what_a_loop_over_its_samples_gives(
    make: Any, sampled: Any, blocks: Any, multiple: int
) -> None:
    processor = make("bert_pair", max_len=24)
    samples = sampled(processor, [[first, second] for (first,), (second,) in zip(blocks, blocks[::-1], strict=True)])
    batch = processor.collate(samples, pad_multiple=multiple)["net_input"]
    rows = [samples.sample(index) for index in range(len(samples))]
    width = -(-max(len(row["input_ids"]) for row in rows) // multiple) * multiple
    for index, row in enumerate(rows):
        ids, padding = row["input_ids"], width - len(row["input_ids"])
        assert batch["input_ids"][index].tolist() == ids + [0] * padding
        assert batch["attention_mask"][index].tolist() == [True] * len(ids) + [False] * padding
        types = [int(place >= row["second_start"]) for place in range(len(ids))]
        assert batch["token_type_ids"][index].tolist() == types + [0] * padding


def test_max_len_without_room_for_text_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match="max_len: is 3, but 3 of these tokens are special ones. Use at least 4"):
        make("bert_pair", max_len=3)


def test_special_ids_can_come_from_the_meta_instead_of_a_vocabulary(make: Any, sampled: Any) -> None:
    made = make("bert_pair")
    again = type(made)(type(made).Parameters(**made.meta()))
    samples = sampled(made, [[[5], [6]]])
    assert again.collate(samples)["net_input"]["input_ids"].tolist() == [[2, 5, 3, 6, 3]]
