"""Processes that are started together end together."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest

from xdpx.launch.local import RESTARTS, Restarts, _Processes, run_together
from xdpx.training.preemption import EXIT_CODE
from xdpx.utils.distributed_utils import LOST_PEER_CODE


def do_well() -> None:
    assert os.environ["WORLD_SIZE"] == "2"
    assert os.environ["RANK"] == os.environ["LOCAL_RANK"]


def fail_second() -> None:
    if os.environ["RANK"] == "1":
        sys.stderr.write("the reason\n")
        sys.exit(7)
    time.sleep(1)
    sys.exit(LOST_PEER_CODE)


def hang_when_the_second_is_killed() -> None:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def leave_one_after_the_other() -> None:
    time.sleep(0.0 if os.environ["RANK"] == "1" else 3.0)  # the first saves for all
    sys.exit(EXIT_CODE)


def test_all_end_well(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_together(2, do_well) == 0
    assert capfd.readouterr().err == ""


def test_the_first_that_failed_by_itself_gives_the_code_and_is_heard(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_together(2, fail_second) == 7
    assert capfd.readouterr().err == "process 1 of 2 failed:\nthe reason\n"


def test_one_that_hangs_is_ended_when_another_was_killed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xdpx.launch.local.SECONDS_TO_END", 0.1)
    begun = time.monotonic()
    assert run_together(2, hang_when_the_second_is_killed) == 128 + signal.SIGKILL
    assert time.monotonic() - begun < 300  # half of what it would have slept
    assert "process 1 of 2 was killed by SIGKILL" in capfd.readouterr().err


def test_one_that_is_still_saving_after_an_interruption_is_waited_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xdpx.launch.local.SECONDS_TO_END", 0.1)
    assert run_together(2, leave_one_after_the_other) == EXIT_CODE
    assert capfd.readouterr().err == ""


def die_twice() -> None:
    if os.environ["RANK"] == "1" and int(os.environ[RESTARTS]) < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(0 if os.environ[RESTARTS] == "2" else LOST_PEER_CODE)


def say_life(words: str) -> None:
    assert os.environ["OMP_NUM_THREADS"] == "1"
    if os.environ["RANK"] == "0":
        with open(words, "a", encoding="utf-8") as file:
            file.write(f"{os.environ[RESTARTS]} {'json.tool' in sys.modules}\n")
    sys.exit(0 if os.environ[RESTARTS] == "1" else 75)


def test_processes_that_are_killed_are_started_again_as_often_as_allowed(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_together(2, die_twice, restarts=Restarts(2)) == 0
    assert "all are started again (2 of 2 times)" in capfd.readouterr().err
    assert run_together(2, die_twice, restarts=Restarts(1)) == 128 + signal.SIGKILL


class EndsWhileLookedAt:
    """A process that is found running `looks` times, and then ended with `code`."""

    def __init__(self, code: int, looks: int) -> None:
        self.code, self.looks, self.sentinel = code, looks, os.open(os.devnull, os.O_RDONLY)

    @property
    def exitcode(self) -> int | None:
        self.looks -= 1
        return self.code if self.looks < 0 else None

    def kill(self) -> None:
        pass

    def join(self) -> None:
        os.close(self.sentinel)


@pytest.mark.parametrize("looks", range(12))
def test_a_process_killed_at_any_moment_is_the_cause_of_what_its_peers_report(looks: int) -> None:
    processes = _Processes(["", ""], {}, Restarts())
    both = [EndsWhileLookedAt(LOST_PEER_CODE, 1), EndsWhileLookedAt(-signal.SIGKILL, looks)]
    processes._all = both  # type: ignore[assignment]
    assert processes.wait().code == 128 + signal.SIGKILL


def test_processes_that_failed_by_themselves_are_not_started_again() -> None:
    assert run_together(2, fail_second, restarts=Restarts(3)) == 7


def test_a_restarted_process_has_everything_imported_and_few_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    words = str(tmp_path / "words")
    restarts = Restarts(1, (words,), preload=("json.tool",), threads=1)
    assert run_together(2, say_life, words, restarts=restarts) == 0
    assert Path(words).read_text() == "0 True\n1 True\n"
    assert "OMP_NUM_THREADS" not in os.environ


def save_for_a_while(folder: str) -> None:
    def save(number: int, frame: object) -> None:
        time.sleep(1.0)
        Path(folder, os.environ["RANK"]).touch()
        sys.exit(EXIT_CODE)

    signal.signal(signal.SIGTERM, save)
    Path(folder, f"ready-{os.environ['RANK']}").touch()
    time.sleep(600)


def test_a_signal_to_every_process_of_a_job_leaves_all_of_them_time_to_save(tmp_path: Path) -> None:
    def signal_all() -> None:
        while len(list(tmp_path.glob("ready-*"))) < 2:
            time.sleep(0.05)
        server = forkserver._forkserver._forkserver_pid
        for process in (server, os.getpid()):  # which passes it on
            os.kill(process, signal.SIGTERM)

    threading.Thread(target=signal_all, daemon=True).start()
    assert run_together(2, save_for_a_while, str(tmp_path), restarts=Restarts(1, preload=("json.tool",))) == EXIT_CODE
    assert {"0", "1"} <= {path.name for path in tmp_path.iterdir()}
