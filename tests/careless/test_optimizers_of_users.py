"""An optimizer that a user brings to x-train is shown what a loop written by hand would show it."""

from pathlib import Path

import pytest
import torch

from tests.careless.two_classes import prepare, train
from xdpx.config.parameters import Parameters, param
from xdpx.optimizers import optimizers
from xdpx.optimizers.pytorch.adam import Adam

HARD = {"update_freq": 2, "clip_norm": 0.05, "lr_scheduler": "one_cycle", "warmup_steps": 0.5}


class AdamOfTorch(torch.optim.AdamW):
    """The same rule as `adam`, written as the guide says."""

    class Parameters(Parameters):
        """Its keys."""

        decay: float = param(0.0, doc="Weight decay.")

    def __init__(self, parameters, *, groups):
        super().__init__(groups, eps=1e-6, weight_decay=parameters.decay)


class AdamWithAStepOfItsOwn(Adam):
    """Inherits the fast path, but takes the step by itself: the gradients must be ready for it."""

    def step(self, closure=None):
        assert all(weight.grad is None or not weight.grad.is_sparse for weight in self.param_groups[0]["params"])
        self.norms = [float(weight.grad.norm()) for weight in self.param_groups[0]["params"]]
        super().step(closure)


class NeedsClosure(torch.optim.LBFGS):
    """Computes the gradients several times."""

    def __init__(self, params, lr=0.1):
        super().__init__([weight for group in params for weight in group["params"]], lr=lr)


class Unusual(torch.optim.SGD):
    """Cannot be called in either of the two ways."""

    def __init__(self, model, rate):
        super().__init__(model.parameters(), lr=rate)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("users"))


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    own = {"of_torch": AdamOfTorch, "own_step": AdamWithAStepOfItsOwn, "plain_sgd": torch.optim.SGD,
           "needs_closure": NeedsClosure, "unusual": Unusual}  # fmt: skip
    for name, kind in own.items():
        monkeypatch.setitem(optimizers._loaded, name, kind)


def weights(folder):
    return torch.load(max(folder.glob("checkpoint-*.pt"), key=lambda path: int(path.stem.split("-")[1])))


@pytest.mark.parametrize("name", ["of_torch", "own_step"])
def test_the_same_rule_brought_by_a_user_gives_the_weights_of_ours(data, tmp_path, name):
    for optimizer in ("adam", name):
        assert train(data, tmp_path / optimizer, optimizer=optimizer, **HARD) == 0
    ours, theirs = weights(tmp_path / "adam"), weights(tmp_path / name)
    for key in ours:
        torch.testing.assert_close(theirs[key], ours[key], rtol=1e-4, atol=1e-6)


def test_torchs_own_class_trains_when_it_is_registered_as_it_is(data, tmp_path):
    assert train(data, tmp_path / "sgd", optimizer="plain_sgd", learning_rate=0.5) == 0
    assert all(weight.isfinite().all() for weight in weights(tmp_path / "sgd").values())


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        ("needs_closure", {}, "Use one that needs no closure."),
        ("unusual", {}, "cannot be called as Unusual(groups, lr=...)"),
        ("of_torch", {"optimizer": "plain_sgd", "cycle_momentum": True, "lr_scheduler": "one_cycle"}, None),
    ],
)
def test_what_cannot_be_stepped_is_told_before_anything_is_made(data, tmp_path, capfd, name, keys, words):
    code = train(data, tmp_path / "run", **{"optimizer": name, **keys})
    if words is None:  # SGD has a momentum, which takes the place of the first beta
        assert code == 0
        return
    assert code == 2
    assert words in capfd.readouterr().err
    assert not (tmp_path / "run").exists()
