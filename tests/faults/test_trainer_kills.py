"""A training is killed at random moments, and inside its saves: what it leaves at its end is the same."""

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

HARNESS = Path(__file__).with_name("trainer_harness.py")
KILLS = 3 * int(os.environ.get("XDPX_KILLS", "1"))
"""SIGKILLs per variant. `make faults` takes more."""

VARIANTS = some(["plain", "best", "accumulated", "background"], ["best"])
"""The best is saved and deleted as the plain one is, and more; test_trainer_elastic_kills.py accumulates."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What became of the runs of all variants, which one process starts."""
    command = [sys.executable, str(HARNESS), str(tmp_path_factory.mktemp("killed")), str(KILLS), "1", *VARIANTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=processes.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(300 + 80 * KILLS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_anywhere_a_training_ends_with_the_weights_of_the_undisturbed_one(
    told: list[dict[str, Any]], variant: str
) -> None:
    runs = [run for run in told if run["variant"] == variant]
    assert sum(run["kills"] for run in runs) >= KILLS
    for run in runs:
        assert (run["code"], run["different"]) == (0, []), f"{run}\n{Path(run['output']).read_text()}"
