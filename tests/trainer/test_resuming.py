import pytest

from xdpx.trainer.progress import Progress
from xdpx.trainer.resuming import carry_over, stage_end


def test_without_train_steps_a_stage_goes_to_the_end() -> None:
    assert stage_end(Progress(num_updates=30), total=100, train_steps=None) == 100


@pytest.mark.parametrize(("train_steps", "end"), [(20, 50), (0.25, 55), (500, 100), (1.0, 100), (0.00001, 31)])
def test_an_integer_counts_from_now_and_a_float_is_a_share_of_all(train_steps: float, end: int) -> None:
    assert stage_end(Progress(num_updates=30), total=100, train_steps=train_steps) == end


def test_a_stage_that_was_interrupted_keeps_its_end_and_the_next_one_begins_after_it() -> None:
    progress = Progress()
    assert stage_end(progress, total=100, train_steps=40) == 40
    progress.num_updates = 25
    assert stage_end(Progress.from_dict(progress.as_dict()), total=100, train_steps=40) == 40
    progress.num_updates = 40
    assert stage_end(progress, total=100, train_steps=40) == 80


def test_another_length_begins_another_stage() -> None:
    progress = Progress()
    stage_end(progress, total=100, train_steps=40)
    progress.num_updates = 25
    assert stage_end(progress, total=100, train_steps=10) == 35


def test_when_updates_grow_no_sample_of_the_epoch_is_seen_twice() -> None:
    progress = Progress(group=10, group_size=8)
    carry_over(progress, group_size=32)
    assert (progress.group, progress.group_size) == (3, 32)
