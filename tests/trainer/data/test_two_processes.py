"""What needs two real processes: orders that are agreed on, and batches that the first one deals out."""

import sys
from pathlib import Path

import pytest

from tests.processes import environment, free_port, run_together, told

SCRIPT = Path(__file__).parent / "two_processes.py"
CHECKS = [
    line.split("(")[0][len("def ") :] for line in SCRIPT.read_text().splitlines() if line.startswith("def check_")
]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Start both processes once, for all checks; return what each said."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(folder)]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ended = run_together([command] * 2, [environment(**shared, RANK=str(rank)) for rank in range(2)])
    assert [each.code for each in ended] == [0, 0], told(ended)
    return lambda name: [(folder / f"{name}.{rank}").read_text() for rank in range(2)]


@pytest.mark.parametrize("check", CHECKS)
def test_two_processes_together(outcome, check):
    assert outcome(check) == ["passed", "passed"]
