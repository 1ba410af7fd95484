from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from xdpx.optimizers.pytorch.given import Given
from xdpx.optimizers.pytorch.scheduling import scheduler_for


def weight() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(2))


def steps(optimizer: Any, scheduler: Any, count: int) -> None:
    for _ in range(count):
        optimizer.param_groups[0]["params"][0].grad = torch.ones(2)
        optimizer.step()
        scheduler.step()


def resumed(old: tuple[Any, Any], new: tuple[Any, Any], ratio: float = 1.0) -> None:
    given = Given(*new)
    for one, other in zip(new, old, strict=True):
        one.load_state_dict(other.state_dict())
    given.put_back(ratio)


def test_the_rate_is_that_of_the_new_schedule_at_the_step_that_was_reached() -> None:
    optimizer = AdamW([weight()], lr=1.0, betas=(0.5, 0.9), weight_decay=0.1)
    old = optimizer, scheduler_for("linear", optimizer, 0, 10)
    steps(*old, 5)
    optimizer = AdamW([weight()], lr=4.0, weight_decay=0.0)
    new = optimizer, scheduler_for("linear", optimizer, 0, 20)
    resumed(old, new)
    group = optimizer.param_groups[0]
    assert group["lr"] == pytest.approx(4.0 * 15 / 20)
    assert new[1].get_last_lr() == [group["lr"]]
    assert (group["betas"], group["weight_decay"], group["initial_lr"]) == ((0.9, 0.999), 0.0, 4.0)
    assert next(iter(optimizer.state.values()))["step"] == 5


def test_a_schedule_that_multiplies_as_it_goes_is_scaled() -> None:
    optimizer = SGD([weight()], lr=1.0)
    old = optimizer, StepLR(optimizer, step_size=1, gamma=0.5)
    steps(*old, 2)
    optimizer = SGD([weight()], lr=8.0)
    new = optimizer, StepLR(optimizer, step_size=1, gamma=0.1)
    resumed(old, new)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(2.0)
    steps(*new, 1)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.2)


def test_a_schedule_that_follows_a_score_keeps_its_best_and_its_reductions() -> None:
    optimizer = SGD([weight()], lr=1.0)
    old = optimizer, ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    for score in (1.0, 2.0):
        old[1].step(score)
    optimizer = SGD([weight()], lr=4.0)
    new = optimizer, ReduceLROnPlateau(optimizer, patience=3, factor=0.1)
    resumed(old, new, ratio=4.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(2.0)
    assert (new[1].best, new[1].patience, new[1].factor) == (1.0, 3, 0.1)


def test_what_an_optimizer_keeps_among_its_settings_and_is_state_stays_as_saved() -> None:
    class Counting(SGD):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, lr)
            for group in self.param_groups:
                group["k"] = 0

    optimizer = Counting([weight()], lr=1.0)
    optimizer.param_groups[0]["k"] = 7
    old = optimizer, scheduler_for("constant", optimizer, 0, 10)
    optimizer = Counting([weight()], lr=2.0)
    resumed(old, (optimizer, scheduler_for("constant", optimizer, 0, 10)))
    assert (optimizer.param_groups[0]["k"], optimizer.param_groups[0]["lr"]) == (7, 2.0)
