"""The other commands on a real Slurm: a search and an experiment that are put back, and an array that preprocesses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import processes
from tests.faults import tuning_harness
from tests.faults.resume_harness import in_child
from tests.launch import slurm
from tests.launch.slurm import submit, told, wait_for, wait_until
from tests.tiers import nightly
from xdpx import run as door
from xdpx.checkpoints import spmd_files, spmd_folders

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(slurm.missing()), reason=f"Slurm is {slurm.missing()}")]

PATIENT = '''
import time
from pathlib import Path

from xdpx import TrainerCallback


class Patient(TrainerCallback):
    """Leaves time for an interruption: waits after each update from the tenth on while there is a file `wait`."""

    def on_step_end(self, args, state, control, **given):
        if state.global_step >= 10 and Path("wait").exists():
            time.sleep(0.5)
'''
EXPERIMENT = '''
from xdpx.experiments.lm.c4 import C4UnsupervisedDataset


class Small(C4UnsupervisedDataset):
    """A decoder of one layer over characters."""

    TRAIN_DATA, VOCABULARY = "speech.txt", "characters"
    NUM_LAYERS, MODEL_DIMS, DIMS_PER_HEAD, VOCAB_SIZE, MAX_SEQ_LEN, PERCORE_BATCH_SIZE = 1, 16, 8, 128, 32, 2
    MAX_STEPS, CHECKPOINT_EVERY_N_STEPS, CALLBACKS = 90, 10, ("patient:Patient",)
'''
ROWS = {"train": 2000, "dev": 200}


@pytest.fixture(scope="module", autouse=True)
def desk(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Start a Slurm, and work in a folder with the data and configs of all tests."""
    folder = tmp_path_factory.mktemp("desk")
    rows = ["good film\tpos", "bad film\tneg", "fine\tpos", "poor\tneg"]
    texts = {f"raw/{split}.txt": "".join(f"{rows[n % 4]}\n" for n in range(count)) for split, count in ROWS.items()}
    prepro = {"data_source": "raw", "loader": "single", "processor": "single", "tokenizer": "space", "max_len": 4}
    for name in ("data", "array"):
        texts[f"{name}.json"] = json.dumps({**prepro, "data_dir": name})
    texts |= {
        "user/modules/patient.py": PATIENT,
        "small.py": EXPERIMENT,
        "speech.txt": "".join(f"{n} to be or not to be\n" for n in range(400)),
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with slurm.cluster(tmp_path_factory.mktemp("cluster")), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(processes.ROOT))
        patch.setenv("JAX_NUM_CPU_DEVICES", "2")
        patch.chdir(folder)
        assert in_child(lambda: door.main(["x-prepro", "data"]), folder / "prepro.out") == 0
        yield folder


def preempt(job: str) -> None:
    """Let a job of higher priority take both nodes for a moment, and wait until the other runs again."""
    line = ["sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 3"]
    subprocess.run(line, check=True, capture_output=True)
    wait_until(job, "PENDING")
    wait_until(job, "RUNNING")


@nightly("tests/launch/test_slurm.py::test_a_training_that_is_put_back_twice_ends_with_the_bits_of_an_undisturbed_one")
def test_a_search_that_is_preempted_decides_as_an_undisturbed_one(desk: Path) -> None:
    for name in ("calm", "moved"):
        tuning_harness.write_configs(desk, Path("out") / name, trials=6, schedule="asha")
    base = json.loads(Path("train.json").read_text())
    Path("train.json").write_text(json.dumps({**base, "callbacks": ["patient:Patient"]}))
    Path("wait").touch()
    moved, decisions = submit("x-tune", "moved", "--name", "moved"), Path("out/moved/decisions.tsv")
    wait_for(lambda: decisions.exists() and decisions.read_text().count("\n") > 2, "no decision was taken")
    preempt(moved.id)
    Path("wait").unlink()
    calm = submit("x-tune", "calm", "--name", "calm")
    for job in (moved, calm):
        wait_until(job.id, "COMPLETED")
    assert told(moved).count("continuing after") == 1, told(moved)
    assert "continuing after" not in told(calm)
    assert tuning_harness.left_by(Path("out/moved")) == tuning_harness.left_by(Path("out/calm"))


@nightly("tests/launch/test_slurm.py::test_a_training_that_is_put_back_twice_ends_with_the_bits_of_an_undisturbed_one")
def test_an_experiment_that_is_preempted_ends_with_the_weights_of_an_undisturbed_one(desk: Path) -> None:
    Path("wait").touch()
    pushed = submit("x-exp", "small.py:Small", "--job_log_dir=out/pushed")
    wait_for(lambda: list(Path("out/pushed/checkpoints").glob("checkpoint_*0010")), "nothing was saved")
    preempt(pushed.id)
    Path("wait").unlink()
    still = submit("x-exp", "small.py:Small", "--job_log_dir=out/still")
    for job in (pushed, still):
        wait_until(job.id, "COMPLETED")
    assert told(pushed).count("continuing from") == 1
    assert "continuing from" not in told(still)
    assert weights_of(Path("out/pushed")) == weights_of(Path("out/still"))


def weights_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every array of the last checkpoint."""
    import jax
    from jax.sharding import SingleDeviceSharding

    last = str(folder / "checkpoints/checkpoint_00000090")
    here = SingleDeviceSharding(jax.devices()[0])
    shapes = spmd_folders.read_shapes(last).items()
    wanted = {name: jax.ShapeDtypeStruct(shape, kind, sharding=here) for name, (shape, kind) in shapes}
    return {name: bytes(value.tobytes()) for name, value in spmd_files.read(last, wanted).items()}


def test_eight_tasks_of_which_some_are_killed_write_the_bytes_of_one_process(desk: Path) -> None:
    job = submit("x-prepro", "array", "num_shards=8", "--tasks", "8")
    wait_for(lambda: list(Path(".").glob("array.shards/*")), "no task has begun")
    for task in (1, 4, 6):
        subprocess.run(["scancel", "--full", "--signal=KILL", f"{job.id}_{task}"], check=False)
    wait_for(lambda: not {"RUNNING", "PENDING"} & set(slurm.state(job.id).split()), "tasks run on")
    again = submit("x-prepro", "array", "num_shards=8", "--tasks", "8")
    wait_until(again.id, "COMPLETED")
    same = {path.name: path.read_bytes() for path in Path("data").glob("*.pt")}
    assert len(same) == 2
    assert {path.name: path.read_bytes() for path in Path("array").glob("*.pt")} == same
