"""What waits for ever, what blames the wrong one, and what a kill leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from xdpx.datasets.making import Making
from xdpx.run import main
from xdpx.utils.commit import Lease, LeaseLost
from xdpx.utils.leases import Holder
from xdpx.utils.owners import new_owner_id

ELSEWHERE = Holder("0123456789-77-1-00000000", "other-host", 77, "2026-01-01T00:00:00+00:00")


def rows(count: int) -> str:
    return "".join(f"w{number % 7} w{number % 3} x\t{'ab'[number % 2]}\n" for number in range(count))


def dead_id() -> str:
    """Return the id of a process of this machine that is gone."""
    machine, _, _, mark = new_owner_id().split("-")
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return f"{machine}-{process.pid}-1-{mark}"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Raw text and two configs."""
    (tmp_path / "raw").mkdir()
    for name, count in (("train0", 60), ("train1", 60), ("dev", 20)):
        (tmp_path / "raw" / f"{name}.txt").write_text(rows(count))
    prepro = {"data_source": str(tmp_path / "raw"), "data_dir": str(tmp_path / "data"), "processor": "single"}
    prepro |= {"loader": "single", "tokenizer": "space", "max_len": 8}
    (tmp_path / "prepro.json").write_text(json.dumps(prepro))
    train: dict[str, Any] = {"__parent__": f"{tmp_path}/data/meta", "data_dir": str(tmp_path / "data")}
    train |= {"model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 4, "hidden_size": 4, "max_epoch": 2}
    train |= {"batch_size": 8, "learning_rate": 0.01, "major_metric": "acc", "save_dir": str(tmp_path / "run")}
    train |= {"train_subset": ["train0", "train1"], "seed": 1, "eval_interval": -1}
    (tmp_path / "train.json").write_text(json.dumps(train))
    return tmp_path


def prepro(world: Path, *more: str) -> int:
    return main(["x-prepro", str(world / "prepro.json"), *more])


def train(world: Path, *more: str) -> int:
    return main(["x-train", str(world / "train.json"), *more])


def killed_before(world: Path, split: str) -> None:
    """Leave what an x-prepro leaves that is killed with SIGKILL when it begins a split."""
    child = os.fork()
    if not child:
        from xdpx.datasets.building import Builder

        make = Builder.build_split

        def die(self: Any, name: str, file: Any) -> None:
            if name == split:
                os.kill(os.getpid(), signal.SIGKILL)
            make(self, name, file)

        Builder.build_split = die  # type: ignore[method-assign]
        prepro(world)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("lazy", ["true", "false"])
def test_training_says_at_once_that_the_x_prepro_it_needs_was_killed(
    world: Path, lazy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_before(world, "train1")
    begun = time.monotonic()
    assert train(world, f"lazy_load={lazy}") == 2
    told = capsys.readouterr().err
    assert f"is '{world}/data', where x-prepro was stopped before it had made train1." in " ".join(told.split())
    assert "Run the same x-prepro command again" in told
    assert time.monotonic() - begun < 30
    assert prepro(world) == 0
    assert train(world, f"lazy_load={lazy}") == 0


def test_training_that_waits_for_a_shard_stops_when_x_prepro_fails(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_before(world, "train1")
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    start = Path(f"/proc/{owner.pid}/stat").read_text().rpartition(")")[2].split()[19]
    machine, _, _, mark = new_owner_id().split("-")
    shutil.rmtree(world / "data" / ".lease", ignore_errors=True)
    (world / "data" / ".lease").mkdir()
    holder = Holder(f"{machine}-{owner.pid}-{start}-{mark}", "here", owner.pid, "now")
    (world / "data" / ".lease" / "owner.json").write_text(json.dumps(asdict(holder)))
    waiter = subprocess.Popen(
        [sys.executable, "-m", "xdpx.run", "x-train", str(world / "train.json"), "lazy_load=true"],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert waiter.stderr is not None
    for line in waiter.stderr:
        if "waiting for shard 'train1'" in line:
            break
    before = Making.read(str(world / "data"))
    Making("failed", before.fingerprint, before.left, "OSError: the disk is full").write(str(world / "data"))
    owner.kill()
    owner.wait()
    told = waiter.stderr.read()
    assert waiter.wait(300) == 1
    assert "Shard 'train1' will not arrive: the x-prepro that makes it failed (OSError: the disk is full)." in told
    assert "Run the same x-prepro command again" in told


def test_a_split_that_was_to_be_made_anew_is_not_trained_on_as_it_was(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepro(world) == 0
    (world / "raw" / "dev.txt").write_text(rows(24))
    killed_before(world, "train0")
    assert train(world) == 2
    assert "before it had made train0, train1" in " ".join(capsys.readouterr().err.split())
    assert prepro(world, "data_files=dev.txt", f"vocab_file={world}/data/vocab.txt") == 0  # which does not fix that
    assert train(world) == 2
    assert prepro(world) == 0
    assert train(world) == 0


def put_a_foreign_owner(folder: Path, *, seen: float) -> None:
    lease = folder / ".lease"
    lease.mkdir(parents=True)
    (lease / "owner.json").write_text(json.dumps(asdict(ELSEWHERE)))
    (lease / f"beat-{ELSEWHERE.id}").touch()
    os.utime(lease / f"beat-{ELSEWHERE.id}", (time.time() + seen, time.time() + seen))


def test_a_dead_owner_whose_clock_was_in_the_future_is_followed(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease.__init__, "__kwdefaults__", {"heartbeat": 0.2, "dead_after": 1.0})
    assert prepro(world) == 0
    put_a_foreign_owner(world / "run", seen=3600)
    assert train(world) == 0


def test_a_foreign_owner_that_may_live_is_named_with_a_way_out(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepro(world) == 0
    put_a_foreign_owner(world / "run", seen=-1)
    assert train(world) == 1
    told = capsys.readouterr().err
    assert "process 77 on other-host" in told
    assert f"start again in a minute, or remove {world}/run/.lease" in told
    shutil.rmtree(world / "run" / ".lease")
    assert train(world) == 0


def test_a_damaged_lease_says_what_to_remove(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepro(world) == 0
    for damage in (b"\xff", b"", b"{}", b'{"id": "x", "host": "", "pid": 1, "started": ""}', None):
        path = world / "run" / ".lease" / "owner.json"
        path.parent.mkdir(parents=True)
        path.mkdir() if damage is None else path.write_bytes(damage)
        assert train(world) == 1
        told = capsys.readouterr().err
        assert "bug" not in told
        assert f"remove {world}/run/.lease and start again" in told
        shutil.rmtree(world / "run")
    assert train(world) == 0


def test_four_starts_with_auto_suffix_are_four_runs(world: Path) -> None:
    assert prepro(world) == 0
    started = []
    for number in range(4):
        child = os.fork()
        if not child:
            handle = os.open(world / f"out-{number}", os.O_WRONLY | os.O_CREAT)
            os.dup2(handle, 2)
            os._exit(train(world, "auto_suffix=true", "max_update=3"))
        started.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in started]
    assert codes == [0, 0, 0, 0], [(world / f"out-{number}").read_text() for number in range(4)]
    finished = [json.loads((path / "status.json").read_text())["status"] for path in sorted(world.glob("run*"))]
    assert finished == ["finished"] * 4


def test_a_deleted_save_dir_is_told_as_such(world: Path) -> None:
    with Lease(str(world / "run")) as lease:
        shutil.rmtree(world / "run")
        with pytest.raises(LeaseLost, match=r"run: the folder, or .lease in it, was deleted or moved while this run"):
            lease.check()
        (world / "run").mkdir()  # as the next row of a log does
        with pytest.raises(LeaseLost, match="was deleted or moved"):
            lease.check()


def test_x_pred_removes_what_killed_ones_left_and_nothing_else(world: Path) -> None:
    assert prepro(world) == 0
    assert train(world) == 0
    out = world / "out"
    out.mkdir()
    dead, other = dead_id(), "0123456789-77-1-00000000"
    gone = [out / f"dev.interrupted.tsv.tmp-{dead}"]
    kept = [
        out / f"dev.interrupted.tsv.tmp-{new_owner_id()}",  # of a process that lives
        out / f"dev.interrupted.tsv.tmp-{other}",  # of another machine, and fresh
        out / f"test.interrupted.tsv.tmp-{dead}",  # of other predictions
        out / "dev.interrupted.tsv.tmp-mine",
        out / "dev.tsv.bak",
    ]
    for path in (*gone, *kept):
        path.write_text("half")
    ask = {"save_dir": str(world / "run"), "predict_file_map": {str(world / "raw" / "dev.txt"): str(out / "dev.tsv")}}
    (world / "ask.json").write_text(json.dumps(ask))
    assert main(["x-pred", str(world / "ask.json")]) == 0
    assert sorted(out.iterdir()) == sorted([*kept, out / "dev.tsv"])


def test_x_pred_killed_again_and_again_leaves_one_file_in_the_end(world: Path) -> None:
    assert prepro(world) == 0
    assert train(world) == 0
    out = world / "out" / "dev.tsv"
    ask = {"save_dir": str(world / "run"), "predict_file_map": {str(world / "raw" / "dev.txt"): str(out)}}
    (world / "ask.json").write_text(json.dumps(ask))
    for _ in range(3):
        child = os.fork()
        if not child:
            from xdpx.commands.predict import TextWriter

            TextWriter.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
            os._exit(main(["x-pred", str(world / "ask.json")]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(list(out.parent.iterdir())) == 1
    assert main(["x-pred", str(world / "ask.json")]) == 0
    assert list(out.parent.iterdir()) == [out]
