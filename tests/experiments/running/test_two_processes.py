from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import environment, free_port
from xdpx.training.status import read_status


def start(folder: Path, steps: int) -> list[subprocess.Popen[bytes]]:
    script, port = Path(__file__).with_name("two_processes.py"), free_port()
    return [
        subprocess.Popen(
            [sys.executable, str(script), str(port), str(index), str(folder), str(steps)],
            env=environment(), stderr=(folder.parent / f"{folder.name}.{index}.log").open("wb"),
        )
        for index in (0, 1)
    ]  # fmt: skip


@pytest.mark.slow
def test_two_processes_share_a_job_and_each_writes_its_rows(jax_pair: Callable[..., Path]) -> None:
    job = jax_pair(Path(__file__).with_name("two_processes.py"), "4")
    there = {path.name for path in job.rglob("*") if path.is_file()}
    assert {f"eval_out_4_shard_{index}.jsonl" for index in (0, 1)} <= there
    assert {f"decoder_out_4_shard_{index}.jsonl" for index in (0, 1)} <= there
    places = job / "checkpoints/checkpoint_00000004/train_input"
    assert {path.name for path in places.iterdir()} == {"process_0-of-2", "process_1-of-2"}


@pytest.mark.slow
def test_a_signal_to_one_process_ends_both_after_the_same_update(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    processes = start(folder, 100_000)
    while not (folder / "checkpoints/checkpoint_00000006").is_dir() and processes[0].poll() is None:
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGTERM)
    assert [process.wait() for process in processes] == [85, 85], (tmp_path / "job.1.log").read_text()[-3000:]
    status = read_status(str(folder))
    assert status is not None
    assert status.status == "preempted"
    assert (folder / f"checkpoints/checkpoint_{status.step:08d}/train_input/process_1-of-2").is_file()
