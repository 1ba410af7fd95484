from __future__ import annotations

from collections import Counter

import pytest

from xdpx.config.faults import ConfigError
from xdpx.search.schedules import Budget
from xdpx.search.search import Search, make_search
from xdpx.search.trials import Result

DOCUMENTED = {
    "assess_start_step": 200, "assess_interval": 100, "min_ref": 3, "cull_keep_ratio": 0.8, "eval_deviation": 40,
}  # fmt: skip


def begun(max_trials: int, *, total: int = 16000, **changed: object) -> Search:
    space = {"x": {"type": "float", "values": [0.0, 1.0]}}
    options = {**DOCUMENTED, **changed}
    return make_search(
        space, budget=Budget(total, per_step=16), max_trials=max_trials, schedule="bracket", parallel=16, **options
    )  # type: ignore[arg-type]


def finish(search: Search) -> Search:
    while not search.finished:
        order = search.ready()[-1]
        search.tell(Result(order.number, order.samples, order.values["x"]))  # type: ignore[arg-type]
    return search


def test_the_documented_bracket_keeps_four_fifths_of_each_assessment_and_three_to_the_end() -> None:
    search = finish(begun(16, total=24000))
    best_first = sorted(search.trials, key=lambda trial: -trial.values["x"])  # type: ignore[operator]
    assert [trial.samples for trial in best_first[:3]] == [24000] * 3
    steps = Counter(trial.samples // 16 for trial in search.trials)
    # 16 -> 13 -> 11 -> 9 -> 8 -> 7 -> 6 -> 5 -> 4 -> 3
    assert [steps[200 + 100 * index] for index in range(9)] == [3, 2, 2, 1, 1, 1, 1, 1, 1]


def test_a_second_episode_is_compared_with_the_first() -> None:
    search = finish(begun(32))
    assert Counter(trial.bracket for trial in search.trials) == {0: 16, 1: 16}
    second = [trial for trial in search.trials if trial.bracket == 1]
    allowed = sum(trial.samples > 3200 for trial in second)
    ranks = sorted(search.trials, key=lambda trial: -trial.values["x"])  # type: ignore[operator]
    assert allowed == sum(trial.bracket == 1 for trial in ranks[:26])  # ceil(0.8 * 32)


def test_shares_of_the_run_are_as_good_as_steps() -> None:
    steps, shares = finish(begun(16)), finish(begun(16, assess_start_step=0.2, assess_interval=0.1))
    assert steps.decisions == shares.decisions


def test_evaluations_that_lie_further_apart_than_the_deviation_are_not_compared() -> None:
    search = begun(16, eval_deviation=40)
    late = {order.number for order in search.ready()[:8]}
    for order in search.ready():
        seen = order.samples + (100 if order.number in late else 0)
        search.tell(Result(order.number, seen, 1.0 if order.number in late else 0.5))
    culled = [row for row in search.decisions if row.verdict == "culled"]
    assert late < {row.trial for row in culled}  # the eight that were evaluated elsewhere have no rank
    assert len(culled) == 8 + 1  # 7 of the other 8 are kept
    with_room = begun(16, eval_deviation=100)
    for order in with_room.ready():
        seen = order.samples + (100 if order.number in late else 0)
        with_room.tell(Result(order.number, seen, 1.0 if order.number in late else 0.5))
    assert not late & {row.trial for row in with_room.decisions if row.verdict == "culled"}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"assess_start_step": 2000}, "assess_start_step: is 32000 samples, but a whole run has 16000"),
        ({"assess_interval": 1.5}, "assess_interval: is 1.5"),
        ({"min_ref": 16}, "none would be culled"),
        ({"cull_keep_ratio": 1.0}, "cull_keep_ratio"),
    ],
)
def test_brackets_that_cannot_be_are_refused(changed: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        begun(16, **changed)
