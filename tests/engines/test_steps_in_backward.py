"""Optimizers that step within the backward pass (LOMO), on the engine."""

import pytest
import torch

from tests.engines.test_engine import BATCHES, same
from tests.engines.test_own_average import engine, train
from xdpx.config.faults import ConfigError
from xdpx.optimizers.lr_schedulers import Linear


class Lomo(torch.optim.Optimizer):
    """SGD that moves each weight as soon as its gradient is there, with the interface of lomo_optim."""

    def __init__(self, weights, lr):
        super().__init__(weights, {"lr": lr})
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.requires_grad:
                    weight.register_post_accumulate_grad_hook(self._move)

    def _move(self, weight):
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=self.rate)
        weight.grad = None

    def fused_backward(self, loss, lr):
        self.rate = lr
        loss.backward()

    def step(self, closure=None):
        raise NotImplementedError


def falling():
    return Linear(Linear.Parameters(), total_steps=8)


def test_it_takes_the_updates_of_plain_descent_and_follows_the_schedule():
    both = []
    for kind in (Lomo, torch.optim.SGD):
        chosen = engine(kind, schedule=falling())
        both.append(chosen.snapshot(train(chosen, chosen.start(1), 0, 6))["model"])
    assert all(torch.allclose(both[0][name], both[1][name], atol=1e-6) for name in both[1])


def test_a_resumed_training_has_the_bits_of_the_undisturbed_one():
    chosen = engine(Lomo, schedule=falling())
    undisturbed = chosen.snapshot(train(chosen, chosen.start(1), 0, 6))
    saved = chosen.snapshot(train(chosen, chosen.start(1), 0, 3))
    assert same(chosen.snapshot(train(chosen, chosen.restore(saved), 3, 6)), undisturbed)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"clip_norm": 1.0}, "clip_norm"),
        ({"precision": "fp16"}, "fp16"),
        ({"nonfinite_steps": "skip"}, "nonfinite_steps"),
    ],
)
def test_what_would_come_too_late_is_refused_beforehand(options, key):
    with pytest.raises(ConfigError, match=rf"{key}.*: is .*, but the optimizer steps within the backward pass"):
        engine(Lomo, **options).start(1)


def test_it_does_not_accumulate():
    chosen = engine(Lomo)
    with pytest.raises(ConfigError, match="update_freq: is 2, but the optimizer steps within"):
        chosen.update(chosen.start(1), BATCHES[:2])
