"""One of two processes is told to end: both stop at the same step with a whole checkpoint, and go on exactly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import environment, free_port
from xdpx.checkpoints import folders
from xdpx.training.preemption import EXIT_CODE

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("signalled_pair.py")


def launched(folder: Path, *, killed: int = -1, at: int = -1, sharding: str = "none", **more: str) -> Any:
    port = f"--master_port={free_port()}"
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", port, str(SCRIPT)]
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [*line, str(folder), str(killed), str(at), sharding],
        env=environment(CUDA_VISIBLE_DEVICES="", **more), capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip


def told(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{name}-{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]


CASES = [(0, "none", {}), (1, "none", {"XDPX_SAVE_IN_BACKGROUND": "1"}), (1, "full_shard", {})]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    done = launched(folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return told(folder, "rank")


@pytest.mark.parametrize(("killed", "sharding", "more"), CASES)
def test_a_signal_to_one_process_stops_both_at_a_step_from_which_they_go_on_exactly(
    killed: int, sharding: str, more: dict[str, str], undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    stopped = launched(tmp_path, killed=killed, at=10, sharding=sharding, **more)
    assert stopped.returncode != 0
    both = told(tmp_path, "stopped")
    assert both[0] == both[1]
    step = both[0]["step"]
    assert both[0]["code"] == EXIT_CODE, stopped.stderr[-4000:]
    assert 11 <= step < 20  # not at the end of the epoch, where it is saved in any case
    assert folders.newest(str(tmp_path / "out")) == str(tmp_path / "out" / f"checkpoint-{step}")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"checkpoint-{step}", "status.json"]
    assert json.loads((tmp_path / "out" / "status.json").read_text())["status"] == "preempted"
    resumed = launched(tmp_path, sharding=sharding)
    assert resumed.returncode == 0, resumed.stderr[-4000:]
    for found, wanted in zip(told(tmp_path, "rank"), undisturbed, strict=True):
        assert found["losses"] == pytest.approx(wanted["losses"], abs=1e-6)
        if sharding == "none":
            assert found == wanted
        else:
            for name, values in wanted["weights"].items():
                assert flat(found["weights"][name]) == pytest.approx(flat(values), abs=1e-6)


def flat(values: Any) -> list[float]:
    return [leaf for each in values for leaf in flat(each)] if isinstance(values, list) else [values]
