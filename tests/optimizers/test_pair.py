"""Two optimizers behave as each alone would, share one state, and obey the schedule only where asked to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run, resolve
from xdpx.engines.pytorch.optimizing import set_rates
from xdpx.optimizers.pytorch.pair import Pair

KEYS = {"optimizer": "pair", "second_optimizer": "sparse_adam", "second_learning_rate": 0.5, "learning_rate": 0.1}


def run_of(**keys: Any) -> Run:
    known = {"data_dir": "data", "save_dir": "run", "model": "bow", "loss": "cross_entropy", "embedding_dim": 4}
    known |= {"batch_size": 2, "max_epoch": 1, "eval_interval": 1, "major_metric": "acc"}
    known |= {"processor": "single", "max_len": 8}
    return resolve({**known, **KEYS, **keys}, "x-train", source="test", strict=False, paths=False)


def weights(seed: int = 1) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(3, requires_grad=True), torch.randn(4, requires_grad=True)


def pair_over(below: Tensor, memory: Tensor, **keys: Any) -> Pair:
    groups = [{"params": [below], "lr": 0.1, "name": "layers"}, {"params": [memory], "lr": 0.1, "name": "memory 3"}]
    return Pair.built(run_of(**keys), groups)


def descend(optimizer: Any, *each: Tensor) -> None:
    optimizer.zero_grad()
    torch.stack([weight.square().sum() for weight in each]).sum().backward()
    optimizer.step()


def test_each_weight_moves_as_with_its_optimizer_alone_and_goes_on_from_a_saved_state() -> None:
    below, memory = weights()
    pair = pair_over(below, memory)
    alone, other = weights()
    single = torch.optim.AdamW([alone], lr=0.1, eps=1e-6, weight_decay=0), torch.optim.Adam([other], lr=0.5, eps=1e-6)
    for number in range(4):
        if number == 2:
            saved, pair = pair.state_dict(), pair_over(below, memory)
            pair.load_state_dict(saved)
        descend(pair, below, memory)
        for optimizer, weight in zip(single, (alone, other), strict=True):
            descend(optimizer, weight)
    torch.testing.assert_close((below, memory), (alone, other))


@pytest.mark.parametrize(("follows", "rate"), [(False, 0.5), (True, 0.05)])
def test_the_second_rate_follows_the_schedule_only_where_asked(follows: bool, rate: float) -> None:
    pair = pair_over(*weights(), follow_lr_schedule=follows)
    for group in pair.param_groups:
        group["initial_lr"] = group["lr"]
    set_rates(pair, 0.1, None)
    assert [group["lr"] for group in pair.param_groups] == pytest.approx([0.01, rate])


def test_a_model_without_such_groups_is_refused_with_those_it_has() -> None:
    with pytest.raises(ConfigError, match=r"second_groups: is \['top'\].*groups: layers, memory 3"):
        pair_over(*weights(), second_groups=["top"])


def test_a_second_word_for_the_learning_rate_is_refused() -> None:
    with pytest.raises(ConfigError, match="major_learning_rate: has no effect"):
        run_of(major_learning_rate=0.3)
