import pytest

from xdpx.engines.pytorch.loss_scale import LossScale
from xdpx.engines.pytorch.options import EngineOptions


def after(overflows, **options):
    found = LossScale(128.0)
    for overflow in overflows:
        found.after(overflow=overflow, options=EngineOptions(**options), num_updates=1)
    return found


def test_an_overflow_halves_the_scale():
    assert after([False, True]).scale == 64.0


def test_overflows_within_the_tolerance_leave_the_scale():
    assert after([False, False, False, True], scale_tolerance=0.5).scale == 128.0
    assert after([False, True], scale_tolerance=0.5).scale == 64.0


def test_a_quiet_time_doubles_the_scale():
    assert after([False, True, False, False, False], scale_window=3).scale == 128.0


def test_a_quiet_time_that_is_shortened_later_doubles_the_scale_at_once():
    found = LossScale(128.0, clean=5000)
    found.after(overflow=False, options=EngineOptions(scale_window=1000), num_updates=5001)
    assert (found.scale, found.clean) == (256.0, 0)


def test_the_scale_never_falls_below_the_lowest():
    assert after([True] * 30, lowest_scale=16.0).scale == 16.0
    assert after([True] * 30, lowest_scale=500.0).scale == 128.0


def test_a_scale_that_means_nothing_ends_training():
    with pytest.raises(FloatingPointError, match="update 1"):
        after([True] * 11)


def test_only_an_overflow_that_brings_the_scale_down_to_the_smallest_ends_training():
    assert after([False] * 9, min_loss_scale=200.0).scale == 128.0
    assert after([True], min_loss_scale=63.0).scale == 64.0
    with pytest.raises(FloatingPointError, match="down to 64"):
        after([True], min_loss_scale=64.0)


def test_a_scale_that_may_not_fall_does_not_skip_for_ever():
    assert after([True] * 99 + [False] + [True] * 99, lowest_scale=16.0).skipped == 99
    with pytest.raises(FloatingPointError, match="the last 100 updates overflowed"):
        after([True] * 100, lowest_scale=16.0)
