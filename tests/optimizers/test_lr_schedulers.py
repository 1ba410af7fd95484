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


def test_one_cycle_takes_a_warmup_as_a_share_of_all_updates():
    assert [schedule("one_cycle", warmup_steps=0.1).factor(step) for step in range(101)] == [
        schedule("one_cycle", warmup_steps=10).factor(step) for step in range(101)
    ]


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


def test_one_cycle_refuses_one_and_a_half_steps_of_warmup():
    assert "warmup_steps" in dict(lr_schedulers["one_cycle"].Parameters(warmup_steps=1.5).conflicts())
