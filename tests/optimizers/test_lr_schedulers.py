import json
import math

import pytest
import torch

from xdpx.optimizers.lr_schedulers import lr_schedulers
from xdpx.optimizers.pytorch.scheduling import scheduler_for


def schedule(name, total_steps=100, **keys):
    kind = lr_schedulers[name]
    return kind(kind.Parameters(**keys), total_steps=total_steps)


def test_constant_never_changes():
    assert [schedule("constant").factor(step) for step in (1, 50, 1000)] == [1.0, 1.0, 1.0]


def test_warmup_constant_rises_in_a_straight_line_and_stays():
    found = [schedule("warmup_constant", warmup_steps=10, div_factor=25.0).factor(step) for step in (0, 5, 10, 99)]
    assert found == pytest.approx([0.04, 0.52, 1.0, 1.0])


def test_warmup_constant_without_warmup_is_constant():
    assert schedule("warmup_constant").factor(1) == 1.0


def test_exponential_decay_goes_down_in_stairs_after_the_warmup():
    decay = schedule("exponential_decay", warmup_steps=4, decay_rate=0.5, decay_steps=10, div_factor=2.0)
    assert [decay.factor(step) for step in (0, 2, 4, 13, 14, 24)] == [0.5, 0.75, 1.0, 1.0, 0.5, 0.25]


def test_one_cycle_starts_and_ends_at_the_lowest_rate_and_peaks_after_the_warmup():
    cycle = schedule("one_cycle", warmup_steps=10)
    assert cycle.factor(0) == pytest.approx(1 / 600)
    assert cycle.factor(10) == 1.0
    assert cycle.factor(55) == pytest.approx(1 / 600 + (1 - 1 / 600) / 2)
    assert cycle.factor(100) == pytest.approx(1 / 600)


WITH_WARMUP = [name for name in lr_schedulers if "warmup_steps" in lr_schedulers[name].Parameters.model_fields]
NEEDED = {
    "cosine_with_min_lr": {"min_lr_rate": 0.1},
    "cosine_warmup_with_min_lr": {"min_lr_rate": 0.1},
    "warmup_stable_decay": {"num_decay_steps": 0.2},
}


@pytest.mark.parametrize("name", WITH_WARMUP)
def test_every_warmup_may_be_a_share_of_all_updates(name):
    share, count = (schedule(name, warmup_steps=steps, **NEEDED.get(name, {})) for steps in (0.1, 10))
    assert [share.factor(step) for step in range(1, 101)] == [count.factor(step) for step in range(1, 101)]


JUDGED = {"learning_rate": 0.02, "eval_interval": 5, "patience": 1, "factor": 0.5, "cooldown": 1}
SCORES = [0.5, 0.6, 0.6, 0.6, 0.59, 0.7, 0.8, 0.81, 0.9, 0.1, 0.1, 0.1, 0.1, 0.1]


@pytest.mark.parametrize("name", ["reduce_lr_on_plateau", "greedy"])
@pytest.mark.parametrize("ascending", [True, False])
def test_a_schedule_that_waits_for_scores_has_the_rates_of_the_trainer(name, ascending):
    ours = schedule(name, **JUDGED, ascending_metric=ascending, min_lr_rate=0.1)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.02)
    bounds = {"min_lr": 0.002} | ({"max_lr": 0.2} if name == "greedy" else {})
    kept = {"patience": 1, "factor": 0.5, "cooldown": 1, "mode": "max" if ascending else "min", **bounds}
    theirs = scheduler_for(name, optimizer, 0, 100, kept)
    factors = set()
    for score in SCORES:
        ours.take_score(score)
        theirs.step(score)
        factors.add(ours.factor(7))
        assert 0.02 * ours.factor(7) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
    assert len(factors) > 1


@pytest.mark.parametrize(("name", "more"), [("reduce_lr_on_plateau", {}), ("greedy", {"smooth": True})])
def test_a_schedule_that_waits_for_scores_goes_on_as_if_nothing_had_happened(name, more):
    undisturbed, before, after = (schedule(name, **JUDGED, **more) for _ in range(3))
    for score in SCORES[:6]:
        before.take_score(score)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    for score in SCORES[:6]:
        undisturbed.take_score(score)
    for score in SCORES[6:]:
        assert after.factor(1) == undisturbed.factor(1)
        undisturbed.take_score(score)
        after.take_score(score)
    assert after.state_dict() == undisturbed.state_dict()


def test_settings_that_were_changed_hold_when_a_schedule_goes_on():
    before, after = (
        schedule("reduce_lr_on_plateau", **JUDGED),
        schedule("reduce_lr_on_plateau", **JUDGED | {"factor": 0.1}),
    )
    for score in (0.5, 0.4, 0.4):
        before.take_score(score)
    after.load_state_dict(before.state_dict())
    assert after.factor(1) == 0.5
    for score in (0.4, 0.4, 0.4, 0.4):
        after.take_score(score)
    assert after.factor(1) == pytest.approx(0.05)


def test_a_schedule_that_waits_for_scores_that_never_come_is_refused():
    kind = lr_schedulers["greedy"].Parameters
    assert kind(eval_interval=5).conflicts() == []
    assert [key for key, _ in kind(eval_interval=-1).conflicts()] == ["eval_interval"]


def test_the_parts_of_warmup_stable_decay_may_be_shares():
    parts = schedule("warmup_stable_decay", warmup_steps=0.1, num_decay_steps=0.2, decay_type="linear")
    assert [parts.factor(number) for number in (1, 11, 81, 91)] == pytest.approx([0.0, 1.0, 1.0, 0.5])
    decays = schedule("warmup_stable_decay", num_decay_steps=1.0, decay_type="linear")
    assert [decays.factor(number) for number in (1, 51)] == pytest.approx([1.0, 0.5])


@pytest.mark.parametrize(
    ("keys", "halfway"),
    [
        ({"anneal_strategy": "linear"}, 0.25),
        ({"anneal_strategy": "cosine"}, (1 - math.cos(math.pi / 4)) / 2),
        ({"anneal_strategy": "polynomial", "anneal_p": 2.0}, 0.0625),
    ],
)
def test_one_cycle_uses_the_same_curve_up_and_down(keys, halfway):
    cycle = schedule("one_cycle", warmup_steps=20, div_factor=1e9, **keys)
    assert cycle.factor(5) == pytest.approx(halfway, abs=1e-6)
    assert cycle.factor(80) == pytest.approx(halfway, abs=1e-6)


def test_one_cycle_moves_the_first_beta_against_the_rate():
    cycle = schedule("one_cycle", warmup_steps=10, cycle_momentum=True)
    assert [cycle.momentum(step) for step in (0, 5, 10, 100)] == pytest.approx([0.9, 0.875, 0.85, 0.9])
    assert schedule("one_cycle", warmup_steps=10).momentum(5) is None


def test_one_cycle_stays_at_the_end_when_training_goes_on():
    assert schedule("one_cycle", warmup_steps=10).factor(150) == pytest.approx(1 / 600)


@pytest.mark.parametrize("name", WITH_WARMUP)
def test_one_and_a_half_steps_of_warmup_are_refused(name):
    parameters = lr_schedulers[name].Parameters(warmup_steps=1.5, **NEEDED.get(name, {}))
    assert "warmup_steps" in dict(parameters.conflicts())
