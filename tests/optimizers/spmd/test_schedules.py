import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from xdpx.optimizers.spmd import ramps, schedules

GOLDEN = json.loads((Path(__file__).parent / "goldens_optim.json").read_text())["schedules"]
SCHEDULES = {
    "LinearRampupExponentialDecay(warmup=4000,start=4001,end=300000,min_ratio=0.1,max=1)":
        ramps.LinearRampupExponentialDecay(
            warmup_steps=4000, decay_start=4001, decay_end=300000, min_ratio=0.1, max=1.0
        ),
    "LinearRampupPolynomialDecay(warmup=100,start=1000,end=10000,power=1,min_ratio=0.01,max=1)":
        ramps.LinearRampupPolynomialDecay(warmup_steps=100, decay_start=1000, decay_end=10000, max=1.0),
    "SqrtDecay(decay_start=10000)": schedules.SqrtDecay(),
    "PiecewiseConstant([100,1000],[1,.1,.01])":
        schedules.PiecewiseConstant(boundaries=[100, 1000], values=[1, 0.1, 0.01]),
    "Exponential((0,1),(1000,.1))": schedules.Exponential(limit=(1000, 0.1)),
}  # fmt: skip


def values(schedule: Any, steps: Any) -> list[float]:
    return [float(value) for value in jax.vmap(schedule)(np.asarray(steps))]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_schedule_gives_what_pax_computed(name: str) -> None:
    steps = [int(step) for step in GOLDEN[name]]
    np.testing.assert_allclose(values(SCHEDULES[name], steps), list(GOLDEN[name].values()), rtol=2e-6, atol=1e-7)


def test_cosines_go_half_a_wave() -> None:
    ramped = ramps.LinearRampupCosineDecay(warmup_steps=10, decay_start=20, decay_end=40, min_ratio=0.1, max=2.0)
    assert values(ramped, [0, 5, 10, 20, 30, 40, 99]) == pytest.approx([0, 1, 2, 2, 1.1, 0.2, 0.2])
    assert values(schedules.Cosine(total_steps=4), [0, 2, 4]) == pytest.approx([1, 0.5, 0], abs=1e-6)
    assert values(schedules.DelayedCosine(start=(2, 1.0), limit=(4, 0.5)), [0, 3, 9]) == pytest.approx([1, 0.75, 0.5])


def test_a_polynomial_bends_at_its_origin() -> None:
    at_start = schedules.Polynomial(power=2, start=(0, 0.0), limit=(10, 1.0))
    at_limit = schedules.Polynomial(power=2, start=(0, 0.0), limit=(10, 1.0), origin="limit")
    assert values(at_start, [5, 20]) == pytest.approx([0.25, 1])
    assert values(at_limit, [5, 20]) == pytest.approx([0.75, 1])
    assert values(schedules.Linear(start=(2, 1.0), limit=(4, 3.0)), [0, 3, 4]) == pytest.approx([1, 2, 3])


def test_the_transformer_schedule_peaks_at_the_end_of_its_warm_up() -> None:
    schedule = schedules.Transformer(warmup_steps=4, model_dim=16)
    assert values(schedule, [0, 3, 15]) == pytest.approx([0.25 * 4**-1.5, 0.25 * 0.5, 0.25 * 0.25])
    assert values(ramps.LinearRampupSqrtDecay(peak=2.0, warmup_steps=4), [2, 4, 16]) == pytest.approx([1, 2, 1])


def test_half_lives_end_at_the_least_share() -> None:
    schedule = schedules.ContinuousSchedule(start_step=10, half_life_steps=5, min=0.1)
    assert values(schedule, [0, 10, 15, 20, 1000]) == pytest.approx([1, 1, 0.5, 0.25, 0.1])


def test_stretches_count_from_their_own_beginning_and_turns_from_the_run_s() -> None:
    line = schedules.Linear.HParams(start=(0, 0.0), limit=(10, 1.0))
    level = schedules.Constant.HParams(value=5.0)
    pieces = ramps.PiecewiseSchedule(boundaries=[4], schedules=[level, line])
    turns = ramps.CycleSchedule(schedules=[level, line], steps=[2, 2])
    assert values(pieces, [0, 3, 4, 6]) == pytest.approx([5, 5, 0, 0.2])
    assert values(turns, [0, 1, 2, 3, 4, 7]) == pytest.approx([5, 5, 0.2, 0.3, 5, 0.7])


def test_a_ramp_ends_in_stretches() -> None:
    schedule = ramps.LinearRampupPiecewiseConstant(boundaries=[4, 8], values=[1.0, 0.1])
    assert values(schedule, [0, 2, 4, 7, 8]) == pytest.approx([0, 0.5, 1, 1, 0.1])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: schedules.Linear(start=(5, 1.0), limit=(5, 2.0)), "Put limit after start"),
        (lambda: schedules.Polynomial(origin="begin"), "Use 'start' or 'limit'"),
        (lambda: schedules.Exponential(limit=(9, 0.0)), "above 0"),
        (lambda: schedules.PiecewiseConstant(boundaries=[1], values=[1.0]), "Give 2 values"),
        (lambda: ramps.LinearRampupCosineDecay(warmup_steps=9, decay_start=3, decay_end=10, max=1.0), "must rise"),
        (lambda: ramps.LinearRampupExponentialDecay(decay_end=9, max=1.0, min_ratio=0.0), "above 0"),
        (lambda: ramps.LinearRampupSqrtDecay(warmup_steps=0), "above 0"),
        (lambda: schedules.Transformer(warmup_steps=0), "above 0"),
        (lambda: schedules.SqrtDecay(decay_start=0), "above 0"),
        (lambda: ramps.CycleSchedule(schedules=[schedules.Constant.HParams()], steps=[1, 2]), "one number of steps"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(make: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()
