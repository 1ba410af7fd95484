from dataclasses import fields
from math import nan

import pytest

from xdpx.datasets.plan import Position
from xdpx.training.progress import Progress


def test_it_survives_a_round_trip_whole() -> None:
    odd = Progress(**{field.name: number for number, field in enumerate(fields(Progress), start=2)})
    assert Progress.from_dict(odd.as_dict()) == odd


def test_a_part_that_is_missing_is_an_error_with_its_name() -> None:
    saved = Progress().as_dict()
    del saved["best_score"]
    with pytest.raises(ValueError, match="best_score"):
        Progress.from_dict(saved)


def test_advancing_counts_the_samples_of_an_update() -> None:
    progress = Progress(group_size=6)
    progress.advance(1, Position(1, 1))
    progress.advance(2, Position(2, 0))
    assert (progress.num_updates, progress.epoch, progress.group, progress.samples) == (2, 2, 0, 12)


@pytest.mark.parametrize(("ascending", "scores", "best_step"), [
    (True, [0.5, nan, 0.7, 0.7, 0.6], 3),
    (False, [0.5, nan, 0.4, 0.4, 0.6], 3),
    (False, [nan, nan], 0),
    (True, [nan, -3.0], 2),
])  # fmt: skip
def test_neither_nan_nor_a_tie_is_ever_best(ascending: bool, scores: list[float], best_step: int) -> None:
    progress = Progress()
    for step, score in enumerate(scores, start=1):
        progress.num_updates = step
        assert progress.take_score(score, ascending=ascending) == progress.is_best
    assert progress.best_step == best_step


def test_a_run_that_has_not_begun_has_not_been_evaluated() -> None:
    assert not Progress().just_evaluated
    assert not Progress().is_best


def test_progress_of_a_checkpoint_from_before_steps_could_be_cut_short_is_read() -> None:
    saved = {name: value for name, value in Progress(num_updates=3).as_dict().items() if not name.startswith("cut_")}
    assert Progress.from_dict(saved) == Progress(num_updates=3)
