from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.loaders.marks import WORD_START
from xdpx.processors.bert_lm import BertLMProcessor
from xdpx.processors.samples import Ragged, Samples
from xdpx.tokenizers.vocabulary import Vocabulary


def test_what_must_be_guessed_is_named_by_its_place_in_the_batch(make: Any, sampled: Any, blocks: Any) -> None:
    processor = make("bert_lm", max_len=32)
    batch = processor.collate(sampled(processor, blocks), epoch=1, seed=1, training=True)
    input_ids, places = batch["net_input"]["input_ids"], batch["net_input"]["masked_positions"]
    assert (np.diff(places) > 0).all()
    restored = input_ids.copy()
    restored.ravel()[places] = batch["target"]
    for (row,), shown in zip(blocks, restored, strict=True):
        assert shown[: len(row) + 2].tolist() == [2, *row, 3]
        assert not shown[len(row) + 2 :].any()


def test_padding_and_special_tokens_are_never_guessed(make: Any, sampled: Any, blocks: Any) -> None:
    processor = make("bert_lm", max_len=32, mask_prob=1.0, max_predictions=1.0)
    batch = processor.collate(sampled(processor, blocks), pad_multiple=8)
    mask = batch["net_input"]["attention_mask"]
    assert len(batch["target"]) == mask.sum() - 2 * len(blocks) == sum(len(row) for (row,) in blocks)
    assert batch["target"].min() >= 5
    assert mask.shape[1] == 32
    assert batch["ntokens"] == mask.sum()


def test_masks_change_with_the_epoch_and_the_seed_and_with_nothing_else(make: Any, sampled: Any, blocks: Any) -> None:
    processor = make("bert_lm", max_len=32)
    samples = sampled(processor, blocks)

    def places(epoch: int, seed: int) -> list[int]:
        return processor.collate(samples, epoch=epoch, seed=seed)["net_input"]["masked_positions"].tolist()

    assert places(1, 1) == places(1, 1)
    assert places(1, 1) != places(2, 1)
    assert places(1, 1) != places(1, 2)
    assert places(2, 1) != places(1, 2)


def test_random_replacements_are_never_special_tokens(make: Any, sampled: Any, blocks: Any) -> None:
    options = {"mask_prob": 1.0, "max_predictions": 1.0, "random_token_prob": 1.0, "leave_unmasked_prob": 0.0}
    processor = make("bert_lm", max_len=32, **options)
    samples = sampled(processor, blocks * 20)
    batch = processor.collate(samples, epoch=1, seed=1)["net_input"]
    assert batch["input_ids"].ravel()[batch["masked_positions"]].min() >= 5


def test_words_are_masked_whole_unless_asked_otherwise(make: Any, sampled: Any) -> None:
    block = [[[5, 7, 10, 6, 13, 8, 9, 16, 19, 22]]]  # three words: 5 ##7 ##10, 6 ##13, 8, 9 ##16 ##19 ##22
    for whole, expected in [(True, {1, 2, 3, 4}), (False, {1})]:
        processor = make("bert_lm", mask_prob=0.01, max_predictions=10, mask_whole_words=whole)
        samples = sampled(processor, block)
        counts = {len(processor.collate(samples, epoch=epoch)["target"]) for epoch in range(60)}
        assert counts == expected


def test_replacements_drawn_by_frequency_follow_the_file(make: Any, sampled: Any, blocks: Any, tmp_path: Path) -> None:
    file = tmp_path / "counts.tsv"
    file.write_text("w6\t100\nw8\t0\n", encoding="utf-8")
    processor = make(
        "bert_lm", max_len=32, mask_prob=1.0, max_predictions=1.0, random_token_prob=1.0, leave_unmasked_prob=0.0,
        freq_weighted_replacement=str(file), token_default_count=0,
    )  # fmt: skip
    batch = processor.collate(sampled(processor, blocks), epoch=1)["net_input"]
    assert set(batch["input_ids"].ravel()[batch["masked_positions"]].tolist()) == {6}


@pytest.mark.parametrize("line", ["w6 100", "w6\tmany", "\t3", "w6\t"])
def test_a_line_that_is_no_count_is_named(make: Any, sampled: Any, tmp_path: Path, line: str) -> None:
    file = tmp_path / "counts.tsv"
    file.write_text(f"w5\t1\n{line}\n", encoding="utf-8")
    processor = make("bert_lm", freq_weighted_replacement=str(file), token_default_count=1)
    with pytest.raises(ConfigError, match=r"line 2 is .*Write `token<TAB>count`"):
        processor.collate(sampled(processor, [[[5, 6]]]))


def test_blocks_are_cut_and_short_ones_dropped_and_labels_ignored(make: Any) -> None:
    processor = make("bert_lm", max_len=5, min_len=2)
    assert processor.numerize({"tokens": [5, 6, 8, 9]}, 1) == {"input_ids": [5, 6, 8], "length": 5}
    assert processor.numerize({"tokens": [5]}, None) is None
    assert "target" not in processor.columns(labelled=True)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"leave_unmasked_prob": 0.6, "random_token_prob": 0.5}, "random_token_prob"),
        ({"max_predictions": 1.5}, "max_predictions"),
        ({"freq_weighted_replacement": "counts.tsv"}, "token_default_count"),
    ],
)
def test_settings_that_make_no_sense_together_are_conflicts(options: dict[str, Any], key: str) -> None:
    conflicts = BertLMProcessor.Parameters(max_len=8, **options).conflicts()
    assert [name for name, _ in conflicts] == [key]


