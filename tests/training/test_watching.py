"""Two gloo processes, one of which freezes, dies or hangs, or takes long by design: really, with real signals."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.processes import fork_ranks
from tests.training.test_lifecycle import Toy
from xdpx.checkpoints.folders import Ranks
from xdpx.training import stacks
from xdpx.training.lifecycle import claimed, live
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.training.preemption import Preemption
from xdpx.training.watching import EXIT_CODE, FINAL_EXIT_CODE
from xdpx.utils.distributed_utils import barrier, broadcast_object, gather_objects
from xdpx.utils.pulse import UNLIKE_OTHERS, pulse

HANG_SECONDS = 0.6
Deed = Callable[[int, int], object]


class Doing(Callback):
    """Does something after each update: `deed(rank, step)`."""

    def __init__(self, rank: int, deed: Deed) -> None:
        self._rank, self._deed = rank, deed

    def on_step(self, session: Session, step: Step) -> Stop | None:
        self._deed(self._rank, step.number)
        return None


class Together:
    """An engine whose updates wait for the other process."""

    checks_each = False

    def __init__(self, rank: int, deed: Deed) -> None:
        self._rank, self._deed = rank, deed

    def update(self, state: int, group: Any) -> tuple[int, dict[str, float]]:
        time.sleep(0.1)
        self._deed(self._rank, state + 1)
        dist.all_reduce(torch.ones(1))
        return state + 1, {}


class Pair(Toy):
    deed: Deed

    def begin(self) -> Session | Stop:
        session = super().begin()
        assert isinstance(session, Session)
        session.state, session.until = 0, 4
        return session

    def callbacks(self, session: Session) -> list[Callback]:
        return [Doing(int(os.environ["RANK"]), self.deed)]


def nothing(rank: int, step: int) -> None:
    """Do as usual."""


def of_second(deed: Callable[[], object], at: int = 3) -> Deed:
    return lambda rank, step: deed() if (rank, step) == (1, at) else None


def freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)  # the line where it freezes


def wait_for_ever() -> None:
    time.sleep(1000)  # the line where it hangs


def train(folder: Path, in_update: Deed, in_callback: Deed, data: Callable[[], Any]) -> list[int]:
    """Train on two processes, and return their exit codes."""

    def be(rank: int) -> None:
        signal.alarm(30)
        dist.init_process_group("gloo")
        ranks = Ranks(rank, 2, rank, barrier, broadcast_object, gather_objects)
        engine: Any = Together(rank, in_update)
        engine.start = lambda seed: 0
        toy = Pair(engine, data)
        toy.deed = in_callback
        with Preemption() as preemption, claimed(str(folder / "run"), ranks) as claim:
            live(toy, claim, preemption=preemption, log_file="log.txt", hang_seconds=HANG_SECONDS)

    return fork_ranks(be, 2, str(folder / "words"))


def groups() -> Generator[Any]:
    from xdpx.datasets.plan import Position

    for number in range(1, 9):
        yield Position(1, number), [number]


def stacks_of(folder: Path, rank: int) -> str:
    (found,) = (folder / "run/stacks").glob(f"*-rank-{rank}.txt")
    return found.read_text()


def slowly_by(slow: int) -> Callable[..., None]:
    """Return what writes stacks, slowly in one of the processes."""
    write = stacks.write

    def slowly(folder: str, rank: int, *words: str, **host: str) -> None:
        time.sleep(2 * HANG_SECONDS if os.environ["RANK"] == str(slow) else 0)
        write(folder, rank, *words, **host)

    return slowly


def test_of_a_frozen_process_all_stacks_are_written_its_line_is_named_and_the_job_ends(tmp_path: Path) -> None:
    assert train(tmp_path, nothing, of_second(freeze), groups) == [EXIT_CODE, -signal.SIGKILL]
    assert "in freeze" in stacks_of(tmp_path, 1)
    assert "in update" in stacks_of(tmp_path, 0)
    log = (tmp_path / "run/log.txt").read_text()
    assert "rank 1 on " in log
    assert "is frozen" in log
    assert "after step " in log
    assert "in phase '" in log
    told = json.loads((tmp_path / "run/status.json").read_text())
    assert told["status"] == "failed"
    assert "is frozen" in told["reason"]


def test_a_frozen_first_process_is_found_by_the_others(tmp_path: Path) -> None:
    codes = train(tmp_path, nothing, lambda rank, step: freeze() if (rank, step) == (0, 3) else None, groups)
    assert codes == [-signal.SIGKILL, EXIT_CODE]
    assert "in freeze" in stacks_of(tmp_path, 0)


def test_a_frozen_process_does_not_run_on_while_its_stacks_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "write", slowly_by(1))
    codes = train(tmp_path, nothing, lambda rank, step: freeze() if (rank, step) == (0, 3) else None, groups)
    assert codes == [-signal.SIGKILL, EXIT_CODE]
    assert "in freeze" in stacks_of(tmp_path, 0)


def test_one_that_hangs_in_an_update_ends_all_with_the_line_in_its_stacks(tmp_path: Path) -> None:
    assert train(tmp_path, of_second(wait_for_ever), nothing, groups) == [EXIT_CODE, EXIT_CODE]
    assert "in wait_for_ever" in stacks_of(tmp_path, 1)
    assert " hang, for" in (tmp_path / "run/log.txt").read_text()


def test_one_that_writes_for_long_why_all_end_is_not_taken_for_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "write", slowly_by(0))
    assert train(tmp_path, of_second(wait_for_ever), nothing, groups) == [EXIT_CODE, EXIT_CODE]
    assert "in update" in stacks_of(tmp_path, 0)


def test_one_whose_data_have_ended_ends_all_with_a_code_that_no_launcher_restarts(tmp_path: Path) -> None:
    def ending() -> Generator[Any]:
        yield from groups() if os.environ["RANK"] == "0" else islice(groups(), 2)
        with pulse.doing(f"{UNLIKE_OTHERS}: ended", patience=1.0, compiles=False):
            time.sleep(1000)

    assert train(tmp_path, nothing, nothing, ending) == [FINAL_EXIT_CODE, FINAL_EXIT_CODE]
    assert (
        "'data unlike that of other processes: ended': this training ends, as would another start"
        in (json.loads((tmp_path / "run/status.json").read_text())["reason"])
    )


def test_a_slow_first_step_a_long_callback_and_rare_data_are_no_hang(tmp_path: Path) -> None:
    long = 3 * HANG_SECONDS

    def slow_data() -> Generator[Any]:
        for number, group in enumerate(groups(), 1):
            time.sleep(long if number == 3 and os.environ["RANK"] == "1" else 0)
            yield group

    codes = train(
        tmp_path, of_second(lambda: time.sleep(long), at=1), of_second(lambda: time.sleep(long), at=2), slow_data
    )
    assert codes == [0, 0], (tmp_path / "words-0.txt").read_text()
    assert not (tmp_path / "run/stacks").exists()


def test_a_process_that_holds_pythons_lock_while_it_computes_is_no_hang(tmp_path: Path) -> None:
    def compute() -> None:
        sys.setswitchinterval(1000.0)  # no other thread gets its turn
        end = time.process_time() + 2 * HANG_SECONDS
        while time.process_time() < end:
            pass
        sys.setswitchinterval(0.005)

    assert train(tmp_path, nothing, of_second(compute), groups) == [0, 0]


def test_a_process_that_stood_still_with_all_others_goes_on(tmp_path: Path) -> None:
    def pause() -> None:
        """Freeze both for a while, as a scheduler does that gives the machine to somebody else."""
        pair = list(map(int, os.popen(f"pgrep -P {os.getppid()}").read().split()))
        child = os.fork()
        if child == 0:
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in pair:
                    os.kill(pid, number)
                time.sleep(3 * HANG_SECONDS)
            os._exit(0)
        os.waitpid(child, 0)

    assert train(tmp_path, nothing, of_second(pause), groups) == [0, 0]


def test_no_thread_and_no_file_of_the_watch_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert train(tmp_path, nothing, nothing, groups) == [0, 0]
    assert not list(tmp_path.glob("xdpx-stacks-*"))
    assert not any(thread.name == "xdpx-watch" for thread in threading.enumerate())
