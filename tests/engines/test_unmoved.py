"""Trainings that change nothing, or whose updates are lost to rounding, say so once; all others stay silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.engines.test_engine import BATCHES
from tests.engines.test_own_average import engine
from xdpx.engines.pytorch.unmoved import FIRST_UPDATES, Unmoved
from xdpx.engines.rounding import UPDATES


class Idle(torch.optim.SGD):
    """An optimizer of a user whose step was never written."""

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        del closure


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, updates: int, *, skipped: bool = False, factor: float = 1.0
) -> None:
    """Take updates on random numbers; `factor` 0 makes all gradients 0."""
    unmoved = Unmoved(model.parameters(), type(optimizer).__name__)
    dtype = next(model.parameters()).dtype
    for _ in range(updates):
        unmoved.begin()
        optimizer.zero_grad()
        loss: Tensor = (model(torch.randn(8, 4, dtype=dtype)).square().mean() - 1.0).abs() * factor
        loss.backward()
        norm = torch.nn.utils.get_total_norm([each.grad for each in model.parameters() if each.grad is not None])
        optimizer.step()
        unmoved.follow(optimizer.param_groups[0]["lr"], norm, skipped=skipped)


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).to(dtype)


def warnings_of(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_a_step_that_does_nothing_is_told_of_after_ten_updates(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    train(model, Idle(model.parameters(), lr=0.25), FIRST_UPDATES - 1)
    assert "training changes nothing" not in warnings_of(capsys)
    train(model, Idle(model.parameters(), lr=0.25), UPDATES + 1)
    said = warnings_of(capsys)
    assert (
        said.count("training changes nothing: after 10 updates with learning rates of up to 0.25, all 6 weights") == 1
    )
    assert "Does step() of Idle change them?" in said


def test_a_gradient_of_zero_is_named_as_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    train(model, torch.optim.SGD(model.parameters(), lr=0.5), FIRST_UPDATES, factor=0.0)
    assert "no gradient is known. Does the loss depend on the weights" in warnings_of(capsys)


def test_one_number_that_moves_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    train(model, torch.optim.SGD([model[4].bias], lr=1e-7), UPDATES)
    assert not warnings_of(capsys)


def test_updates_that_were_skipped_or_have_no_rate_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    train(model, Idle(model.parameters(), lr=0.25), UPDATES, skipped=True)
    train(model, torch.optim.SGD(model.parameters(), lr=0.0), UPDATES)
    assert not warnings_of(capsys)


@pytest.mark.parametrize(("rate", "is_lost"), [(2e-6, True), (1e-2, False)])
def test_updates_that_rounding_undoes_are_told_of(
    capsys: pytest.CaptureFixture[str], *, rate: float, is_lost: bool
) -> None:
    model = network(torch.bfloat16)
    train(model, torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0), UPDATES)
    said = warnings_of(capsys)
    assert ("rounding undoes updates: after 100 of them" in said) is is_lost
    assert ("numbers are as before in the median of the largest bfloat16 weights" in said) is is_lost


def test_small_updates_of_whole_weights_are_not_lost(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    train(model, torch.optim.AdamW(model.parameters(), lr=2e-6), UPDATES)
    assert not warnings_of(capsys)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_head_of_two_classes_that_begins_with_zeros_moves_though_its_sum_does_not(
    capsys: pytest.CaptureFixture[str], kind: type[torch.optim.Optimizer]
) -> None:
    head = nn.Linear(4, 2)
    for weight in head.parameters():
        nn.init.zeros_(weight)
    optimizer = kind(head.parameters(), lr=0.01)  # type: ignore[call-arg]
    unmoved = Unmoved(head.parameters(), kind.__name__)
    for _ in range(FIRST_UPDATES):
        unmoved.begin()
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(torch.randn(8, 4)), torch.randint(2, (8,))).backward()
        optimizer.step()
        unmoved.follow(0.01, torch.ones(()), skipped=False)
    assert not warnings_of(capsys)


def test_tensors_of_another_kind_are_left_alone() -> None:
    lazy = nn.LazyLinear(2)
    unmoved = Unmoved([*lazy.parameters(), *network().parameters()], "SGD")
    unmoved.begin()
    unmoved.follow(0.1, torch.ones(()), skipped=False)


def test_frozen_weights_are_not_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    model[:4].requires_grad_(requires_grad=False)
    train(model, Idle(model.parameters(), lr=0.25), FIRST_UPDATES)
    assert "all 2 weights are as before" in warnings_of(capsys)


def test_the_engine_tells_of_a_users_optimizer_that_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, told in ((Idle, True), (torch.optim.SGD, False)):
        chosen = engine(kind)
        state = chosen.start(1)
        for index in range(FIRST_UPDATES):
            state, _ = chosen.update(state, [BATCHES[index % 8]])
        assert ("training changes nothing" in warnings_of(capsys)) is told
