import pytest

from xdpx.runs.resuming import carry_over, stage_end
from xdpx.training.progress import Progress
from xdpx.training.status import RunState, Status


def test_without_train_steps_a_stage_goes_to_the_end() -> None:
    assert stage_end(None, now=30, total=100, train_steps=None) == 100


@pytest.mark.parametrize(("train_steps", "end"), [(20, 50), (0.25, 55), (500, 100), (1.0, 100), (0.00001, 31)])
def test_an_integer_counts_from_now_and_a_float_is_a_share_of_all(train_steps: float, end: int) -> None:
    assert stage_end(None, now=30, total=100, train_steps=train_steps) == end


def left(status: RunState, *, until: int) -> Status:
    return Status(status, 0, 100, "abc", until=until, train_steps=40)


@pytest.mark.parametrize("status", ["running", "preempted", "failed"])
@pytest.mark.parametrize("now", [0, 25, 40])
def test_a_stage_that_was_interrupted_keeps_its_end(status: RunState, now: int) -> None:
    assert stage_end(left(status, until=40), now=now, total=100, train_steps=40) == 40


def test_the_next_stage_begins_where_a_finished_one_ended() -> None:
    assert stage_end(left("finished", until=40), now=40, total=100, train_steps=40) == 80


def test_a_next_stage_that_was_killed_before_its_first_state_is_not_taken_for_done() -> None:
    assert stage_end(left("running", until=80), now=40, total=100, train_steps=40) == 80


def test_another_length_begins_another_stage() -> None:
    assert stage_end(left("running", until=40), now=25, total=100, train_steps=10) == 35


def test_when_updates_grow_no_sample_of_the_epoch_is_seen_twice() -> None:
    progress = Progress(group=10, group_size=8)
    carry_over(progress, group_size=32)
    assert (progress.group, progress.group_size) == (3, 32)
