"""Who has died, is frozen or hangs, from what is known of each process."""

from __future__ import annotations

import time

from xdpx.training.judging import Known, Verdict, judge
from xdpx.utils.pulse import LONG, UNLIKE_OTHERS, Pulse, Standing

AT_WORK = Standing(7, "update", 1.0, 30.0)
OVERDUE = Standing(7, "update", 40.0, 31.0)
WAITING = Standing(7, "data", 700.0, 600.0)
SAVING = Standing(7, "saving", 5000.0, LONG)


def test_a_process_that_the_system_has_stopped_is_frozen_after_a_second_however_long_a_hang_may_take() -> None:
    frozen = Known(1, 1.6, AT_WORK, "stopped", stopped=1.1)
    assert judge([Known(0, 0.1, AT_WORK), frozen], 30.0) == Verdict("is frozen", (1,))
    assert judge([Known(0, 0.1, AT_WORK), Known(1, 600.0, AT_WORK, "stopped", stopped=0.9)], 30.0) is None
    assert judge([frozen], 2.0) == Verdict("is frozen", (1,))


def test_a_process_that_is_gone_has_died_after_a_moment_for_its_own_words() -> None:
    assert judge([Known(0, 0.1, AT_WORK), Known(1, 2.5, AT_WORK, "gone")], 30.0) == Verdict("has died", (1,))
    assert judge([Known(0, 0.1, AT_WORK), Known(1, 0.4, AT_WORK, "gone")], 30.0) is None


def test_one_that_computes_without_a_word_is_given_more_time_and_a_debugged_one_all() -> None:
    silent = Known(1, 31.0, AT_WORK, "alive")
    assert judge([silent], 30.0) == Verdict("is silent", (1,))
    assert judge([Known(1, 31.0, AT_WORK, "alive", computes=True)], 30.0) is None
    assert judge([Known(1, 3100.0, AT_WORK, "traced")], 30.0) is None
    assert judge([Known(1, 31.0, AT_WORK)], 30.0) is None  # of another machine
    assert judge([Known(1, 61.0, AT_WORK)], 30.0) == Verdict("is silent", (1,))


def test_all_hang_only_when_nobody_does_what_may_take_long_and_the_last_one_is_named() -> None:
    assert judge([Known(0, 0.1, OVERDUE), Known(1, 0.1, OVERDUE)], 30.0) == Verdict("hangs", (0, 1))
    assert judge([Known(0, 0.1, OVERDUE), Known(1, 0.1, WAITING)], 30.0) == Verdict("hangs", (1,))
    assert judge([Known(0, 0.1, OVERDUE), Known(1, 0.1, SAVING)], 30.0) is None
    assert judge([Known(0, 0.1, OVERDUE), Known(1, 0.1, AT_WORK)], 30.0) is None


def test_one_whose_data_ended_before_those_of_the_others_is_named() -> None:
    pulse = Pulse()
    pulse.enter(f"{UNLIKE_OTHERS}: ended", compiles=False)
    ended = pulse.standing(30.0)
    assert ended.allowed == 30.0  # the first time, too
    late = Standing(7, ended.phase, 31.0, ended.allowed)
    assert judge([Known(0, 0.1, OVERDUE), Known(1, 0.1, late)], 30.0) == Verdict("hangs", (1,), comes_again=True)
    assert judge([Known(0, 0.1, WAITING), Known(1, 0.1, late)], 30.0) == Verdict("hangs", (0, 1))  # a slow disk


def test_the_first_of_a_kind_may_take_long_and_the_next_ones_twice_as_long_as_the_longest() -> None:
    pulse = Pulse()
    pulse.enter("update")
    assert pulse.standing(30.0).allowed == LONG
    time.sleep(0.05)
    pulse.enter("data", 20.0)
    pulse.enter("update")
    assert 30.1 <= pulse.standing(30.0).allowed < 35
    with pulse.doing("saving"):
        assert pulse.standing(30.0).phase == "saving"
    assert pulse.standing(30.0).phase == "update"


def test_those_that_waited_for_one_that_has_only_now_gone_on_do_not_hang() -> None:
    both = [Known(0, 0.1, OVERDUE), Known(1, 0.1, OVERDUE)]
    assert judge(both, 30.0, unmoved_seconds=29.0) is None
    assert judge(both, 30.0, unmoved_seconds=31.0) == Verdict("hangs", (0, 1))
