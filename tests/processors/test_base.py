from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.processors import processors
from xdpx.processors.base import Batch, Fields, Processor, collated, samples_of
from xdpx.processors.samples import Ragged, Samples, offsets_of
from xdpx.tokenizers.vocabulary import Vocabulary

NEEDED: dict[str, dict[str, Any]] = {
    "span_corruption": {"sentinels": [5, 6]},
    "bert_cl_single_prompt": {"prompt_length": 1, "more_words": ["[unused1]"]},
}
"""What a processor must be told with the small vocabulary."""
TEXT = st.lists(st.integers(5, 104), max_size=9)


def ragged(rows: list[list[int]]) -> Ragged:
    values = np.array([value for row in rows for value in row], np.int32)
    return Ragged(values, offsets_of(np.array([len(row) for row in rows], np.int64)))


class LastWordProcessor(Processor):
    """What a user may write: one record at a time."""

    schema: ClassVar[Mapping[str, str]] = {"word": "int32"}

    def numerize(self, fields: Fields, target: int | None) -> dict[str, Any] | None:
        if not fields["tokens"]:
            return None
        return {"word": fields["tokens"][-1], "length": 1, "target": target}

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        return self._batch(samples, {"word": samples.numbers("word")}, len(samples))


def test_a_processor_for_single_records_also_takes_many(vocabulary: Any) -> None:
    processor = LastWordProcessor(LastWordProcessor.Parameters(max_len=3), vocabulary=vocabulary)
    columns, kept = processor.numerize_many({"tokens": ragged([[5, 6], [], [7]])}, np.array([1, 0, 1]))
    assert kept.tolist() == [0, 2]
    samples = Samples(columns)
    assert [samples.sample(0), samples.sample(1)] == [
        {"word": 6, "length": 1, "target": 1},
        {"word": 7, "length": 1, "target": 1},
    ]


UNFIT: list[Any] = [{}, [], {"word": 1}, 3]
UNFIT += [{"word": word, "length": 1} for word in ("a", "3", 2**40, 0.5, float("nan"), None, [1], [1, 2])]


@pytest.mark.parametrize("odd", UNFIT)
def test_a_sample_that_cannot_be_stored_is_the_fault_of_its_processor(odd: Any, vocabulary: Any) -> None:
    class Mine(LastWordProcessor):
        def numerize(self, fields: Fields, target: int | None) -> dict[str, Any] | None:
            return odd

    processor = Mine(Mine.Parameters(max_len=3), vocabulary=vocabulary)
    with pytest.raises(
        ConfigError, match=r"'Mine\.numerize' returns values that cannot be stored .* word \(int32\), length"
    ):
        processor.numerize_many({"tokens": ragged([[5, 6]])}, None)


def test_numbers_keep_their_value_in_the_store_or_are_refused_in_every_form(vocabulary: Any) -> None:
    class Mine(LastWordProcessor):
        schema: ClassVar[Mapping[str, str]] = {"word": "int32", "flags": "ragged bool", "share": "float32"}

        def numerize_many(self, fields: Any, targets: Any) -> Any:
            return answer, np.arange(2)

    made = Mine(Mine.Parameters(max_len=3), vocabulary=vocabulary)
    fields = {"tokens": ragged([[5], [6]])}
    good: dict[str, Any] = {"word": np.array([1.0, 2.0]), "flags": ragged([[0, 1], [1]])}
    good |= {"share": np.array([1, 2]), "length": np.array([1, 1])}
    answer: Any = good
    samples, _ = samples_of(made, fields, None, made.columns(labelled=False))
    assert samples.sample(0) == {"word": 1, "flags": [False, True], "share": 1.0, "length": 1}
    odd: list[dict[str, Any]] = [
        {"word": np.array([1.5, 2])}, {"flags": ragged([[2], [1]])}, {"flags": np.array([1, 0])},
        {"word": good["flags"]}, {"length": np.array([1])}, {"share": np.array([[1.0], [2.0]])},
        {"word": np.array([1, 2**31])},
    ]  # fmt: skip
    for change in odd:
        answer = {**good, **change}
        with pytest.raises(
            ConfigError, match=r"'Mine\.numerize_many' returns values that cannot be stored .* word \(int32\)"
        ):
            samples_of(made, fields, None, made.columns(labelled=False))


def test_what_is_no_batch_of_the_samples_is_the_fault_of_its_processor(vocabulary: Any) -> None:
    class Mine(LastWordProcessor):
        def collate(self, samples: Samples, **options: Any) -> Any:
            return answer

    answer: Any = None
    samples = Samples({"word": np.array([5, 6])})
    processor = Mine(Mine.Parameters(max_len=3), vocabulary=vocabulary)
    cases: list[tuple[Any, str]] = [
        (None, "NoneType"), ([1], "list"), ({}, "a batch with nothing"), ({"id": [0, 1]}, "a batch with id"),
        ({"id": [0, 1], "net_input": [1]}, "a batch with id, net_input"),
        ({"id": [0], "net_input": {}}, "the ids of 1 samples for 2"),
    ]  # fmt: skip
    for case, words in cases:
        answer = case
        with pytest.raises(ConfigError, match=rf"'Mine\.collate' returns {words}\. Return self\._batch\("):
            collated(processor, samples)
    answer = {"id": np.arange(2), "net_input": {}}
    assert collated(processor, samples) is answer


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_that_depends_on_chance_or_state_is_told_once(vocabulary: Any, capsys: Any, training: bool) -> None:
    class Mine(LastWordProcessor):
        def collate(self, samples: Samples, *, epoch: int = 0, seed: int = 0, **options: Any) -> Any:
            words = samples.columns["word"] + (np.random.default_rng().random(2) if noisy else 0.0)
            net_input = {"word": words / 0 if not noisy else words}
            return {
                "id": samples.ids,
                "net_input": net_input,
                "lists": [[1], [2, 3]],
                "unlike": [torch.ones(2).to_sparse()],
            }

    samples = Samples({"word": np.array([0, 6])})
    for noisy in (True, False):
        kind = type("Mine", (Mine,), {})
        for _ in range(2):
            with np.errstate(all="ignore"):
                collated(kind(Mine.Parameters(max_len=3), vocabulary=vocabulary), samples, training=training)
        told = capsys.readouterr().err
        assert told.count("Mine.collate makes another batch of the same samples") == noisy
        assert ("only if training is true" in told) == (noisy and not training)


