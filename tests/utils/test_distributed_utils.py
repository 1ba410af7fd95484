"""A process knows its place without importing torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xdpx.utils import distributed_utils


def test_a_process_alone_is_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert distributed_utils.is_master()
    assert distributed_utils.is_master(object())
    assert (distributed_utils.get_rank(), distributed_utils.get_world_size()) == (0, 1)
    distributed_utils.barrier()


def test_the_environment_of_a_launcher_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (distributed_utils.get_rank(), distributed_utils.get_world_size()) == (3, 4)
    assert not distributed_utils.is_master()


TWO = """
import sys, torch.distributed as dist
from xdpx.utils import distributed_utils as d
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
d.barrier()
print(d.get_rank(), d.get_world_size(), d.is_master())
"""


@pytest.mark.slow
def test_a_process_group_is_believed_more(tmp_path: Path) -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, str(tmp_path / "meet"), str(rank)],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        )
        for rank in (0, 1)
    ]  # fmt: skip
    assert [run.communicate(timeout=300)[0] for run in runs] == ["0 2 True\n", "1 2 False\n"]


def test_the_loss_of_another_process_is_told_from_other_errors() -> None:
    gone = "UNKNOWN: Gloo all-reduce failed: Read error [127.0.0.1]:20118: Connection reset by peer"
    assert distributed_utils.is_lost_peer(RuntimeError("[pair.cc:534] Connection closed by peer [10.0.0.1]:9"))
    assert distributed_utils.is_lost_peer(ValueError(gone))
    assert not distributed_utils.is_lost_peer(ValueError("row 3: Connection reset by peer"))
    assert not distributed_utils.is_lost_peer(RuntimeError("no such key"))