def test_a_whole_number_and_a_share_stay_what_they_are() -> None:
    assert isinstance(BertLMProcessor.Parameters(max_len=8, max_predictions=1).max_predictions, int)
    assert isinstance(BertLMProcessor.Parameters(max_len=8, max_predictions=1.0).max_predictions, float)


def test_without_a_vocabulary_only_single_tokens_can_be_masked(make: Any, sampled: Any) -> None:
    made = make("bert_lm")
    samples = sampled(made, [[[5, 6, 8]]])
    known = made.meta()
    single = BertLMProcessor(BertLMProcessor.Parameters(**(known | {"mask_whole_words": False})))
    assert len(single.collate(samples)["target"]) == 1
    whole = BertLMProcessor(BertLMProcessor.Parameters(**known))
    with pytest.raises(ConfigError, match=r"mask_whole_words: needs the text of the tokens.*vocab.txt"):
        whole.collate(samples)


def test_both_texts_are_masked_and_the_label_is_told(make: Any, sampled: Any) -> None:
    processor = make("bert_supervised", max_len=12, mask_prob=1.0, max_predictions=1.0)
    samples = sampled(processor, [[[5, 6], [8, 9, 11]], [[20], [21]]], targets=[1, 0])
    batch = processor.collate(samples, epoch=1, seed=1)
    given = batch["net_input"]
    assert batch["cls_target"].tolist() == [1, 0]
    assert batch["target"].tolist() == [5, 6, 8, 9, 11, 20, 21]
    assert given["masked_positions"].tolist() == [1, 2, 4, 5, 6, 9, 11]
    assert given["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0]]


def test_the_longer_text_is_cut_and_unlabelled_pairs_have_no_class(make: Any, sampled: Any) -> None:
    processor = make("bert_supervised", max_len=8)
    samples = sampled(processor, [[[5, 6], [8, 9, 11, 12, 14]]])
    assert samples.sample(0) == {"input_ids": [5, 6, 8, 9, 11], "first_length": 2, "length": 8}
    assert "cls_target" not in processor.collate(samples)


def test_words_that_the_loader_marks_are_masked_whole(make: Any, sampled: Any) -> None:
    processor = make("bert_supervised", max_len=32, mask_prob=0.01, max_predictions=10)
    marked = [[[5 | WORD_START, 6, 8], [9 | WORD_START, 11]]]
    samples = sampled(processor, marked)
    counts = {len(processor.collate(samples, epoch=epoch)["target"]) for epoch in range(40)}
    assert counts == {2, 3}
    assert processor.decode(samples.sample(0)) == "w5 w6 w8 w9 w11"


def test_each_mask_has_a_chance_of_its_own_that_its_sample_alone_decides(make: Any, sampled: Any, blocks: Any) -> None:
    processor = make("electra", max_len=32)
    samples = sampled(processor, blocks)
    batch = processor.collate(samples, epoch=1, seed=1)
    given = batch["net_input"]
    assert (given["input_ids"].ravel()[given["masked_positions"]] == 4).all()
    assert len(set(given["noise"].tolist())) == len(batch["target"])
    alone = [processor.collate(samples.take(np.array([row])), epoch=1, seed=1) for row in range(len(samples))]
    together = np.concatenate([each["net_input"]["noise"] for each in alone])
    assert together.tolist() == given["noise"].tolist()
    assert processor.collate(samples, epoch=2, seed=1)["net_input"]["noise"].tolist() != together.tolist()


def test_a_batch_cut_in_parts_keeps_its_noise(make: Any, sampled: Any, blocks: Any) -> None:
    processor = make("electra", max_len=32)
    batch = processor.collate(sampled(processor, blocks), epoch=1, seed=1)
    parts = [part["net_input"] for part in processor.split(batch, 3)]
    assert np.concatenate([part["noise"] for part in parts]).tolist() == batch["net_input"]["noise"].tolist()
    assert all(len(part["noise"]) == len(part["masked_positions"]) for part in parts)


@pytest.mark.parametrize(("second", "told"), [("\u0120b", True), ("##b", False), ("b", False)])
def test_masking_whole_words_says_when_no_token_continues_a_word(second: str, told: bool, capsys: Any) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", second]
    processor = BertLMProcessor(BertLMProcessor.Parameters(max_len=8), vocabulary=Vocabulary(words))
    tokens = Ragged(np.array([5, 6], np.int32), np.array([0, 2]))
    columns, _ = processor.numerize_many({"tokens": tokens}, None)
    processor.collate(Samples(columns))
    assert ("mask_whole_words: is true, but in this vocabulary" in "".join(capsys.readouterr())) == told
