from __future__ import annotations

from typing import Any

import numpy as np


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
