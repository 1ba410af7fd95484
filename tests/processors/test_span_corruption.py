from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.processors import processors
from xdpx.processors.randomness import key
from xdpx.processors.samples import Ragged, Samples, offsets_of
from xdpx.processors.span_corruption import SpanCorruptionProcessor, parts
from xdpx.tokenizers.vocabulary import Vocabulary

FIRST = 90
"""Sentinels are 90 and on; words are 5 to 89."""


@pytest.fixture
def build() -> Any:
    words = ["[PAD]", "[UNK]", "[SEP]", "x", "y", *[f"w{index}" for index in range(5, FIRST)]]
    vocabulary = Vocabulary([*words, *[f"<extra_id_{index}>" for index in range(10)]])

    def make(**options: Any) -> SpanCorruptionProcessor:
        kind = processors["span_corruption"]
        return kind(kind.Parameters(**{"max_len": 64, **options}), vocabulary=vocabulary)

    return make


def samples_of(processor: Any, *texts: list[int]) -> Samples:
    values = np.array([token for text in texts for token in text], np.int32)
    tokens = Ragged(values, offsets_of(np.array([len(text) for text in texts])))
    return Samples(processor.numerize_many({"tokens": tokens}, None)[0])


TEXTS = [list(range(5, 5 + size)) for size in (2, 3, 7, 20, 50, 11)]


def put_back(source: list[int], written: list[int]) -> list[int]:
    """Put what was written where its sentinel stands."""
    spans: dict[int, list[int]] = {}
    for token in written:
        if token >= FIRST:
            spans[token] = []
        else:
            spans[max(spans)].append(token)
    return [each for token in source for each in (spans[token] if token >= FIRST else [token])]


@pytest.mark.parametrize("ratio", [0.15, 0.5, 0.9])
def test_what_is_written_fits_where_it_was_taken_out(build: Any, ratio: float) -> None:
    processor = build(corrupt_span_ratio=ratio)
    for epoch in range(20):
        batch = processor.collate(samples_of(processor, *TEXTS), epoch=epoch, seed=1)
        given, target = batch["net_input"], batch["target"]
        for row, text in enumerate(TEXTS):
            source = given["input_ids"][row][given["attention_mask"][row]].tolist()
            written = target[row][target[row] != -100].tolist()
            assert source[-1] == written[-1] == 2
            assert put_back(source[:-1], written[:-1]) == text
            assert [token for token in source if token >= FIRST] == [token for token in written if token >= FIRST]
            assert source[0] == 5
            assert given["decoder_input_ids"][row][: len(written)].tolist() == [0, *written[:-1]]


def test_as_much_is_taken_out_as_was_said(build: Any) -> None:
    processor = build(corrupt_span_ratio=0.3, corrupt_span_avg_len=3.0)
    batch = processor.collate(samples_of(processor, TEXTS[4]), epoch=1)
    target = batch["target"][0]
    assert (target >= FIRST).sum() == 5
    assert ((target >= 5) & (target < FIRST)).sum() == 15


def test_a_sample_alone_and_among_others_loses_the_same_spans(build: Any) -> None:
    processor = build()
    samples = samples_of(processor, *TEXTS)
    batch = processor.collate(samples, epoch=3, seed=5)
    for row in range(len(TEXTS)):
        alone = processor.collate(samples.take(np.array([row])), epoch=3, seed=5)["target"][0]
        assert batch["target"][row][: len(alone)].tolist() == alone.tolist()
    other = processor.collate(samples, epoch=4, seed=5)["target"]
    assert other.shape != batch["target"].shape or (other != batch["target"]).any()


def test_every_way_to_cut_is_alike_likely() -> None:
    keys = np.concatenate([key(number) for number in range(6000)])
    sizes = parts(np.full(6000, 5), np.full(6000, 3), keys)
    assert (sizes.sum(axis=1) == 5).all()
    assert (sizes > 0).all()
    ways, counts = np.unique(sizes, axis=0, return_counts=True)
    assert len(ways) == 6
    assert counts.min() > 850


def test_no_more_spans_are_taken_out_than_there_are_sentinels(build: Any) -> None:
    processor = build(sentinels=[90, 91], corrupt_span_avg_len=1.0, corrupt_span_ratio=0.5)
    target = processor.collate(samples_of(processor, TEXTS[4]))["target"][0]
    assert (target >= FIRST).sum() == 2


def test_a_vocabulary_without_sentinels_is_refused() -> None:
    kind = processors["span_corruption"]
    with pytest.raises(ConfigError, match=r"sentinels: are not known.*vocab\.txt"):
        kind(kind.Parameters(max_len=8), vocabulary=Vocabulary(["[PAD]", "[UNK]", "[SEP]", "a"]))


def test_the_unused_tokens_of_bert_will_do_too() -> None:
    kind = processors["span_corruption"]
    vocabulary = Vocabulary(["[PAD]", "[unused1]", "[unused2]", "[UNK]", "[SEP]", "a"])
    known = kind(kind.Parameters(max_len=8), vocabulary=vocabulary).meta()
    assert known["sentinels"] == [1, 2]
    assert kind(kind.Parameters(**known)).eos_index == 4
