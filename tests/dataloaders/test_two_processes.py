"""What needs two real processes: orders that are agreed on, and batches that the first one deals out."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import xdpx

SCRIPT = Path(__file__).parent / "two_processes.py"
CHECKS = [
    line.split("(")[0][len("def ") :] for line in SCRIPT.read_text().splitlines() if line.startswith("def check_")
]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Start both processes once, for all checks; give what each said."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(folder)]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    shared["PYTHONPATH"] = str(Path(xdpx.__file__).parents[1])
    processes = [
        subprocess.Popen(command, env={**os.environ, **shared, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    return lambda name: [(folder / f"{name}.{rank}").read_text() for rank in range(2)]


@pytest.mark.parametrize("check", CHECKS)
def test_two_processes_together(outcome, check):
    assert outcome(check) == ["passed", "passed"]
