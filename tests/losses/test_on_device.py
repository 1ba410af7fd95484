"""Counting and constants that make no host wait."""

from __future__ import annotations

import torch

from xdpx.losses.on_device import Constant, tally


def test_a_tally_is_a_bincount() -> None:
    index = torch.tensor([3, 0, 3, 1])
    assert tally(index, 5).tolist() == torch.bincount(index, minlength=5).tolist()
    assert tally(index[:0], 2).tolist() == [0.0, 0.0]


def test_a_constant_is_copied_to_a_place_once() -> None:
    constant = Constant([1, 2.5])
    first = constant.like(torch.zeros(3))
    assert first.tolist() == [1.0, 2.5]
    assert constant.like(torch.zeros(7)) is first
    assert constant.like(torch.zeros(3, dtype=torch.float64)).dtype == torch.float64
