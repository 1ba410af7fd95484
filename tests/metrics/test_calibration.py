"""Calibration: exactly right probabilities, too sure ones, and the temperature that fixes them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from xdpx.metrics import fitted_temperature, reliability, sharpened

RANDOM = np.random.default_rng(0)


def drawn(count: int, *, sharpness: float) -> tuple[np.ndarray, np.ndarray]:
    """Targets drawn from the true probabilities, and what a model says that multiplies its logits by `sharpness`."""
    logits = RANDOM.normal(0, 1.5, (count, 3))
    true = sharpened(np.exp(logits), 1.0)
    target = (RANDOM.random((count, 1)) > true.cumsum(axis=1)).sum(axis=1)
    return sharpened(true, 1.0 / sharpness), target


def looked_at(prob: np.ndarray, target: np.ndarray):
    return reliability(prob.max(axis=1), prob.argmax(axis=1) == target)


def test_what_is_exactly_right_has_an_error_that_chance_explains() -> None:
    found = looked_at(*drawn(2000, sharpness=1.0))
    assert found.error <= found.most_by_chance
    assert found.error == pytest.approx(found.by_chance, abs=0.02)
    assert found.debiased < 0.03


def test_what_is_too_sure_is_told_so_and_by_how_much() -> None:
    found = looked_at(*drawn(2000, sharpness=3.0))
    assert found.error > 3 * found.most_by_chance
    assert found.too_sure == pytest.approx(found.error, abs=0.03)
    assert found.debiased == pytest.approx(found.error, abs=0.08)
    assert sum(each.rows for each in found.bins) == 2000
    assert all(each.interval[0] <= each.right <= each.interval[1] for each in found.bins)


def test_the_debiased_error_is_that_of_endless_data_while_the_plain_one_is_above_it() -> None:
    """Confidence 0.8 where 0.7 are right, in one bin: the error is 0.1."""
    plain, debiased = [], []
    for _ in range(200):
        found = reliability(np.full(60, 0.8), RANDOM.random(60) < 0.7, bins=1)
        plain.append(found.error**2)
        debiased.append((found.bins[0].confidence - found.bins[0].right) ** 2 - found.bins[0].right * (
            1 - found.bins[0].right) / 59)  # fmt: skip
    assert np.mean(debiased) == pytest.approx(0.01, abs=0.002)
    assert np.mean(plain) > 0.0125


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.5])
def test_the_temperature_undoes_what_made_the_model_too_sure(sharpness: float) -> None:
    prob, target = drawn(4000, sharpness=sharpness)
    temperature, low, high = fitted_temperature(np.log(prob), target)
    assert low < sharpness < high
    assert high - low < 0.2 * sharpness
    assert temperature == pytest.approx(sharpness, rel=0.1)
    rows = np.arange(len(target))
    best = optimize.minimize_scalar(
        lambda log: -np.log(sharpened(prob, np.exp(log))[rows, target]).mean(), bounds=(-3, 3), method="bounded"
    )
    assert temperature == pytest.approx(np.exp(best.x), rel=1e-3)


def test_few_rows_and_certain_ones_have_a_value() -> None:
    found = reliability(np.ones(3), np.ones(3, bool))
    assert (found.error, len(found.bins)) == (0, 1)
    assert fitted_temperature(np.log([[0.9, 0.1]] * 5), np.zeros(5)).value == pytest.approx(0.01, rel=1e-3)


def test_more_rows_than_are_drawn_one_by_one_give_about_the_same_chance() -> None:
    prob, target = drawn(10_500, sharpness=1.0)
    many, few = looked_at(prob, target), looked_at(prob[:10_000], target[:10_000])
    assert many.by_chance == pytest.approx(few.by_chance, rel=0.1)
