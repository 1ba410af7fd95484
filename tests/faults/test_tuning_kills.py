"""A search whose driver and trials are killed at random ends with the decisions and the bits of an undisturbed one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.tiers import nightly

HARNESS = Path(__file__).with_name("tuning_harness.py")
KILLS = int(os.environ.get("XDPX_KILLS", "1"))
"""`make faults` takes ten times as many; XDPX_KILLS=20 is 60 kills."""


@nightly("tests/trainer/test_staging.py::test_a_search_that_is_killed_anywhere_decides_and_trains_the_same")
@pytest.mark.slow
@pytest.mark.timeout(300 + 120 * KILLS)
@pytest.mark.parametrize("schedule", ["asha", "bracket"] if KILLS > 1 else ["asha"])
def test_killed_anywhere_a_search_decides_and_trains_as_if_undisturbed(tmp_path: Path, schedule: str) -> None:
    command = [sys.executable, str(HARNESS), str(tmp_path / "killed"), str(4 + KILLS), str(3 * KILLS), "1", schedule]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=processes.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["compared"] > 2 + KILLS
    assert (told["code"], told["different"]) == (0, []), Path(told["output"]).read_text()
