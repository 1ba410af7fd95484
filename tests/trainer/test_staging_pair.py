"""A search on two processes: both train each trial, and a kill of the first one loses nothing."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
import torch

from tests.processes import environment, run_together, told
from tests.trainer.test_staging import weights


@pytest.mark.slow
def test_two_processes_search_together_and_a_killed_search_goes_on(tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("staged_pair.py"))
    (ended,) = run_together([[sys.executable, script, str(tmp_path)]], [environment(CUDA_VISIBLE_DEVICES="")])
    assert ended.code == 0, told([ended])
    calm, killed, again = json.loads((tmp_path / "codes.json").read_text())
    assert (calm, again) == ([0, 0], [0, 0]), "".join(path.read_text() for path in tmp_path.glob("words-*"))
    assert killed[0] == -signal.SIGKILL
    found = [
        json.loads((tmp_path / f"{name}-{rank}.json").read_text()) for name in ("calm", "killed") for rank in (0, 1)
    ]
    assert found == [found[0], None, found[0], None]
    for run in (tmp_path / "calm").glob("run-*"):
        mine, whole = weights(tmp_path / "killed" / run.name), weights(run)
        assert all(torch.equal(mine[name], whole[name]) for name in whole)
