from __future__ import annotations

from typing import Any

import numpy as np


def test_one_text_has_two_views_of_itself(make: Any, sampled: Any) -> None:
    processor = make("bert_cl_single")
    batch = processor.collate(sampled(processor, [[[5, 6]], [[8, 9, 11]]]))
    ids, mask = batch["net_input"]["input_ids"], batch["net_input"]["attention_mask"]
    assert ids.tolist() == [[[2, 5, 6, 3, 0]] * 2, [[2, 8, 9, 11, 3]] * 2]
    assert (mask == (ids != 0)).all()
    assert batch["ntokens"] == 18


def test_texts_of_a_row_are_padded_alike_and_their_label_is_kept(make: Any, sampled: Any) -> None:
    processor = make("bert_cl_triplet", max_len=5)
    samples = sampled(processor, [[[5], [6, 8], [9, 11, 12, 14]]], targets=[1])
    batch = processor.collate(samples, pad_multiple=8)
    assert batch["net_input"]["input_ids"][0, :, :5].tolist() == [[2, 5, 3, 0, 0], [2, 6, 8, 3, 0], [2, 9, 11, 12, 3]]
    assert batch["net_input"]["attention_mask"].shape == (1, 3, 8)
    assert batch["target"].tolist() == [1]
    assert samples.lengths.tolist() == [12]
    assert processor.full_length({"tokens1": [5], "tokens2": [6, 8], "tokens3": [9, 11, 12, 14]}) == 6


def test_a_batch_is_cut_between_rows(make: Any, sampled: Any) -> None:
    processor = make("bert_cl_pair")
    batch = processor.collate(sampled(processor, [[[5], [6]], [[8], [9, 11]]]))
    halves = processor.split(batch, 2)
    together = np.concatenate([half["net_input"]["input_ids"] for half in halves])
    assert together.tolist() == batch["net_input"]["input_ids"].tolist()
