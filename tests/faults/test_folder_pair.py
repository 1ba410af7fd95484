"""Two real processes save together; one of them dies inside a save."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.processes import environment, run_together
from xdpx.checkpoints.folders import steps
from xdpx.trainer.files.checkpoint_files import TrainerCheckpoint

DYING = (0, 1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a pair of which one died, and then a whole one, saved for each that dies."""
    folder, script = tmp_path_factory.mktemp("pairs"), str(Path(__file__).with_name("folder_pair.py"))
    line = [sys.executable, script, str(folder), *map(str, DYING)]
    (ended,) = run_together([line], [environment()])
    assert ended.code == 0, ended.text
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("dies", DYING)
def test_when_one_of_two_dies_inside_a_save_both_end_and_the_step_before_is_used(place: Path, dies: int) -> None:
    codes, left, codes_of_second = json.loads((place / "told.json").read_text())[str(dies)]
    folder = place / str(dies)
    assert codes[dies] == 9
    assert codes[1 - dies] == 70  # an error, not a hang
    assert left == str(folder / "checkpoint-10")
    assert codes_of_second == [0, 0]
    assert steps(folder) == [10, 20]
    saved = TrainerCheckpoint.checked(folder / "checkpoint-20")
    assert [(saved.rng(rank, 2) or {})["rank"] for rank in range(2)] == [0, 1]
    assert sorted(os.listdir(folder)) == ["checkpoint-10", "checkpoint-20"]
