"""How many runs go at once, and what becomes of a process that is killed from outside."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests.processes import fork
from xdpx.tuning.executors.local import LocalExecutor, room
from xdpx.tuning.parameters import TuneParameters
from xdpx.tuning.stages import Outcome, Stage


def needs(**keys: object) -> TuneParameters:
    always = {"space_config": "s", "base_config": "b", "save_dir": "d", "max_trials": 9}
    return TuneParameters.model_validate({**always, "parallel_runs": 8, **keys})


@pytest.mark.parametrize(
    ("keys", "groups", "expected"),
    [
        ({"available_rss": 4.0, "min_rss": 1.0}, None, 4),
        ({"available_rss": 100.0}, None, 6),
        ({"available_rss": 100.0}, 2, 2),
        ({"available_rss": 100.0, "parallel_runs": 1}, 4, 1),
        ({"available_rss": 1.0, "min_rss": 1.0}, 0, 1),
    ],
)
def test_memory_devices_and_the_config_bound_what_goes_at_once(
    keys: dict[str, object], groups: int | None, expected: int
) -> None:
    assert room(needs(**keys), processors=6, gpu_groups=groups) == expected


@pytest.fixture
def stage(search: Callable[..., list[str]]) -> Stage:
    from xdpx.config.loading import Run

    run = Run("x-train", "t", 0, {"save_dir": "nowhere"}, frozenset(), {}, {})
    del search  # which lets processes be forked
    return Stage("trial_0", run, 4, 8)


def ended(executor: LocalExecutor) -> list[Outcome]:
    while True:
        if found := executor.wait(1.0):
            return [outcome for _, outcome in found]


def test_a_process_that_is_killed_once_begins_again_and_twice_is_a_failed_trial(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once_killed(stage: Stage) -> Outcome:
        if not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Outcome("done")

    monkeypatch.setattr("xdpx.tuning.executors.local.train_to", once_killed)
    executor = LocalExecutor(2, output=str(tmp_path))
    executor.start(stage)
    assert ended(executor) == [Outcome("done")]
    monkeypatch.setattr("xdpx.tuning.executors.local.train_to", lambda stage: os.kill(os.getpid(), signal.SIGKILL))
    executor.start(stage)
    [lost] = ended(executor)
    assert lost.kind == "failed"
    assert "SIGKILL" in lost.reason


def test_each_run_has_a_gpu_of_its_own_while_it_lasts(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "xdpx.tuning.executors.local.train_to", lambda stage: Outcome("done", os.environ["CUDA_VISIBLE_DEVICES"])
    )
    executor = LocalExecutor(2, gpus=[["0"], ["3"]], output=str(tmp_path))
    executor.start(stage)
    executor.start(stage)
    found = ended(executor)
    while len(found) < 2:
        found += ended(executor)
    assert sorted(outcome.reason for outcome in found) == ["0", "3"]
    executor.start(stage)
    assert ended(executor)[0].kind == "done"


def test_trials_end_with_a_driver_that_is_killed(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(stage: Stage) -> Outcome:
        (tmp_path / "pid").write_text(str(os.getpid()))
        while True:
            signal.pause()

    monkeypatch.setattr("xdpx.tuning.executors.local.train_to", sleep)

    def drive() -> None:
        executor = LocalExecutor(1, output=str(tmp_path))
        executor.start(stage)
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            executor.wait(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(fork(drive, tmp_path / "words.txt"), 0)
    trial = int((tmp_path / "pid").read_text())
    for _ in range(1000):
        if not _is_alive(trial):
            return
        os.sched_yield()
        signal.sigtimedwait([], 0.01)
    pytest.fail("the trial outlived its driver")


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_when_the_process_from_which_runs_are_forked_is_killed_another_one_is_started(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xdpx.tuning.executors.local.START", "forkserver")
    executor = LocalExecutor(1, preload=["torch"], output=str(tmp_path))

    def kill() -> None:
        while forkserver._forkserver._forkserver_pid is None:
            time.sleep(0.01)
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)

    forkserver._forkserver._stop()
    killer = threading.Thread(target=kill)
    killer.start()
    executor.start(stage)
    killer.join()
    [outcome] = ended(executor)  # of a stage that has no values
    assert "KeyError" in outcome.reason
    executor.close()
    forkserver._forkserver._stop()  # other tests fork from one that has imported other modules