def without_others(sample: Any) -> Any:
    """Leave out what a sample has of another one, by design."""
    return {name: value for name, value in sample.items() if name != "other"}


@pytest.mark.parametrize("name", list(processors))
@example([([5] * 6, [], [], [], []), ([6] * 9, [7], [], [], [])])  # what is too long may become several windows
@given(st.lists(st.tuples(TEXT, TEXT, TEXT, TEXT, TEXT), min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_many_records_become_the_samples_that_each_becomes_alone(name: str, make: Any, records: Any) -> None:
    processor = make(name, max_len=7, min_len=2, **NEEDED.get(name, {}))
    fields = dict(zip(processor.text_fields, ([*rows] for rows in zip(*records, strict=True)), strict=False))
    targets = np.arange(len(records))
    columns, kept = processor.numerize_many({field: ragged(rows) for field, rows in fields.items()}, targets)
    assert set(columns) == set(processor.columns(labelled=True))
    together = Samples(columns)
    for index in range(len(records)):
        record = {field: rows[index] for field, rows in fields.items()}
        one = {field: ragged([row]) for field, row in record.items()}
        alone, _ = processor.numerize_many(one, targets[index : index + 1])
        several = [without_others(Samples(alone).sample(window)) for window in range(len(alone["length"]))]
        assert [without_others(together.sample(place)) for place in np.flatnonzero(kept == index)] == several
        first = processor.numerize(record, index)
        assert (several[0] if several else None) == (first and without_others(first))
    assert np.all(np.diff(kept) >= 0)


def test_every_processor_names_the_special_words_it_needs() -> None:
    frame, masks = ("[CLS]", "[SEP]"), ("[CLS]", "[SEP]", "[MASK]")
    needed = {
        **dict.fromkeys(("single", "pair"), ()),
        **dict.fromkeys(("bert_single", "bert_pair", "bert_cl_single", "bert_cl_pair", "bert_cl_triplet"), frame),
        **dict.fromkeys(("bert_lm", "bert_sop", "bert_nsp", "structbert", "bert_supervised", "electra"), masks),
        "session_corpus": masks, "causal_lm": (),
        "span_corruption": ("[SEP]", *[f"<extra_id_{number}>" for number in range(100)]),
    }  # fmt: skip
    assert {name: processors[name].special_words for name in needed} == needed
    own = {name: processors[name] for name in processors.shipped if name not in needed}
    assert not [name for name, kind in own.items() if name.startswith("bert") and kind.special_words[:2] != frame]


RECORDS = [[[5, 6]], [[7, 8, 9, 10]], [[11]], [[12, 13, 14]], [[15, 16, 17, 18, 19]]]


@pytest.mark.parametrize("name", ["single", "pair", "bert_single", "bert_pair", "bert_lm"])
@pytest.mark.parametrize("parts", [1, 2, 3, 5, 64])
def test_the_parts_of_a_batch_are_together_the_batch(make: Any, sampled: Any, name: str, parts: int) -> None:
    processor = make(name)
    records = [fields * len(processor.text_fields) for fields in RECORDS]
    whole = processor.collate(sampled(processor, records, targets=range(5)), epoch=1, training=True)
    cut = processor.split(whole, parts)
    assert len(cut) == min(parts, 5)
    assert sum(part["ntokens"] for part in cut) == whole["ntokens"]
    assert np.concatenate([part["id"] for part in cut]).tolist() == whole["id"].tolist()
    assert np.concatenate([part["target"] for part in cut]).tolist() == whole["target"].tolist()
    for key, value in whole["net_input"].items():
        found = [part["net_input"][key] for part in cut]
        if key == "masked_positions":
            width = whole["net_input"]["input_ids"].shape[1]
            found = [places + int(part["id"][0]) * width for places, part in zip(found, cut, strict=True)]
        assert np.array_equal(np.concatenate(found), value)


@pytest.mark.parametrize(
    ("index", "told"), [(3, None), (5, "cls_index: is 5, which is 'the' in the vocabulary"), (4, None)]
)
def test_an_id_of_a_special_token_that_is_a_word_is_told(index: int, told: str | None, capsys: Any) -> None:
    words = Vocabulary(["[PAD]", "[UNK]", "[SEP]", "[CLS]", "<s>", "the"])
    kind = processors["bert_single"]
    kind(kind.Parameters(max_len=8, cls_index=index), vocabulary=words)
    said = "".join(capsys.readouterr())
    assert told in said if told else not said
    with pytest.raises(ConfigError, match="sep_index: is 6, but the vocabulary has 6 tokens"):
        kind(kind.Parameters(max_len=8, sep_index=6), vocabulary=words)
