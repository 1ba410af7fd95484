"""x-submit to this machine: what is checked, kept, written and started."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from xdpx import run as door
from xdpx.config.config_files import KEPT_VARIABLE
from xdpx.config.reading import read_runs
from xdpx.launch import folders

TOKEN = "ghp_" + "a" * 24


def submit(*words: str) -> int:
    return door.main(["x-submit", *words])


def wait_for_end(record: folders.Record) -> str:
    end = time.monotonic() + 60
    while not Path(record.folder, "exit_code").exists() and time.monotonic() < end:
        time.sleep(0.05)
    return Path(record.folder, "log.txt").read_text()


def test_a_job_runs_the_config_as_it_was_and_can_be_asked_for(
    desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk / "child.hjson").write_text("__parent__: draw\nside: 4\n__gpu__: 1\n__cpu__: 4\n")
    assert submit("x-draw", "child", "--on", "local", "--gpus", "0", "--yes") == 0
    (desk / "draw.hjson").write_text("side: 9")
    record = folders.find("")
    assert "drawn" in wait_for_end(record) or (desk / "out" / "one").exists()
    for action, said in (("status", "finished"), ("logs", ""), ("cancel", "is not running"), ("list", "x-draw child")):
        assert submit(action) == 0
        assert said in capsys.readouterr().out
    history = (desk / "command_history.txt").read_text().strip().split("\t")
    assert history[1:] == ["x-draw child", f"local {record.id}", record.log]
    kept = Path(record.folder, "code", "configs")
    assert sorted(path.name for path in kept.iterdir()) == ["child.hjson", "draw.hjson"]
    monkeypatch.setenv(KEPT_VARIABLE, str(kept))
    assert read_runs("child")[0].values["shape"] == "square"
    assert Path(record.folder, "code", "user", "modules", "fake_rooms.py").is_file()


def test_dry_prints_the_files_hides_secrets_and_writes_nothing(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(desk.rglob("*"))
    assert submit("x-draw", "loop", "--on", "slurm", "--dry", f"save_dir=out/{TOKEN}${{side}}") == 0
    text = capsys.readouterr().out
    assert "#SBATCH --array=0-2" in text
    assert TOKEN not in text
    assert sorted(desk.rglob("*")) == before


def test_faults_of_configs_flags_and_places_stop_it_before_anything_is_written(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit("x-draw", "draw", "sdie=3", "--on", "local") == 2
    assert "Did you mean 'side'?" in capsys.readouterr().err
    assert submit("x-draw", "draw", "--on", "local", "--partition", "gpu") == 2
    assert "--partition: is not supported by --on local." in capsys.readouterr().err
    assert not (desk / folders.FOLDER).exists()


def test_two_configs_that_ask_for_different_things_are_refused(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, count in (("a", 1), ("b", 2)):
        values = {"__parent__": "draw", "__gpu__": count, "save_dir": name}
        (desk / f"{name}.hjson").write_text(json.dumps(values))
    assert submit("x-draw", "a", "x-draw", "b", "--on", "slurm", "--dry") == 2
    assert "__gpu__: is 2 here and 1 elsewhere" in capsys.readouterr().err


def test_a_program_that_is_missing_and_an_unknown_id_are_told(
    desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(desk))
    assert submit("x-draw", "draw", "--on", "slurm") == 2
    assert "needs the program sbatch" in capsys.readouterr().err
    assert submit("status", "7") == 2
    assert "no submission '7' is known here" in capsys.readouterr().err


def test_machines_that_would_do_nothing_are_refused(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit("x-draw", "draw", "--on", "slurm", "--nodes", "2", "--dry") == 2
    assert "--nodes: is 2, but only one machine would do any work" in capsys.readouterr().err


def test_a_folder_of_several_lines_is_refused_since_its_second_would_be_a_directive(
    desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = desk / "a\n#SBATCH --exclusive"
    odd.mkdir()
    (odd / "draw.hjson").write_text((desk / "draw.hjson").read_text())
    monkeypatch.chdir(odd)
    assert submit("x-draw", "draw", "--on", "slurm", "--dry") == 2
    assert "which has several lines" in capsys.readouterr().err
    assert submit("x-draw", "draw", "--on", "slurm", "--dry", "--far-root", str(desk)) == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("batch_size=2 --on slurm --nodes 2 --gpus 4", 2, "some of 8 processes get no samples"),
        ("batch_size=2 --on local --processes 4", 2, "some of 4 processes get no samples"),
        ("nproc=3 --on ssh --hosts a,b --far-root /there", 2, "the launcher has started 1 process on each machine"),
        ("nproc=2 --on ssh --hosts a,b --far-root /there --processes 2", 0, "launch.sh"),
        ("nproc=2 --on local", 0, "--nproc-per-node=2 -m xdpx.run x-train train nproc=2 --resumable"),
        ("nproc=2 --on local --nodes 2", 0, "HEAD=host:29500 bash"),
        ("distributed_init_method=tcp://10.0.0.1:29500 --on slurm --nodes 2", 0, "srun"),
        ("--on slurm --nodes 2", 0, "--only"),
    ],
)
def test_a_training_is_checked_for_as_many_processes_as_the_place_starts(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    words: str, code: int, told: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    keys = {"data_dir": str(data), "save_dir": "/shared/${seed}", "model": "bow", "loss": "cross_entropy"}
    keys |= {"embedding_dim": 8, "learning_rate": 0.1, "max_update": 4, "batch_size": 8, "eval_interval": 2}
    keys |= {"major_metric": "acc"}
    seeds = [{"seed": 1}, {"seed": 2}][: 2 if told == "--only" else 1]
    Path("train.json").write_text(json.dumps({"__parent__": [f"{data}/meta", seeds], **keys}))
    before = dict(os.environ)
    assert submit("x-train", "train", *words.split(), "--dry") == code
    assert told in "".join(capsys.readouterr())
    assert dict(os.environ) == before


def test_this_machine_does_not_start_what_needs_two(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {"data_dir": str(data), "save_dir": "out", "model": "bow", "loss": "cross_entropy", "major_metric": "acc"}
    keys |= {"embedding_dim": 8, "learning_rate": 0.1, "max_update": 4, "batch_size": 8, "eval_interval": 2}
    Path("train.json").write_text(json.dumps({"__parent__": f"{data}/meta", **keys}))
    assert submit("x-train", "train", "--on", "local", "--nodes=2", "--yes") == 2
    assert "--nodes: is 2, but this is one machine. Start the torchrun.sh" in capsys.readouterr().err
    assert not Path(folders.FOLDER).exists()
