"""Two real processes save together; one of them dies inside a save."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.processes import environment, free_port, run_together
from xdpx.checkpoints.folders import newest, steps
from xdpx.trainer.files.checkpoint_files import TrainerCheckpoint

NOBODY = -1


def run_pair(folder: Path, dies: int) -> list[int]:
    """Return the exit codes of both."""
    harness, port = Path(__file__).with_name("folder_pair.py"), str(free_port())
    lines = [[sys.executable, str(harness), str(folder), str(rank), port, str(dies)] for rank in range(2)]
    return [each.code for each in run_together(lines, [environment()] * 2)]


@pytest.mark.slow
@pytest.mark.parametrize("dies", [0, 1])
def test_when_one_of_two_dies_inside_a_save_both_end_and_the_step_before_is_used(tmp_path: Path, dies: int) -> None:
    codes = run_pair(tmp_path, dies)
    assert codes[dies] == 9
    assert codes[1 - dies] == 1  # an error, not a hang
    assert newest(tmp_path) == str(tmp_path / "checkpoint-10")
    assert run_pair(tmp_path, NOBODY) == [0, 0]
    assert steps(tmp_path) == [10, 20]
    saved = TrainerCheckpoint.checked(tmp_path / "checkpoint-20")
    assert [(saved.rng(rank, 2) or {})["rank"] for rank in range(2)] == [0, 1]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-10", "checkpoint-20"]
