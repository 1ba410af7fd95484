from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.loaders.marks import SENTENCE_START
from xdpx.processors.samples import Ragged, Samples, concatenate, offsets_of
from xdpx.processors.sentence_order import cuts, far_away

PLAIN = {"mask_prob": 0.01, "max_predictions": 1, "leave_unmasked_prob": 1.0, "random_token_prob": 0.0}
"""Masks that change nothing, so that the texts can be read."""


def rows(*texts: list[int]) -> Ragged:
    values = np.array([token for text in texts for token in text], np.int32)
    return Ragged(values, offsets_of(np.array([len(text) for text in texts])))


def samples_of(processor: Any, *texts: list[int]) -> Samples:
    columns, kept = processor.numerize_many({"tokens": rows(*texts)}, None)
    assert len(kept) == len(texts)
    return Samples(columns)


def parts(batch: dict[str, Any], row: int) -> tuple[list[int], list[int]]:
    """Return both parts of a row, which are what stands between [CLS], [SEP] and [SEP]."""
    given = batch["net_input"]
    ids = given["input_ids"][row][given["attention_mask"][row]]
    middle, last = np.flatnonzero(ids == 3)
    assert ids[0] == 2
    assert last == len(ids) - 1
    assert given["token_type_ids"][row].tolist() == [
        int(middle < column <= last) for column in range(len(given["token_type_ids"][row]))
    ]
    return ids[1:middle].tolist(), ids[middle + 1 : -1].tolist()


TEXTS = [[5, 6, 8, 9, 11], [20, 21, 23, 24, 26, 27], [32, 33], [50, 51, 53, 54, 56, 57, 59], [62, 63, 65]]


@pytest.mark.parametrize("name", ["bert_sop", "bert_nsp", "structbert"])
def test_the_class_says_how_the_parts_stand(make: Any, name: str) -> None:
    processor = make(name, max_len=32, **PLAIN, **({"shuffle_prob": 0.0} if name == "structbert" else {}))
    samples = samples_of(processor, *TEXTS)
    seen = set()
    for epoch in range(1, 30):
        batch = processor.collate(samples, epoch=epoch, seed=3)
        for row, order in enumerate(batch["cls_target"].tolist()):
            first, second = parts(batch, row)
            kind = processor.orders[order]
            seen.add(kind)
            other = TEXTS[(row + 2) % 5]
            if kind == "other":
                assert second == other[: len(second)]
                assert second
                assert TEXTS[row][: len(first)] == first
            else:
                assert (first + second if kind == "next" else second + first) == TEXTS[row]
                assert first
                assert second
    assert seen == set(processor.orders)
    assert processor.meta()["num_classes"] == len(processor.orders)


@pytest.mark.parametrize("name", ["bert_sop", "bert_nsp", "structbert"])
def test_a_sample_is_the_same_alone_and_among_others(make: Any, name: str) -> None:
    processor = make(name, max_len=32, mask_prob=0.4)
    samples = samples_of(processor, *TEXTS)
    batch = processor.collate(samples, epoch=2, seed=5)
    width = batch["net_input"]["input_ids"].shape[1]
    for row in range(5):
        alone = processor.collate(samples.take(np.array([row])), epoch=2, seed=5)
        assert alone["cls_target"][0] == batch["cls_target"][row]
        inner = alone["net_input"]["input_ids"][0]
        assert batch["net_input"]["input_ids"][row][: len(inner)].tolist() == inner.tolist()
        places = batch["net_input"]["masked_positions"]
        mine = places // width == row
        assert (places[mine] % width).tolist() == alone["net_input"]["masked_positions"].tolist()
        assert batch["target"][mine].tolist() == alone["target"].tolist()


@pytest.mark.parametrize("name", ["bert_sop", "structbert"])
def test_a_batch_cut_in_two_is_two_batches(make: Any, name: str) -> None:
    processor = make(name, max_len=32, mask_prob=0.4)
    batch = processor.collate(samples_of(processor, *TEXTS), epoch=1, seed=1)
    halves = processor.split(batch, 2)
    assert np.concatenate([half["cls_target"] for half in halves]).tolist() == batch["cls_target"].tolist()
    assert np.concatenate([half["target"] for half in halves]).tolist() == batch["target"].tolist()


def test_blocks_are_parted_where_sentences_begin() -> None:
    marked = rows([5 | SENTENCE_START, 6, 8 | SENTENCE_START, 9, 11 | SENTENCE_START, 12], [5, 6, 8])
    for chance, expected in [(0.0, [2, 1]), (0.49, [2, 1]), (0.51, [4, 2]), (0.99, [4, 2])]:
        assert cuts(marked, np.array([chance, chance])).tolist() == expected


def test_a_block_alone_is_never_said_to_be_from_another_text(make: Any) -> None:
    processor = make("structbert", max_len=32)
    samples = samples_of(processor, TEXTS[0])
    found = {int(processor.collate(samples, epoch=epoch)["cls_target"][0]) for epoch in range(40)}
    assert found == {0, 1}
    assert len(far_away(rows([5, 6])).values) == 0


def test_texts_of_one_token_are_dropped(make: Any) -> None:
    columns, kept = make("bert_sop").numerize_many({"tokens": rows([5], [5, 6], [], [8, 9])}, None)
    assert kept.tolist() == [1, 3]
    assert columns["length"].tolist() == [5, 5]


def test_shuffled_trigrams_hold_the_same_tokens_and_are_guessed(make: Any) -> None:
    options = {**PLAIN, "mask_prob": 0.05, "shuffle_prob": 1.0}
    processor = make("structbert", max_len=64, **options)
    text = list(range(5, 45))
    samples = concatenate([samples_of(processor, text, text[::-1])] * 2)
    batch = processor.collate(samples, epoch=1, seed=1)
    given, shown = batch["net_input"], batch["net_input"]["input_ids"].copy()
    restored = shown.copy()
    restored.ravel()[given["masked_positions"]] = batch["target"]
    assert (np.sort(shown, axis=1) == np.sort(restored, axis=1)).all()
    moved = shown.ravel()[given["masked_positions"]] != batch["target"]
    assert moved.mean() > 0.6
    never = make("structbert", max_len=64, **(options | {"shuffle_prob": 0.0}))
    assert len(never.collate(samples, epoch=1, seed=1)["target"]) < 0.2 * len(batch["target"])
