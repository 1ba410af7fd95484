"""Blocks of local training are filtered into one model; journeys/test_many_devices.py trains by them."""

from __future__ import annotations

import torch

from xdpx.engines.pytorch.strategies.blocks import BlockOptions, block_update

GLOBAL_P, LOCAL_P, VELOCITY_P = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 4.0]), torch.tensor([0.25, -1.0])


def test_without_momentum_the_average_is_the_model() -> None:
    new_P, velocity_P = block_update(LOCAL_P, GLOBAL_P, VELOCITY_P, options=BlockOptions(momentum=0.0))
    assert torch.equal(new_P, LOCAL_P)
    assert torch.equal(velocity_P, GLOBAL_P - LOCAL_P)


def test_momentum_carries_the_changes_of_earlier_blocks_on() -> None:
    options = BlockOptions(learning_rate=0.5, momentum=0.5)
    new_P, velocity_P = block_update(LOCAL_P, GLOBAL_P, VELOCITY_P, options=options)
    assert velocity_P.tolist() == [0.5 * 0.25 + 0.5 * 0.5, 0.5 * -1.0 + 0.5 * -2.0]
    assert torch.equal(new_P, GLOBAL_P - velocity_P)


def test_nesterov_begins_the_next_block_where_the_momentum_leads() -> None:
    plain, velocity_P = block_update(LOCAL_P, GLOBAL_P, VELOCITY_P, options=BlockOptions(momentum=0.5))
    ahead, same_P = block_update(LOCAL_P, GLOBAL_P, VELOCITY_P, options=BlockOptions(momentum=0.5, nesterov=True))
    assert torch.equal(same_P, velocity_P)
    assert torch.equal(ahead, plain - 0.5 * velocity_P)
