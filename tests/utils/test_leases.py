"""One owner per folder, whoever comes first; a dead owner is followed by exactly one."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import time
from dataclasses import asdict
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import LONG, nightly
from xdpx.utils import io
from xdpx.utils.commit import Lease, LeaseHeld, LeaseLost
from xdpx.utils.leases import Holder

fork = multiprocessing.get_context("fork")


def starter(folder: str, barrier: Barrier, answers: Any, stop: Event) -> None:
    barrier.wait()
    try:
        with Lease(folder):
            answers.put("won")
            stop.wait(300)
    except LeaseHeld as held:
        answers.put(held.holder.pid)


def race(folder: str, starters: int = 8) -> list[Any]:
    """Let processes start at once; return what became of them: `won`, or the pid of who holds the lease."""
    barrier, answers, stop = fork.Barrier(starters), fork.Queue(), fork.Event()
    runs = [fork.Process(target=starter, args=(folder, barrier, answers, stop)) for _ in range(starters)]
    for run in runs:
        run.start()
    results = [answers.get(timeout=300) for _ in runs]
    winners = {run.pid for run in runs}
    stop.set()
    for run in runs:
        run.join()
    assert {r for r in results if r != "won"} <= winners
    return results


@pytest.mark.parametrize("turn", range(10 if LONG else 2))
def test_one_of_eight_starters_wins(tmp_path: Any, turn: int) -> None:
    assert race(str(tmp_path)).count("won") == 1
    assert os.listdir(tmp_path) == []


def test_one_of_eight_starters_wins_on_an_object_store(s3_root: str) -> None:
    results = race(f"{s3_root}/run")
    assert results.count("won") == 1
    assert not io.exists(f"{s3_root}/run")


def hold(folder: str, held: Event) -> None:
    Lease(folder).acquire()
    held.set()
    time.sleep(600)


def kill_an_owner(folder: str) -> None:
    held = fork.Event()
    owner = fork.Process(target=hold, args=(folder, held))
    owner.start()
    assert held.wait(300)
    os.kill(owner.pid or 0, signal.SIGKILL)
    owner.join()


@pytest.mark.parametrize("turn", range(5 if LONG else 1))
def test_a_killed_owner_is_followed_by_one_of_eight(tmp_path: Any, turn: int) -> None:
    for _ in range(2):  # also when the follower of a dead owner dies
        kill_an_owner(str(tmp_path))
    assert race(str(tmp_path)).count("won") == 1
    assert os.listdir(tmp_path) == []


@nightly("test_one_of_eight_starters_wins_on_an_object_store")
def test_a_killed_owner_is_followed_by_one_of_eight_on_an_object_store(s3_root: str) -> None:
    kill_an_owner(f"{s3_root}/run")
    assert race(f"{s3_root}/run").count("won") == 1


def test_the_second_run_is_told_who_is_first(any_root: str) -> None:
    with Lease(any_root) as first:
        with pytest.raises(LeaseHeld) as caught:
            Lease(any_root).acquire()
        assert caught.value.holder == first.me
        for fact in (str(os.getpid()), socket.gethostname(), first.me.started, any_root):
            assert fact in str(caught.value)
    with Lease(any_root):
        pass


def test_a_forked_child_does_not_give_its_parents_lease_back(tmp_path: Any) -> None:
    with Lease(tmp_path) as lease:
        child = fork.Process(target=lease.release)
        child.start()
        child.join()
        lease.check()


ELSEWHERE = Holder("0123456789-77-1-00000000", "other-host", 77, "2026-01-01T00:00:00+00:00")


def put_a_foreign_owner(folder: str) -> str:
    with io.open(io.join(folder, ".lease/owner.json"), "w") as file:
        json.dump(asdict(ELSEWHERE), file)
    beat = io.join(folder, f".lease/beat-{ELSEWHERE.id}")
    io.store(beat).touch(beat)
    return beat


def test_an_owner_on_another_machine_lives_while_its_heart_beats(any_root: str) -> None:
    put_a_foreign_owner(any_root)
    with pytest.raises(LeaseHeld, match="process 77 on other-host"):
        Lease(any_root).acquire()


def test_an_owner_on_another_machine_is_dead_when_its_heart_stopped(tmp_path: Any) -> None:
    os.utime(put_a_foreign_owner(str(tmp_path)), (0, 0))
    with Lease(tmp_path, heartbeat=0.1):
        pass


def test_a_clock_that_is_behind_kills_nobody(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # By our clock the last beat is old, but it changes while we look.
    beat = put_a_foreign_owner(str(tmp_path))
    os.utime(beat, (0, 0))
    monkeypatch.setattr("xdpx.utils.leases.time.sleep", lambda seconds: os.utime(beat, (15, 15)))
    with pytest.raises(LeaseHeld):
        Lease(tmp_path, heartbeat=0.4).acquire()


def test_an_owner_that_was_taken_for_dead_notices(any_root: str) -> None:
    with Lease(any_root) as sleeper:
        sleeper.check()
        with io.open(io.join(any_root, f".lease/after-{sleeper.me.id}.json"), "w") as file:
            json.dump(asdict(ELSEWHERE), file)
        with pytest.raises(LeaseLost, match="must not write"):
            sleeper.check()


def test_the_heart_beats(tmp_path: Any) -> None:
    with Lease(tmp_path, heartbeat=0.05) as lease:
        beat = tmp_path / ".lease" / f"beat-{lease.me.id}"
        os.utime(beat, (0, 0))
        end = time.monotonic() + 300
        while beat.stat().st_mtime == 0 and time.monotonic() < end:
            time.sleep(0.02)
        assert beat.stat().st_mtime > 0


def test_a_folder_that_cannot_be_made_is_told_and_not_waited_for(tmp_path: Any) -> None:
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    for name in ("broken", "file"):
        with pytest.raises(OSError, match=name):
            Lease(tmp_path / name).acquire()


def test_a_lease_that_cannot_be_read_is_an_error_not_a_licence(tmp_path: Any) -> None:
    (tmp_path / ".lease").mkdir()
    (tmp_path / ".lease/owner.json").write_text("{")
    with pytest.raises(OSError, match="cannot be read"):
        Lease(tmp_path).acquire()


def test_a_folder_that_was_made_for_it_goes_when_nothing_was_put_there(any_root: str) -> None:
    empty, used = io.join(any_root, "empty"), io.join(any_root, "used")
    with Lease(empty), Lease(used), io.open(io.join(used, "file"), "w") as file:
        file.write("kept")
    assert not io.exists(empty)
    assert io.isfile(io.join(used, "file"))


def test_a_folder_that_was_there_stays_though_it_is_empty(tmp_path: Path) -> None:
    with Lease(tmp_path / "there"):
        pass
    (tmp_path / "there").mkdir()
    with Lease(tmp_path / "there"):
        pass
    assert (tmp_path / "there").is_dir()
