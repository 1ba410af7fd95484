"""A study of an experiment: its trials are jobs that go on exactly, and a study that was killed goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.processes import environment
from xdpx.config.faults import ConfigError
from xdpx.experiments.running import run, study, studying
from xdpx.trainer.hooks.events import TrainerCallback

QUIET: dict[str, Any] = {"plots": False, "enable_summary_writer": False}
SEARCH = {"tuner": "grid", "schedule": "asha", "eta": 2, "assess_start_step": 0.5}
RATES = {"RATE": {"type": "categorical", "values": [0.001, 0.03]}}


class Counting(TrainerCallback):
    """Counts the steps that it hears of, and notes them in `heard` when a training ends."""

    heard: list[int] = []

    def __init__(self) -> None:
        self.steps = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps += 1

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.heard.append(self.steps)


def searching(tiny: ModuleType, space: Any = RATES, **values: Any) -> Any:
    """Return the tiny experiment with a search space."""
    body = {"search_space": lambda self: space, "__module__": __name__}
    return type("Searching", (tiny.Tiny,), body)(STEPS=4, SAVE=4, **values)


def begin(experiment: Any, folder: Path, **options: Any) -> int:
    """Search with two trials, one of which goes on."""
    given = {**QUIET, **options}
    return study(experiment, job_log_dir=str(folder), name="rates", num_trials=2, search=SEARCH, **given)


@pytest.fixture(scope="module")
def calm(tiny: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that nothing disturbed."""
    folder = tmp_path_factory.mktemp("studies") / "calm"
    assert begin(searching(tiny, CALLBACKS=[Counting()]), folder) == 0
    return folder


def test_each_trial_has_callbacks_of_its_own(calm: Path) -> None:
    assert set(Counting.heard) == {2}


def finished(folder: Path) -> int:
    """Return the trial that was trained to its end."""
    rows = [line.split("\t") for line in (folder / "decisions.tsv").read_text().splitlines()]
    return next(int(row[1]) for row in rows if row[2] == "finished")


def test_a_promoted_trial_has_the_bits_of_a_job_that_was_never_interrupted(
    calm: Path, tiny: ModuleType, tmp_path: Path
) -> None:
    trial = finished(calm)
    assert "promoted" in (calm / "decisions.tsv").read_text()
    run(tiny.Tiny(STEPS=4, SAVE=4, RATE=RATES["RATE"]["values"][trial]), job_log_dir=str(tmp_path / "whole"), **QUIET)
    staged, whole = (tiny.state_of(str(folder), 4) for folder in (calm / f"trial_{trial}", tmp_path / "whole"))
    assert all(np.array_equal(staged[name], whole[name]) for name in whole)


KILLED = """
import os, signal, sys
from tests.experiments.running import conftest, test_studying
from xdpx.search.journal import Journal
tell, told = Journal.tell, []
def killed(self, result):
    told.append(result)
    if len(told) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    tell(self, result)
Journal.tell = killed
test_studying.begin(test_studying.searching(conftest._load()), sys.argv[1])
"""


@pytest.mark.slow
def test_a_study_that_was_killed_goes_on_and_decides_the_same(calm: Path, tiny: ModuleType, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment(), capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    assert begin(searching(tiny), tmp_path) == 0
    assert (tmp_path / "decisions.tsv").read_bytes() == (calm / "decisions.tsv").read_bytes()
    trial = finished(calm)
    mine, whole = (tiny.state_of(str(folder / f"trial_{trial}"), 4) for folder in (tmp_path, calm))
    assert all(np.array_equal(mine[name], whole[name]) for name in whole)


def test_another_study_in_the_folder_is_refused(calm: Path, tiny: ModuleType) -> None:
    with pytest.raises(ConfigError, match="study: is 'other'"):
        study(searching(tiny), job_log_dir=str(calm), name="other", num_trials=2, search=SEARCH, **QUIET)
    with pytest.raises(ConfigError, match="experiment"):
        begin(searching(tiny, EMA=0.9), calm)


def test_a_space_that_does_not_fit_the_fields_is_refused_before_anything_is_written(
    tiny: ModuleType, tmp_path: Path
) -> None:
    space = {
        "RAET": {"type": "float", "values": [0.1, 0.2]},
        "KEEP": {"type": "categorical", "values": ["many"]},
    }
    with pytest.raises(ConfigError) as refused:
        begin(searching(tiny, space), tmp_path / "job")
    for words in ("RATE", "KEEP: is 'many'"):
        assert words in str(refused.value)
    with pytest.raises(ConfigError, match="no search space"):
        begin(tiny.Tiny(), tmp_path / "job")
    with pytest.raises(ConfigError, match=r"'Searching.search_space' returns \['RATE'\]. Return \{FIELD: "):
        begin(searching(tiny, ["RATE"]), tmp_path / "job")

    class Unmeasured(type(searching(tiny))):  # type: ignore[misc]
        def datasets(self) -> list[Any]:
            return [template for template in super().datasets() if template.is_training]

    with pytest.raises(ConfigError, match=r"inputs in datasets\(\) with is_training=False; there are none"):
        begin(Unmeasured(), tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_a_score_that_is_no_number_is_refused_by_its_experiment(tiny: ModuleType) -> None:
    odd = type("Odd", (tiny.Tiny,), {"search_score": lambda self, metrics: None, "__module__": __name__})
    with pytest.raises(ConfigError, match=r"'Odd.search_score' returns None, which is not a number"):
        studying._score(odd(), {})


def test_options_that_an_experiment_leaves_out_are_the_usual_ones(
    tiny: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = {"tuner": "random", "schedule": "asha", "direction": "minimize"}
    own = type("Own", (tiny.Tiny,), {"search_options": lambda self: {"seed": 3, "schedule": "full"}})
    assert studying.search_options_of(tiny.Tiny(), {"eta": 4}) == {**usual, "eta": 4}
    assert studying.search_options_of(own(), {"tuner": "grid"}) == {
        "tuner": "grid", "schedule": "full", "direction": "minimize", "seed": 3
    }  # fmt: skip
    assert "counts as the best" not in capsys.readouterr().err
    scored = type("Scored", (own,), {"search_score": lambda self, metrics: 1.0})
    studying.search_options_of(scored(), {})
    assert "the lowest search_score() of Scored counts as the best" in capsys.readouterr().err
    studying.search_options_of(scored(), {"direction": "maximize"})
    assert "counts as the best" not in capsys.readouterr().err
