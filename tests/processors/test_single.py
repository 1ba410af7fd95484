from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError


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
