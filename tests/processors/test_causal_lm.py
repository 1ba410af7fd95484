from __future__ import annotations

from typing import Any

import numpy as np

from xdpx.processors.samples import Ragged


def test_each_token_is_followed_by_its_target_and_nothing_follows_the_last(
    make: Any, sampled: Any, blocks: Any
) -> None:
    processor = make("causal_lm", max_len=32)
    batch = processor.collate(sampled(processor, blocks[1:]))
    ids, mask, target = (*batch["net_input"].values(), batch["target"])
    for (row,), shown, seen, wanted in zip(blocks[1:], ids, mask, target, strict=True):
        assert shown[: len(row)].tolist() == row
        assert seen.sum() == len(row)
        assert wanted[: len(row) - 1].tolist() == row[1:]
        assert (wanted[len(row) - 1 :] == -100).all()
    assert batch["ntokens"] == mask.sum()


def test_blocks_are_cut_to_max_len_and_a_single_token_is_dropped(make: Any) -> None:
    processor = make("causal_lm", max_len=4)
    tokens = Ragged(np.arange(9, dtype=np.int32), np.array([0, 6, 7, 9]))
    columns, kept = processor.numerize_many({"tokens": tokens}, None)
    assert columns["input_ids"].lengths.tolist() == columns["length"].tolist() == [4, 2]
    assert kept.tolist() == [0, 2]


def test_parts_of_a_batch_are_the_batch(make: Any, sampled: Any, blocks: Any) -> None:
    processor = make("causal_lm", max_len=32)
    batch = processor.collate(sampled(processor, blocks[1:]))
    parts = processor.split(batch, 2)
    assert len(parts) == 2
    np.testing.assert_array_equal(np.concatenate([part["target"] for part in parts]), batch["target"])
    assert sum(part["ntokens"] for part in parts) == batch["ntokens"]
