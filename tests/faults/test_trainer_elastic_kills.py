"""A rank of a Trainer is killed again and again under torchrun, which starts all anew: the end is the same."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import processes
from tests.tiers import LONG

SCRIPT = str(Path(__file__).with_name("elastic_pair.py"))
KILLS = (2 if LONG else 1) * int(os.environ.get("XDPX_KILLS", "1"))


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * KILLS)
def test_a_rank_that_is_killed_again_and_again_under_torchrun_changes_no_bit(tmp_path: Path) -> None:
    line = [sys.executable, SCRIPT, str(tmp_path), str(KILLS)]
    here = processes.environment(CUDA_VISIBLE_DEVICES="")
    (ended,) = processes.run_together([line], [here], seconds=240 + 60 * KILLS)
    assert ended.code == 0, ended.text[-4000:]
    assert ended.text.count("training: 96 examples") >= KILLS + 2
    killed, undisturbed = (load_file(tmp_path / name / "last/model.safetensors") for name in ("killed", "undisturbed"))
    assert killed.keys() == undisturbed.keys()
    assert all(torch.equal(killed[name], undisturbed[name]) for name in killed)
