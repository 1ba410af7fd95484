"""Products keep every digit under autocast, and nothing waits for the device."""

from __future__ import annotations

import pytest
import torch

from xdpx.losses import losses
from xdpx.losses.arithmetic import DeviceConstant, product, scaled_scores, tally
from xdpx.losses.contrast import contrast
from xdpx.losses.minilm import divergence, relation
from xdpx.losses.tinybert import score_gap
from xdpx.models.pytorch.modules.activations import Heads

HALVES = pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
MASK = torch.tensor([[True, True, True], [True, True, False]])


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@HALVES
def test_products_are_not_rounded(kind: torch.dtype) -> None:
    left, right = vectors(5, 64), vectors(64, 5, seed=1)
    with torch.autocast("cpu", dtype=kind):
        found = product(left, right)
    assert torch.equal(found, left @ right)


@HALVES
def test_relations_and_attention_scores_are_compared_as_in_full_precision(kind: torch.dtype) -> None:
    ours, theirs = (Heads(*(30 * vectors(2, 2, 3, 4, seed=seed + n) for n in range(3))) for seed in (0, 5))

    def found() -> list[torch.Tensor]:
        relations = (relation(each.query, each.key, MASK) for each in (theirs, ours))
        return [divergence(*relations, MASK), score_gap(ours, theirs, MASK), scaled_scores(ours.query, ours.key)]

    wanted = found()
    with torch.autocast("cpu", dtype=kind):
        assert all(map(torch.equal, found(), wanted))


@HALVES
@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_rows_are_as_near_to_classes_as_in_full_precision(kind: torch.dtype, distance: str) -> None:
    loss = losses["fewshot"](losses["fewshot"].Parameters(distance=distance))
    rows = vectors(4, 256) + 4.0  # far from the origin, so that distances are small beside squares
    wanted = loss.nearness(rows, rows + 0.01)
    with torch.autocast("cpu", dtype=kind):
        assert torch.equal(loss.nearness(rows, rows + 0.01), wanted)


@HALVES
def test_contrasts_are_as_sharp_as_in_full_precision(kind: torch.dtype) -> None:
    first, second = vectors(4, 16), vectors(4, 16, seed=1)
    wanted, _ = contrast(first, second, temperature=0.05)
    with torch.autocast("cpu", dtype=kind):
        assert torch.equal(contrast(first, second, temperature=0.05)[0], wanted)


def test_a_tally_is_a_bincount() -> None:
    index = torch.tensor([3, 0, 3, 1])
    assert tally(index, 5).tolist() == torch.bincount(index, minlength=5).tolist()
    assert tally(index[:0], 2).tolist() == [0.0, 0.0]


def test_a_constant_is_copied_to_a_place_once() -> None:
    constant = DeviceConstant([1, 2.5])
    first = constant.like(torch.zeros(3))
    assert first.tolist() == [1.0, 2.5]
    assert constant.like(torch.zeros(7)) is first
    assert constant.like(torch.zeros(3, dtype=torch.float64)).dtype == torch.float64
