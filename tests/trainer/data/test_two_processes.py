"""What needs two real processes: orders that are agreed on, and batches that the first one deals out."""

import sys
from pathlib import Path

import pytest

from tests.processes import environment, run_together

SCRIPT = Path(__file__).parent / "two_processes.py"
CHECKS = [
    line.split("(")[0][len("def ") :] for line in SCRIPT.read_text().splitlines() if line.startswith("def check_")
]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Start both processes once, for all checks; return what each said."""
    folder = tmp_path_factory.mktemp("two")
    (ended,) = run_together([[sys.executable, str(SCRIPT), str(folder)]], [environment()])
    assert ended.code == 0, [ended.text, *(path.read_text() for path in folder.glob("said-*.txt"))]
    return lambda name: [(folder / f"{name}.{rank}").read_text() for rank in range(2)]


@pytest.mark.parametrize("check", CHECKS)
def test_two_processes_together(outcome, check):
    assert outcome(check) == ["passed", "passed"]
