from __future__ import annotations

from typing import Any

from xdpx.loaders.marks import WORD_START


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
