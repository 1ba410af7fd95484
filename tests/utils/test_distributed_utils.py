"""A process knows its place without importing torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.processes import fork_ranks
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


def test_a_process_alone_stops_before_the_next_item_once_it_was_told_and_closes_their_source() -> None:
    closed, seen = [], []

    def items() -> Generator[int]:
        try:
            yield from range(9)
        finally:
            closed.append(True)

    walk = distributed_utils.until_any(items(), lambda: len(seen) == 4)
    with pytest.raises(distributed_utils.StopTogether):
        seen.extend(walk)  # list.extend adds each at once
    assert (seen, closed) == ([0, 1, 2, 3], [True])
    assert list(distributed_utils.until_any(range(3), lambda: False)) == [0, 1, 2]


def test_processes_stop_together_whatever_their_numbers_of_items_and_when_all_are_done_none_does(
    tmp_path: Path,
) -> None:
    def end(rank: int, size: int, told_at: int) -> str:
        seen: list[int] = []
        try:
            for item in distributed_utils.until_any(range(size), lambda: rank == 1 and len(seen) >= told_at):
                seen.append(item)
        except distributed_utils.StopTogether:
            return "stopped"
        return "done"

    cases = [(9, 4, 3), (4, 9, 6), (0, 9, 2), (9, 9, 9)]  # items of each process; the one at which the second is told

    def work(rank: int) -> None:
        import torch.distributed as dist

        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo")
        ends = [end(rank, sizes[rank], told_at) for *sizes, told_at in cases]
        (tmp_path / f"{rank}.json").write_text(json.dumps(ends))
        dist.destroy_process_group()

    codes = fork_ranks(work, 2, str(tmp_path / "words"))
    assert codes == [0, 0], (tmp_path / "words-0.txt").read_text()
    ends = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert ends == [["stopped", "stopped", "stopped", "done"]] * 2
