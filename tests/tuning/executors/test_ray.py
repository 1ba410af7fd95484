"""The same search on a real local Ray: the same decisions and weights, though its workers or Ray itself are killed."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.tiers import nightly
from xdpx.run import main
from xdpx.tuning.executors.ray import TRIES, Demand, RayExecutor, _connect, _Work
from xdpx.tuning.stages import Outcome, Stage

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray of this machine, with two processors."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        yield
        ray.shutdown()


def results(folder: Path) -> list[dict[str, Any]]:
    """Return what the journal has of the results, in the order of their orders."""
    lines = [json.loads(line) for line in (folder / "search.jsonl").read_text().splitlines()]
    return sorted((line for line in lines if "result" in line), key=lambda line: int(line["result"]))


def kill_workers(count: int, killed: list[str], over: threading.Event) -> None:
    """Kill so many processes in which Ray trains a trial, one after another, each a moment after it has begun."""
    while len(killed) < count and not over.is_set():
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has ended
                name = [*process.cmdline(), ""][0]
                if name.startswith("ray::trial_") and name not in killed:
                    process.kill()
                    killed.append(name)
                    break
        time.sleep(0.05)


def kill_raylet(folder: Path) -> None:
    """Kill the raylet that this process started, once a trial of the search has trained."""
    while not list(folder.glob("trial_*/checkpoint-*.pt")):
        time.sleep(0.05)
    for process in psutil.Process().children(recursive=True):
        if process.name() == "raylet":
            process.kill()


@nightly("tests/trainer/test_search.py::test_the_best_of_the_trials_on_a_local_ray_comes_back")
@pytest.mark.slow
def test_a_search_on_ray_decides_and_trains_as_on_this_machine_though_workers_or_ray_are_killed(
    search: Callable[..., list[str]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert main(search(save_dir=str(tmp_path / "local"))) == 0
    # Ray comes afterwards: a process with its threads should not be forked
    killer = threading.Thread(target=kill_raylet, args=(tmp_path / "own",), daemon=True)
    killer.start()
    assert main(search(save_dir=str(tmp_path / "own"), executor="ray")) == 0
    killer.join()
    assert results(tmp_path / "own") == results(tmp_path / "local")
    assert weights(tmp_path / "own") == weights(tmp_path / "local")
    request.getfixturevalue("cluster")  # only now: until here, the search starts Ray for itself alone
    killed, over = list[str](), threading.Event()
    killer = threading.Thread(target=kill_workers, args=(2, killed, over))
    killer.start()
    try:
        assert main(search(save_dir=str(tmp_path / "ray"), executor="ray")) == 0
    finally:
        over.set()
        killer.join()
    assert len(killed) == 2
    assert results(tmp_path / "ray") == results(tmp_path / "local")
    assert weights(tmp_path / "ray") == weights(tmp_path / "local")


def weights(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every tensor of each trial's newest weights."""
    import torch

    found = {}
    for path in sorted(folder.glob("trial_*/checkpoint-*.pt")):
        for name, tensor in torch.load(path, weights_only=True).items():
            found[f"{path.relative_to(folder)}/{name}"] = tensor.numpy().tobytes()
    assert found
    return found


class NeverBegins(RayExecutor):
    """Takes note of the stages that Ray would be given."""

    def __init__(self, *, own: bool) -> None:
        super().__init__(1, Demand(1, 0, 0), own=own)
        self.begun: list[Any] = []

    def _begin(self, work: Any) -> None:
        self.begun.append(work)
        self._active[object()] = work  # type: ignore[index]


@pytest.fixture
def lost(planned: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[Stage, Outcome]]]:
    """Return a function that begins a stage and loses it, each time with the next error, until it has ended."""
    plan = planned()
    stage = plan.stages_of(plan.runs_of(0, {"learning_rate": 0.01, "batch_size": 8}), 0, 64)[0]

    def lose(executor: RayExecutor, errors: list[Exception]) -> list[tuple[Stage, Outcome]]:
        def get(reference: object) -> None:
            raise errors.pop(0)

        monkeypatch.setattr("ray.get", get)
        monkeypatch.setattr("ray.wait", lambda references, **_: (references, []))
        monkeypatch.setattr("ray.shutdown", lambda: None)
        monkeypatch.setattr("xdpx.tuning.executors.ray._connect", lambda: True)
        executor.start(stage)
        ended: list[tuple[Stage, Outcome]] = []
        while errors and not ended:
            ended = executor.wait(0)
        return ended

    return lose


def test_a_worker_that_is_lost_again_and_again_fails_its_trial(lost: Callable[..., Any]) -> None:
    from ray.exceptions import WorkerCrashedError

    [(_, outcome)] = lost(NeverBegins(own=True), [WorkerCrashedError() for _ in range(TRIES)])
    assert outcome.kind == "failed"
    assert "before its first save" in outcome.reason


def test_ray_that_is_lost_is_no_fault_of_the_trial_and_is_started_again(lost: Callable[..., Any]) -> None:
    from ray.exceptions import LocalRayletDiedError, WorkerCrashedError

    executor = NeverBegins(own=True)
    assert lost(executor, [WorkerCrashedError(), LocalRayletDiedError(), WorkerCrashedError()]) == []
    assert [work.tries for work in executor.begun] == [1, 2, 1, 2]


def test_ray_that_is_lost_without_end_ends_the_search_and_fails_no_trial(lost: Callable[..., Any]) -> None:
    from ray.exceptions import LocalRayletDiedError

    [(_, outcome)] = lost(NeverBegins(own=True), [LocalRayletDiedError() for _ in range(9)])
    assert outcome.kind == "world"
    assert "3 times in a row" in outcome.reason


def test_a_cluster_that_is_lost_ends_the_search_and_fails_no_trial(lost: Callable[..., Any]) -> None:
    from ray.exceptions import LocalRayletDiedError

    [(_, outcome)] = lost(NeverBegins(own=False), [LocalRayletDiedError()])
    assert outcome.kind == "world"
    assert "The same command continues" in outcome.reason


def test_a_ray_that_is_there_is_used_and_none_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.init", lambda *_, **__: pytest.fail("Ray is started"))
    assert not _connect()


def test_a_head_that_stays_silent_ends_the_search_before_ray_ends_the_process(
    planned: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        executor = RayExecutor(1, Demand(1, 0, 0), head=f"127.0.0.1:{taken.getsockname()[1]}")
        plan = planned()
        stage = plan.stages_of(plan.runs_of(0, {"learning_rate": 0.01, "batch_size": 8}), 0, 64)[0]
        executor._active[object()] = _Work(stage, -1)  # type: ignore[index]
        monkeypatch.setattr("ray.wait", lambda references, **_: ([], references))
        assert executor.wait(0) == []
        monkeypatch.setattr("xdpx.tuning.executors.ray.SECONDS_WITHOUT_HEAD", 0.0)
        executor._next_knock = 0.0
        [(_, outcome)] = executor.wait(0)
        assert (outcome.kind, executor.wait(0)) == ("world", [])
        assert "its head has not answered for 0 s" in outcome.reason


@pytest.mark.slow
def test_an_address_at_which_nothing_listens_is_told_at_once(
    search: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{taken.getsockname()[1]}")
        assert main(search(executor="ray")) == 1
    assert "no Ray cluster answers at 127.0.0.1:" in capsys.readouterr().err
