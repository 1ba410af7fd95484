"""A real Slurm of this machine: commands that are sent there, interrupted, put back, and end as if nothing had been."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import processes
from tests.faults.resume_harness import in_child, left_by
from tests.launch import slurm
from tests.launch.slurm import submit, told, wait_for_line
from xdpx import run as door
from xdpx.launch import folders

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(slurm.missing()), reason=f"Slurm is {slurm.missing()}")]

TRAIN = {
    "__parent__": "./data/meta", "data_dir": "data", "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8,
    "hidden_size": 8, "batch_size": 8, "learning_rate": 0.01, "eval_interval": 20, "save_interval": 20,
    "max_update": 80, "major_metric": "acc", "cuda": False, "report_to": [],
    "plots": False,
}  # fmt: skip
SLOW = '''
import time
from xdpx.losses import register
from xdpx.losses.cross_entropy import CrossEntropy


@register("slow")
class Slow(CrossEntropy):
    """Cross-entropy that leaves time for an interruption."""

    def __call__(self, model, batch):
        time.sleep(0.02)
        return super().__call__(model, batch)
'''
PROGRAM = """
import os
from xdpx.launch.environment import LaunchKeys, adopt_launch
from xdpx.engines.pytorch import collectives, world
assert adopt_launch(LaunchKeys(init_method=INIT)) == 2
here = world.current(use_cpu=True)
told = collectives.gather_objects([here.rank, here.size, here.local_rank, os.environ["MASTER_PORT"]])
if here.rank == 0:
    print("told", told, flush=True)
world.leave()
"""
Sent = dict[str, folders.Record]
LINES = {
    "plain": "x-train train loss=slow save_dir=out/plain",
    "moved": "x-train train loss=slow save_dir=out/moved",
    "grid": "x-train grid",
}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sent]:
    """Start a Slurm, and send a job of each kind from a folder whose name wants quoting."""
    folder = tmp_path_factory.mktemp("slurm") / "我的 数据's 100%"
    place = tmp_path_factory.mktemp("cluster")
    with slurm.cluster(place), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(processes.ROOT))
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        make_desk(folder)
        patch.chdir(folder)
        assert in_child(lambda: door.main(["x-prepro", "prepro"]), folder / "prepro.out") == 0
        jobs = {name: submit(*line.split()) for name, line in LINES.items()}
        patch.setenv("MASTER_ADDR", "127.0.0.1")  # no name server knows the nodes
        patch.setenv("MASTER_PORT", str(processes.free_port()))  # jobs of another Slurm have the same numbers
        both = submit(*["x-train", "train", "save_dir=out/two_nodes", "max_update=20", "--nodes", "2"])
        patch.delenv("MASTER_ADDR")
        patch.delenv("MASTER_PORT")
        yield jobs | {"two nodes": both}


def make_desk(folder: Path) -> None:
    """Write data, configs, and a module of the user's own."""
    rows = "good film\tpos\nbad film\tneg\nfine\tpos\npoor\tneg\n" * 10
    prepro = {"data_source": "raw", "data_dir": "data", "loader": "single", "processor": "single", "max_len": 4}
    grid = {"__parent__": ["train", [{"seed": 1}, {"seed": 2}]], "save_dir": "out/grid${seed}", "max_update": 20}
    texts = {"raw/train.txt": rows, "raw/dev.txt": rows, "user/modules/slow.py": SLOW}
    texts |= {"prepro.json": json.dumps({**prepro, "tokenizer": "space"}), "train.json": json.dumps(TRAIN)}
    texts |= {"grid.json": json.dumps(grid)}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_training_that_is_put_back_twice_ends_with_the_bits_of_an_undisturbed_one(sent: Sent) -> None:
    moved = sent["moved"]
    wait_for_line(Path("out/moved/log.txt"), "step 20 ")
    subprocess.run(["scontrol", "requeue", moved.id], check=True)
    slurm.wait_until(moved.id, "PENDING")
    slurm.wait_until(moved.id, "RUNNING")
    wait_for_line(Path("out/moved/log.txt"), "step 60 ")
    subprocess.run(["scancel", "--batch", "--signal=USR1", moved.id], check=True)
    slurm.wait_until(moved.id, "PENDING")
    for record in (moved, sent["plain"]):
        slurm.wait_until(record.id, "COMPLETED")
    assert told(moved).count("| continuing at step") == 2, told(moved)
    assert left_by(Path("out/moved")) == left_by(Path("out/plain"))


def test_a_loop_becomes_an_array_with_a_run_for_each_task(sent: Sent) -> None:
    slurm.wait_until(sent["grid"].id, "COMPLETED")
    assert sorted(path.name for path in Path("out").glob("grid*/status.json")) == ["status.json"] * 2
    assert sorted(path.name for path in Path(sent["grid"].folder, "done").iterdir()) == ["0.1", "1.1"]


def test_a_training_on_two_nodes_is_one_of_two_processes(sent: Sent) -> None:
    slurm.wait_until(sent["two nodes"].id, "COMPLETED")
    text = told(sent["two nodes"])
    assert (text.count("using your own code"), text.count("| training to step 20")) == (2, 1), text
    assert len(Path("out/two_nodes/train.log.tsv").read_text().splitlines()) > 1


def test_what_slurm_refuses_is_told_in_its_own_words(sent: Sent, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["x-submit", "x-train", "train", "save_dir=out/no", "--on", "slurm", "--partition", "gpu", "--yes"]
    assert door.main(line) == 1
    said = capsys.readouterr().err
    assert "Slurm did not take the job" in said
    assert "invalid partition specified: gpu" in said
    assert "sinfo" in said


def test_a_submission_is_asked_for_and_cancelled_by_its_id(sent: Sent, capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main(["x-submit", "status", sent["grid"].id]) == 0
    assert "exit code of task 1: 0" in capsys.readouterr().out
    record = submit("x-train", "train", "loss=slow", "save_dir=out/ended", "max_update=5000")
    wait_for_line(Path("out/ended/log.txt"), "step 20 ")
    assert door.main(["x-submit", "cancel", record.id]) == 0
    slurm.wait_until(record.id, "CANCELLED")
    assert "interrupted by SIGTERM" in told(record)


@pytest.mark.parametrize("place", ["auto", "tcp://127.0.0.1"])
def test_two_tasks_of_a_step_find_each_other(sent: Sent, tmp_path: Path, place: str) -> None:
    port = str(processes.free_port())
    method = place if place == "auto" else f"{place}:{port}"
    (tmp_path / "program.py").write_text(PROGRAM.replace("INIT", repr(method)))
    line = ["srun", "--ntasks=2", "--overcommit", "--time=5", sys.executable, str(tmp_path / "program.py")]
    (ended,) = processes.run_together([line], [processes.environment(MASTER_ADDR="127.0.0.1")], seconds=240)
    assert ended.code == 0, ended.text
    assert "told [[0, 2, 0, " in ended.text
    assert place == "auto" or port in ended.text
