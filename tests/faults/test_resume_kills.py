"""Killed at random times and inside saves, then started again by the very same command: nothing must show it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HARNESS = Path(__file__).with_name("resume_harness.py")
RUNS = int(os.environ.get("XDPX_KILL_RUNS", "2"))
"""Runs per variant, each killed up to three times. `XDPX_KILL_RUNS=200` makes a night of it."""

VARIANTS = ["plain", "best and last", "accumulated and averaged", "lazy", "joined", "staged", "masked"]


def campaign(folder: Path, variant: str, *, runs: int) -> list[dict[str, Any]]:
    command = [sys.executable, str(HARNESS), str(folder), variant, "3", str(runs), "1"]
    environment = {**os.environ, "PYTHONPATH": str(HARNESS.parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * RUNS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_anywhere_and_started_again_everything_equals_the_undisturbed_run(tmp_path: Path, variant: str) -> None:
    runs = campaign(tmp_path, variant, runs=RUNS)
    assert len(runs) == RUNS
    for run in runs:
        assert (run["code"], run["different"]) == (0, []), Path(run["output"]).read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_before_one_storage_operation_after_another_nothing_is_ever_lost(tmp_path: Path) -> None:
    runs = campaign(tmp_path, "short", runs=0)
    assert len(runs) > 10
    for run in runs:
        assert (run["code"], run["different"]) == (0, []), Path(run["output"]).read_text()
