"""A step of a real Slurm; skipped where none answers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes

PROGRAM = """
import os
from xdpx.launch.environment import LaunchKeys, adopt_launch
from xdpx.engines.pytorch import collectives, world
assert adopt_launch(LaunchKeys(init_method=INIT)) == 2
here = world.current(use_cpu=True)
told = collectives.gather_objects([here.rank, here.size, here.local_rank, os.environ["MASTER_PORT"]])
if here.rank == 0:
    print("told", told, flush=True)
world.leave()
"""


def answers() -> bool:
    if shutil.which("srun") is None:
        return False
    found = subprocess.run(["sinfo", "--noheader", "--states=idle,mix"], capture_output=True, text=True, timeout=30)
    return found.returncode == 0 and bool(found.stdout.strip())


@pytest.mark.slow
@pytest.mark.skipif(not answers(), reason="no Slurm answers here")
@pytest.mark.parametrize("place", ["auto", "tcp://127.0.0.1"])
def test_two_tasks_of_a_step_find_each_other(tmp_path: Path, place: str) -> None:
    port = str(processes.free_port())
    method = place if place == "auto" else f"{place}:{port}"
    (tmp_path / "program.py").write_text(PROGRAM.replace("INIT", repr(method)))
    line = ["srun", "--ntasks=2", "--overcommit", "--time=5", sys.executable, str(tmp_path / "program.py")]
    (ended,) = processes.run_together([line], [processes.environment()], seconds=240)
    assert ended.code == 0, ended.text
    assert "told [[0, 2, 0, " in ended.text
    assert "[1, 2, 1, " in ended.text
    assert place == "auto" or port in ended.text
