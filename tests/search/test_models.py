from __future__ import annotations

import sys

import pytest

from xdpx.config.faults import ConfigError
from xdpx.search.importance import importances
from xdpx.search.models import suggested, value_of
from xdpx.search.schedules import Budget
from xdpx.search.search import Search, make_search
from xdpx.search.spaces import Space
from xdpx.search.trials import Result, Trial, standings

pytest.importorskip("optuna")

SPACE = {
    "optimizer": {"type": "categorical", "values": ["adam", "sgd"]},
    "learning_rate": {"type": "float", "values": [1e-5, 1e-1], "log": True},
    "width": {"type": "int", "values": [16, 512], "log": True, "step": 2},
    "layers": {"type": "int", "values": [2, 11], "step": 3},
    "momentum": {"type": "float", "values": [0.0, 1.0], "when": {"optimizer": "sgd"}},
}


def finished(tuner: str, *, trials: int = 24, last_first: bool = False) -> Search:
    """Search for a learning rate of 0.001; the rest does not matter."""
    search = make_search(SPACE, budget=Budget(10), max_trials=trials, tuner=tuner, schedule="full", parallel=3)
    while not search.finished:
        order = search.ready()[-1 if last_first else 0]
        rate = order.values["learning_rate"]
        search.tell(Result(order.number, 10, -abs(rate - 1e-3)))  # type: ignore[operator]
    return search


def test_tpe_proposes_the_same_whichever_worker_is_faster_and_comes_nearer_than_its_random_start() -> None:
    once, again = finished("tpe"), finished("tpe", last_first=True)
    assert [trial.values for trial in once.trials] == [trial.values for trial in again.trials]
    assert all(Space.read(SPACE).faults_of(trial.values) == [] for trial in once.trials)
    assert max(trial.merit for trial in once.trials[10:]) > max(trial.merit for trial in once.trials[:10])


@pytest.mark.slow
def test_the_gaussian_process_comes_nearer_than_its_random_start() -> None:
    search = finished("gp", trials=13)
    assert max(trial.merit for trial in search.trials[10:]) > max(trial.merit for trial in search.trials[:10])


def test_every_value_comes_back_from_optuna_as_it_went() -> None:
    space = Space.read(SPACE)
    for point in space.grid(4):
        for dimension in space.dimensions:
            if dimension.name in point:
                value = point[dimension.name]
                assert value_of(dimension, suggested(dimension, value)) == value


def test_a_standing_compares_trials_at_equal_samples_only() -> None:
    def trial(number: int, *history: tuple[int, float]) -> Trial:
        return Trial(number, {}, samples=history[-1][0], history=list(history))

    behind, ahead = trial(0, (1, 0.1)), trial(1, (1, 0.5), (9, 0.8))
    newcomer, fallen = trial(2, (1, 0.7)), trial(3, (1, 0.6), (9, 0.6))
    found = standings([behind, ahead, newcomer, fallen, Trial(4, {}, state="failed"), Trial(5, {})])
    assert found[0] < found[3] < found[1] == found[2]
    assert found[4] == 0.0
    assert 5 not in found


def test_the_parameter_that_decides_is_the_important_one_and_says_how_sure_that_is() -> None:
    search = finished("random", trials=40)
    found = importances(search.space, search.trials, rounds=4)
    assert found[0].name == "learning_rate"
    assert all(one.low <= one.share <= one.high for one in found)
    assert sum(one.share for one in found) == pytest.approx(1.0)
    assert importances(search.space, search.trials[:23]) == []


def test_a_missing_optuna_is_one_sentence_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "optuna" else real(name))
    monkeypatch.delitem(sys.modules, "optuna", raising=False)
    with pytest.raises(ConfigError, match=r"needs the package optuna.*pip install 'xdpx\[tune\]'"):
        finished("tpe", trials=1)
