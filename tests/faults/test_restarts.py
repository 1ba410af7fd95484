"""x-train's own launcher: a process is killed, another one frozen; all go on by themselves, to the same bits."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from tests import processes
from tests.journeys.test_many_devices import make_data, write

MODULE = """
import os, signal
from xdpx import TrainerCallback

class Faulty(TrainerCallback):
    def on_step_end(self, args, state, control, **brought):
        now = os.environ["XDPX_RESTARTS"], os.environ["RANK"], state.global_step
        if os.environ["FAULTY"] == "1" and now == ("0", "1", 23):
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ["FAULTY"] == "1" and now == ("1", "0", 37):
            os.kill(os.getpid(), signal.SIGSTOP)  # here it freezes
"""
RUN = {
    "nproc": 2, "callbacks": ["faulty:Faulty"], "max_update": 50, "eval_interval": 25, "memory_copy_interval": 5,
    "hang_seconds": 4, "save_in_background": True, "dropout": 0.1, "plots": False,
}  # fmt: skip


def copies_in_memory() -> set[Path]:
    """Return the copies of all runs of this user, also of those that were killed for good."""
    return set(Path(f"/dev/shm/xdpx-{os.getuid()}").glob("*/checkpoint-*"))


@pytest.mark.slow
def test_a_run_whose_processes_are_killed_and_frozen_ends_with_the_bits_of_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = copies_in_memory()
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/faulty.py").write_text(MODULE)
    make_data(tmp_path)
    lines = [["x-prepro", "prepro.json"], write(tmp_path, "faulty", RUN), write(tmp_path, "undisturbed", RUN)]
    words = []
    for line in lines:
        here = processes.environment(
            FAULTY=str(int(line[1] == "faulty.json")), XDPX_USER_MODULES=str(tmp_path / "modules")
        )
        (ended,) = processes.run_together([[sys.executable, "-m", "xdpx.run", *line]], [here], seconds=240)
        assert ended.code == 0, ended.text[-4000:]
        words.append(ended.text)
    assert "all are started again (2 of 3 times)" in words[1]
    assert words[1].count("is resumed from its copy in memory") == 2
    assert "on_step_end" in "".join(path.read_text() for path in (tmp_path / "faulty/stacks").glob("*-rank-0.txt"))
    assert json.loads((tmp_path / "faulty/status.json").read_text())["status"] == "finished"
    one, other = (torch.load(tmp_path / name / "checkpoint-50.pt") for name in ("faulty", "undisturbed"))
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert copies_in_memory() <= before
