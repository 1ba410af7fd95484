"""Killed at random times and inside saves, then started again by the very same command: nothing must show it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("resume_harness.py")
RUNS = int(os.environ.get("XDPX_KILL_RUNS", "2"))
"""Runs per variant, each killed up to three times. `XDPX_KILL_RUNS=200` makes a night of it."""

VARIANTS = ["plain", "best and last", "accumulated and averaged", "lazy", "joined", "staged", "masked"]


@pytest.mark.slow
@pytest.mark.timeout(60 + 60 * RUNS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_anywhere_and_started_again_everything_equals_the_undisturbed_run(tmp_path: Path, variant: str) -> None:
    command = [sys.executable, str(HARNESS), str(tmp_path), variant, "3", str(RUNS), "1"]
    repository = str(HARNESS.parents[2])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": repository}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) == RUNS
    for run in runs:
        assert (run["code"], run["different"]) == (0, []), Path(run["output"]).read_text()
