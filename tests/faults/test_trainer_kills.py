"""A training is killed at random moments, and inside its saves: what it leaves at its end is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("trainer_harness.py")
KILLS = int(os.environ.get("XDPX_TRAINER_KILLS", "6"))
"""SIGKILLs per variant. `XDPX_TRAINER_KILLS=500` makes a night of it."""


@pytest.mark.slow
@pytest.mark.timeout(180 + 20 * KILLS)
@pytest.mark.parametrize("variant", ["plain", "best", "accumulated", "background"])
def test_killed_anywhere_a_training_ends_with_the_weights_of_the_undisturbed_one(tmp_path: Path, variant: str) -> None:
    command = [sys.executable, str(HARNESS), str(tmp_path), variant, str(KILLS), "1"]
    environment = {**os.environ, "PYTHONPATH": str(HARNESS.parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(run["kills"] for run in runs) >= KILLS
    for run in runs:
        assert (run["code"], run["different"]) == (0, []), Path(run["output"]).read_text()
