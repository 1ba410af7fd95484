"""Two real processes that share a job until a signal comes to one of them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import environment, free_port
from xdpx.training.status import read_status

CODE = "from tests.experiments.running.two_processes import main; main()"
"""Code, since a file that names JAX is not forked off a process that has imported it."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job of two processes, one of which got a signal after six updates."""
    folder, port = tmp_path_factory.mktemp("two") / "job", free_port()
    logs = [folder.with_name(f"{index}.log") for index in (0, 1)]
    processes = []
    for index, log in enumerate(logs):
        line = [sys.executable, "-c", CODE, str(port), str(index), str(folder)]
        with log.open("wb") as file:
            processes.append(subprocess.Popen(line, env=environment(), stderr=file))
    while not (folder / "checkpoints/checkpoint_00000006").is_dir() and processes[0].poll() is None:
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGTERM)
    assert [process.wait() for process in processes] == [85, 85], logs[1].read_text()[-3000:]
    return folder


def test_two_processes_share_a_job_and_each_writes_its_rows(job: Path) -> None:
    there = {path.name for path in job.rglob("*") if path.is_file()}
    assert {f"eval_out_4_shard_{index}.jsonl" for index in (0, 1)} <= there
    assert {f"decoder_out_4_shard_{index}.jsonl" for index in (0, 1)} <= there
    places = job / "checkpoints/checkpoint_00000006/train_input"
    assert {path.name for path in places.iterdir()} == {"process_0-of-2", "process_1-of-2"}


def test_a_signal_to_one_process_ends_both_after_the_same_update(job: Path) -> None:
    status = read_status(str(job))
    assert status is not None
    assert status.status == "preempted"
    assert (job / f"checkpoints/checkpoint_{status.step:08d}/train_input/process_1-of-2").is_file()
