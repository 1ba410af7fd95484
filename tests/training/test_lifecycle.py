"""One life of a training: what is claimed, what is told, what is left as it was."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from xdpx.checkpoints.folders import Ranks
from xdpx.reports.windows import Stopwatch
from xdpx.training.callbacks.plotting import Plotting
from xdpx.training.lifecycle import Claim, Unclaimed, claimed, live
from xdpx.training.loop import Callback, Session, Stop
from xdpx.training.preemption import Preemption
from xdpx.training.progress import Progress
from xdpx.training.status import Status
from xdpx.utils.leases import Lease, LeaseHeld, LeaseLost
from xdpx.utils.owners import new_owner_id, temporary_name


@dataclass
class Toy:
    """Three updates of the toy engine."""

    engine: Any
    batches: Any
    nothing_left: bool = False
    seen: list[str] = field(default_factory=list)
    heard: list[Callback] = field(default_factory=list)

    def begin(self) -> Session | Stop:
        session = Session(self.engine, self.engine.start(0), Progress(), 3, 5)
        return Stop("nothing is left to do") if self.nothing_left else session

    def status(self, session: Session) -> Status:
        return Status("running", session.number, session.total, "toy", until=session.until)

    def settle(self, session: Session) -> None:
        self.seen.append("settle")

    def callbacks(self, session: Session) -> list[Callback]:
        return self.heard

    def groups(self, session: Session) -> Generator[Any]:
        yield from self.batches()

    def end(self, session: Session, stop: Stop) -> None:
        self.seen.append(stop.reason)


def told(folder: Path) -> tuple[str, int, str]:
    facts = json.loads((folder / "status.json").read_text())
    return facts["status"], facts["step"], facts["reason"]


def test_a_training_that_ends_tells_why(engine: Any, groups: Any, tmp_path: Path) -> None:
    toy = Toy(engine, groups)
    stop = live(toy, Claim(str(tmp_path)), preemption=Preemption(), log_file="log.txt")
    assert toy.seen == ["settle", "reached step 3"] == ["settle", stop.reason]
    assert told(tmp_path) == ("finished", 3, "reached step 3")
    assert (tmp_path / "log.txt").is_file()


def test_what_is_drawn_at_the_end_is_drawn_once_the_end_is_told(
    engine: Any, groups: Any, tmp_path: Path, figures: None
) -> None:
    drawn: list[tuple[str, int, str]] = []
    plotting = Plotting(lambda: drawn.append(told(tmp_path)), Stopwatch())
    live(Toy(engine, groups, heard=[plotting]), Claim(str(tmp_path)), preemption=Preemption())
    assert drawn == [("finished", 3, "reached step 3")]


def test_a_training_that_fails_tells_at_which_step_and_why(engine: Any, groups: Any, tmp_path: Path) -> None:
    def broken() -> Generator[Any]:
        yield from [group for group, _ in zip(groups(), range(2), strict=False)]
        raise RuntimeError("the cable was pulled")

    with pytest.raises(RuntimeError, match="the cable"):
        live(Toy(engine, broken), Claim(str(tmp_path)), preemption=Preemption())
    assert told(tmp_path) == ("failed", 2, "RuntimeError: the cable was pulled")


def test_where_nothing_is_left_to_do_nothing_is_written(engine: Any, groups: Any, tmp_path: Path) -> None:
    toy = Toy(engine, groups, nothing_left=True)
    assert live(toy, Claim(str(tmp_path)), preemption=Preemption(), log_file="log.txt").reason.startswith("nothing")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_training_left_half_written_is_removed(engine: Any, groups: Any, tmp_path: Path) -> None:
    died = subprocess.Popen(["true"])
    owner = new_owner_id().split("-")
    died.wait()
    owner[1] = str(died.pid)
    half = Path(temporary_name(str(tmp_path / "status.json"), "-".join(owner)))
    theirs = tmp_path / "notes.tmp-1"
    for path in (half, theirs):
        path.write_text("{")
    live(Toy(engine, groups), Claim(str(tmp_path)), preemption=Preemption())
    assert theirs.exists()
    assert not half.exists()


def test_only_the_first_process_writes(engine: Any, groups: Any, tmp_path: Path) -> None:
    second = Ranks(rank=1, size=2)
    live(Toy(engine, groups), Claim(str(tmp_path), second), preemption=Preemption(), log_file="log.txt")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_another_run_owns_is_refused_on_all_processes(tmp_path: Path) -> None:
    said: list[str] = []  # by the first process, which comes first here

    def broadcast(word: str) -> str:
        said.append(word)
        return said[0]

    def claim_as(rank: int) -> OSError | None:
        try:
            with claimed(str(tmp_path), Ranks(rank, 2, broadcast=broadcast)):
                return None
        except OSError as error:
            return error

    with Lease(tmp_path) as lease:
        errors = [claim_as(rank) for rank in (0, 1)]
        assert isinstance(errors[0], LeaseHeld)
        assert str(errors[0]) == str(errors[1])
        assert str(lease.me.pid) in str(errors[1])


def test_a_lease_that_is_lost_ends_the_training_on_all_processes_and_leaves_the_status(
    engine: Any, groups: Any, tmp_path: Path
) -> None:
    def robbed() -> Generator[Any]:
        yield from [group for group, _ in zip(groups(), range(2), strict=False)]
        shutil.rmtree(tmp_path / ".lease")
        yield from groups()

    said: list[str] = []
    with claimed(str(tmp_path), Ranks(0, 2, broadcast=lambda word: said.append(word) or word)) as claim:
        with pytest.raises(LeaseLost, match="was deleted or moved"):
            live(Toy(engine, robbed), claim, preemption=Preemption())
        assert told(tmp_path) == ("running", 0, "")
        with pytest.raises(Unclaimed, match="was deleted or moved"):
            Claim(str(tmp_path), Ranks(1, 2, broadcast=lambda word: said[-1])).check()


def test_where_no_lease_can_be_put_a_training_that_need_not_have_one_is_warned_and_tells_nothing(
    engine: Any, groups: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    folder = str(tmp_path / "file/run")
    with claimed(folder, required=False) as claim:
        assert live(Toy(engine, groups), claim, preemption=Preemption()).finished
    assert f"{folder} cannot be written to" in capsys.readouterr().err
    with pytest.raises(OSError, match="file"), claimed(folder):
        pass


def test_a_folder_that_was_made_for_nothing_goes_again(tmp_path: Path) -> None:
    def refuse() -> None:
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"), claimed(str(tmp_path / "new"), then=refuse):
        pass
    assert not (tmp_path / "new").exists()
