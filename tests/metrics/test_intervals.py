"""Intervals against a published table and at their ends."""

from __future__ import annotations

import pytest

from xdpx.metrics.intervals import share_interval


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_a_share_has_the_interval_of_the_published_table(right: int, total: int, low: float, high: float) -> None:
    """Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    assert share_interval(right / total, total) == pytest.approx((low, high), abs=5e-5)


def test_a_perfect_score_on_few_rows_is_not_certain() -> None:
    low, high = share_interval(1.0, 40)
    assert low == pytest.approx(0.9124, abs=1e-4)
    assert high == 1.0
