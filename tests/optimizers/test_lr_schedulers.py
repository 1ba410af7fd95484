import math

import pytest

from xdpx.optimizers.lr_schedulers import lr_schedulers


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


@pytest.mark.parametrize("name", ["reduce_lr_on_plateau", "greedy"])
def test_a_schedule_that_waits_for_scores_is_refused_by_x_train_with_the_reason(name):
    ((key, problem),) = lr_schedulers[name].Parameters().conflicts()
    assert key == "lr_scheduler"
    assert "only the Trainer has" in problem


def test_the_parts_of_warmup_stable_decay_may_be_shares():
    parts = schedule("warmup_stable_decay", warmup_steps=0.1, num_decay_steps=0.2, decay_type="linear")
    assert [parts.factor(number) for number in (1, 11, 81, 91)] == pytest.approx([0.0, 1.0, 1.0, 0.5])


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
