"""Killed at random times and inside saves, then started again by the very same command: nothing must show it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.tiers import some

HARNESS = Path(__file__).with_name("resume_harness.py")
RUNS = int(os.environ.get("XDPX_KILLS", "1"))
"""Runs per variant, each killed up to three times. `make faults` takes more; XDPX_KILLS=200 makes a night of it."""

VARIANTS = some(
    ["plain", "best and last", "accumulated and averaged", "lazy", "joined", "staged", "masked", "by score"],
    ["accumulated and averaged"],
)
"""That with the most to go on with; the test below keeps best and last."""


def campaign(folder: Path, *variants: str, runs: int) -> list[dict[str, Any]]:
    command = [sys.executable, str(HARNESS), str(folder), "3", str(runs), "1", *variants]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=processes.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What became of the runs of all variants, which one process starts."""
    return campaign(tmp_path_factory.mktemp("killed"), *VARIANTS, runs=RUNS)


@pytest.mark.slow
@pytest.mark.timeout(300 + 420 * RUNS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_anywhere_and_started_again_everything_equals_the_undisturbed_run(
    told: list[dict[str, Any]], variant: str
) -> None:
    runs = [run for run in told if run["variant"] == variant]
    assert len(runs) == RUNS
    for run in runs:
        assert (run["code"], run["different"]) == (0, []), Path(run["output"]).read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_before_one_storage_operation_after_another_nothing_is_ever_lost(tmp_path: Path) -> None:
    runs = campaign(tmp_path, "short", runs=0)
    assert len(runs) > 3
    for run in runs:
        assert (run["code"], run["different"]) == (0, []), Path(run["output"]).read_text()
