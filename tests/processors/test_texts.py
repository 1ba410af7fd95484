"""Texts as ids without special tokens: one, two, or one together with its text."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.loaders import marks
from xdpx.processors import processors
from xdpx.processors.samples import Ragged, Samples
from xdpx.tokenizers.vocabulary import Vocabulary


def test_a_batch_is_padded_to_its_longest_text_and_says_what_is_padding(make: Any, sampled: Any) -> None:
    processor = make("single")
    batch = processor.collate(sampled(processor, [[[5, 6, 8]], [[9]]], targets=[1, 0]))
    assert batch["net_input"]["tokens"].tolist() == [[5, 6, 8], [9, 0, 0]]
    assert batch["net_input"]["mask"].tolist() == [[True, True, True], [True, False, False]]
    assert batch["target"].tolist() == [1, 0]
    assert batch["id"].tolist() == [0, 1]
    assert batch["ntokens"] == 4


def test_a_batch_without_labels_has_no_target(make: Any, sampled: Any) -> None:
    processor = make("single")
    assert "target" not in processor.collate(sampled(processor, [[[5]]]))


@pytest.mark.parametrize(("multiple", "least", "width"), [(1, 1, 3), (8, 1, 8), (1, 5, 5), (4, 5, 8), (3, 1, 3)])
def test_widths_follow_min_len_and_the_multiple(make: Any, sampled: Any, multiple: int, least: int, width: int) -> None:
    processor = make("single", min_len=least)
    batch = processor.collate(sampled(processor, [[[5, 6, 8]]]), pad_multiple=multiple)
    assert batch["net_input"]["tokens"].shape == (1, width)


def test_a_long_text_is_cut_and_an_empty_one_becomes_unknown(make: Any) -> None:
    processor = make("single", max_len=2)
    assert processor.numerize({"tokens": [5, 6, 7]}, 3) == {"tokens": [5, 6], "length": 2, "target": 3}
    assert processor.numerize({"tokens": []}, None) == {"tokens": [1], "length": 1}
    assert processor.full_length({"tokens": [5, 6, 7]}) == 3


def test_a_sample_reads_as_text(make: Any) -> None:
    assert make("single").decode({"tokens": [5, 7, 1]}) == "w5 ##7 [UNK]"


def test_meta_says_what_training_needs_without_the_vocabulary(make: Any) -> None:
    processor = make("single", max_len=9)
    assert processor.meta() == {
        "max_len": 9, "min_len": 1, "pad_word": "[PAD]", "unk_word": "[UNK]", "pad_index": 0, "vocab_size": 105,
    }  # fmt: skip
    again = type(processor)(type(processor).Parameters(**processor.meta()))
    assert again.pad_index == 0


def test_a_padding_word_that_nobody_knows_is_the_users_fault(make: Any) -> None:
    with pytest.raises(ConfigError, match=r"pad_index: the id of '<pad>' is not known: the vocabulary lacks it"):
        make("single", pad_word="<pad>")


def test_min_len_above_max_len_is_a_conflict(make: Any) -> None:
    parameters = make("single").Parameters(max_len=4, min_len=5)
    assert parameters.conflicts() == [("min_len", "is 5, above max_len 4. Use at most 4.")]


def test_one_batch_is_what_its_samples_are_alone(make: Any, sampled: Any, blocks: Any) -> None:
    processor = make("single", max_len=20)
    samples = sampled(processor, blocks)
    batch = processor.collate(samples)["net_input"]
    for index, ((row,), tokens, mask) in enumerate(zip(blocks, batch["tokens"], batch["mask"], strict=True)):
        assert tokens[mask].tolist() == row[:20]
        alone = processor.collate(samples.take(np.array([index])))
        assert alone["net_input"]["tokens"][0].tolist() == row[:20]


def test_each_text_of_a_pair_is_padded_by_itself(make: Any, sampled: Any) -> None:
    processor = make("pair")
    batch = processor.collate(sampled(processor, [[[5, 6, 8], [9]], [[9], [5, 6]]], targets=[1, 0]))
    net_input = batch["net_input"]
    assert net_input["tokens1"].tolist() == [[5, 6, 8], [9, 0, 0]]
    assert net_input["tokens2"].tolist() == [[9, 0], [5, 6]]
    assert net_input["mask1"].sum(1).tolist() == [3, 1]
    assert net_input["mask2"].sum(1).tolist() == [1, 2]
    assert batch["ntokens"] == 7


def test_each_text_of_a_pair_may_be_as_long_as_max_len(make: Any) -> None:
    processor = make("pair", max_len=2)
    sample = processor.numerize({"tokens1": [5, 6, 8], "tokens2": []}, 1)
    assert sample == {"tokens1": [5, 6], "tokens2": [1], "length": 3, "target": 1}
    assert processor.full_length({"tokens1": [5, 6, 8], "tokens2": []}) == 3
    assert processor.lacks_text({"tokens1": [5, 6, 8], "tokens2": []})


def test_the_worked_example_of_the_documentation_holds(make: Any) -> None:
    # spec, appendix C: "how are you<TAB>hi<TAB>1"
    sample = make("pair").numerize({"tokens1": [4, 5, 6], "tokens2": [7]}, 1)
    assert (sample["tokens1"], sample["tokens2"], sample["target"]) == ([4, 5, 6], [7], 1)


def test_a_pair_reads_as_two_texts(make: Any) -> None:
    assert make("pair").decode({"tokens1": [5], "tokens2": [6]}) == "w5 | w6"


WORDS = ["[PAD]", "[UNK]", "good", "film", "##s"]


def batch_of(name: str, *rows: list[int]) -> tuple[Any, dict[str, Any]]:
    kind = processors[name]
    made = kind(kind.Parameters(max_len=3), vocabulary=Vocabulary(WORDS))
    ids = Ragged(np.array([*chain(*rows)], np.int32), np.cumsum([0, *map(len, rows)]))
    columns, _ = made.numerize_many({"tokens": ids}, None)
    return made, made.collate(Samples(columns))


def test_a_text_is_its_tokens_with_spaces_cut_as_its_ids_are() -> None:
    made, batch = batch_of("string", [2, 3], [2, 3, 3, 3], [])
    assert batch["string"].tolist() == ["good film", "good film film", "[UNK]"]
    assert [part["string"].tolist() for part in made.split(batch, 2)] == [["good film"], ["good film film", "[UNK]"]]


def test_the_space_stands_between_words_of_segmented_text() -> None:
    start = marks.WORD_START
    made, batch = batch_of("string_mix", [2 | start, 3 | start, 4])
    assert batch["string"].tolist() == ["good films"]
    assert batch["net_input"]["tokens"].tolist() == [[2, 3, 4]]
    assert batch["word_start"].tolist() == [[True, True, False]]
    assert made.decode({"tokens": [2 | start, 3 | start, 4]}) == "good films"
