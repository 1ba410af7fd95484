"""Optimizers that train other weights than are scored and saved (schedule-free), on the engine."""

import pytest
import torch

from tests.engines.test_engine import BATCHES, Small, same
from tests.optimizers.schedule_free import ScheduleFree
from xdpx.config.faults import ConfigError
from xdpx.engines.pytorch.averaging import keeps_average
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.pytorch.options import EngineOptions
from xdpx.losses import losses
from xdpx.optimizers.lr_schedulers import OneCycle
from xdpx.tasks import tasks


def engine(kind=ScheduleFree, schedule=None, groups=1, **options):
    def task():
        loss = losses["cross_entropy"]
        default = tasks["default"]
        parameters = default.Parameters(model="cls_cnn", loss="cross_entropy")
        return default(parameters, model=Small(4), loss=loss(loss.Parameters()))

    def optimizer(model):
        weights = list(model.parameters())
        return kind([{"params": weights[:1]}, {"params": weights[1:]}] if groups > 1 else weights, lr=0.1)

    options = EngineOptions(device="cpu", **options)
    return PyTorchEngine(task, make_optimizer=optimizer, schedule=schedule, options=options)


def train(chosen, state, first, last, *, scores=False):
    for batch in BATCHES[first:last]:
        state, _ = chosen.update(state, [batch])
        if scores:
            chosen.score(state, batch)
            chosen.weights(state)
    return state


def kinds():
    try:
        import schedulefree
    except ImportError:
        return [ScheduleFree]
    return [ScheduleFree, schedulefree.AdamWScheduleFree, schedulefree.SGDScheduleFree, schedulefree.RAdamScheduleFree]


@pytest.mark.parametrize("kind", kinds())
def test_scoring_and_saving_change_no_bit_of_the_training(kind):
    chosen = engine(kind)
    quiet, scored = (train(chosen, chosen.start(1), 0, 8, scores=scores) for scores in (False, True))
    assert same(chosen.snapshot(quiet), chosen.snapshot(scored))


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("scores", [False, True])
def test_a_resumed_training_has_the_bits_of_the_undisturbed_one(kind, scores):
    chosen = engine(kind)
    undisturbed = chosen.snapshot(train(chosen, chosen.start(1), 0, 8))
    saved = chosen.snapshot(train(chosen, chosen.start(1), 0, 5, scores=scores))
    resumed = train(chosen, chosen.restore(saved), 5, 8)
    assert same(chosen.snapshot(resumed), undisturbed)


def test_the_average_is_scored_and_kept_and_the_other_weights_are_trained():
    chosen = engine()
    state = chosen.start(1)
    points = []
    for batch in BATCHES[:4]:
        chosen.update(state, [batch])
        points.append(state.optimizer.state[state.task.model.top.weight]["z"].clone())
    assert torch.allclose(chosen.weights(state)["top.weight"], torch.stack(points).mean(0), atol=1e-6)
    again = chosen.with_weights(chosen.weights(state))
    assert same(chosen.score(again, BATCHES[0]), chosen.score(state, BATCHES[0]))
    assert not torch.equal(chosen.snapshot(state)["model"]["top.weight"], chosen.weights(state)["top.weight"])


def test_what_does_not_go_with_an_average_of_the_optimizer_is_refused_beforehand():
    with pytest.raises(ConfigError, match=r"ema_decay: is 0.9, but ScheduleFree keeps an average of its own"):
        engine(ema_decay=0.9).start(1)
    cycle = OneCycle(OneCycle.Parameters(cycle_momentum=True), total_steps=9)
    with pytest.raises(ConfigError, match="cycle_momentum: is true, but ScheduleFree averages by its momentum"):
        engine(schedule=cycle).start(1)
    saved = engine().snapshot(train(engine(), engine().start(1), 0, 2))
    with pytest.raises(ConfigError, match="does not fit the checkpoint: other weights are trained now"):
        engine(groups=2).restore(saved)


def test_an_optimizer_that_only_looks_like_one_keeps_no_average():
    assert keeps_average(ScheduleFree([torch.zeros(1)]))
    assert not keeps_average(torch.optim.SGD([torch.zeros(1)]))
