"""One of two processes is told to end: both stop at the same step with a whole checkpoint, and go on exactly."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import environment, free_port, run_together, told
from tests.tiers import some
from tests.trainer.signalled_pair import left_in
from xdpx.training.preemption import EXIT_CODE

pytestmark = pytest.mark.slow
SCRIPT = str(Path(__file__).with_name("signalled_pair.py"))
CASES = {
    "torchrun": {"killed": 0, "by": "torchrun"},
    "background": {"killed": 1, "environment": {"XDPX_SAVE_IN_BACKGROUND": "1"}},
    "full_shard": {"killed": 1, "fsdp": "full_shard"},
    "in evaluation": {"killed": 1, "in_evaluation": True},
    "in evaluation, full_shard": {"killed": 0, "in_evaluation": True, "fsdp": "full_shard"},
}
NAMES = some(CASES, ["torchrun", "in evaluation, full_shard"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each case was stopped, the first by a launcher, and then went on; and where nothing disturbed."""
    folder = tmp_path_factory.mktemp("signalled")
    usual = {"killed": -1, "fsdp": "", "environment": {}, "by": "", "in_evaluation": False}
    stages = {"undisturbed": {**usual, "folder": "undisturbed"}}
    for name in NAMES:
        case = CASES[name]
        stages[f"{name}, stopped"] = {**usual, **case, "folder": name}
        stages[f"{name}, resumed"] = {**usual, **case, "folder": name, "killed": -1, "by": ""}
    for stage in stages.values():
        (folder / str(stage["folder"])).mkdir(exist_ok=True)
    (folder / "stages.json").write_text(json.dumps(stages))
    here = environment(CUDA_VISIBLE_DEVICES="")
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={free_port()}"]
    (launched,) = run_together([[sys.executable, *launcher, SCRIPT, str(folder), "torchrun, stopped"]], [here])
    by_torchrun = {"codes": [launched.code], **left_in(folder / "torchrun/out")}
    (ended,) = run_together([[sys.executable, SCRIPT, str(folder)]], [here])
    assert ended.code == 0, told([ended])
    every = json.loads((folder / "ended.json").read_text()) | {"torchrun, stopped": by_torchrun}
    (folder / "ended.json").write_text(json.dumps(every))
    return folder


def found(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{name}-{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_to_one_process_stops_both_at_a_step(place: Path, name: str) -> None:
    ended = json.loads((place / "ended.json").read_text())[f"{name}, stopped"]
    both = found(place / name, "stopped")
    assert both[0] == both[1]
    assert both[0]["code"] == EXIT_CODE
    assert set(ended["codes"]) == ({1} if name == "torchrun" else {EXIT_CODE})  # a launcher has one for all failures
    step = both[0]["step"]
    assert (
        step == 15 if "in evaluation" in name else 11 <= step < 20
    )  # not at the end of the epoch, where it is saved in any case
    assert (ended["newest"], ended["status"]) == (f"checkpoint-{step}", "preempted")
    assert ended["names"] == [f"checkpoint-{step}", "metrics.jsonl", "status.json"]


@pytest.mark.parametrize("name", NAMES)
def test_from_the_step_at_which_both_were_stopped_they_go_on_exactly(place: Path, name: str) -> None:
    step = found(place / name, "stopped")[0]["step"]
    assert json.loads((place / "ended.json").read_text())[f"{name}, resumed"]["codes"] == [0, 0]
    words = [(place / f"{name}, resumed-{rank}.txt").read_text() for rank in (0, 1)]
    assert any(f"continuing from {name}/out/checkpoint-{step}, at step {step}" in each for each in words), words
    for went_on, wanted in zip(found(place / name, "rank"), found(place / "undisturbed", "rank"), strict=True):
        assert went_on["losses"] == pytest.approx(wanted["losses"], abs=1e-6)
        if "full_shard" not in name:
            assert went_on == wanted
        for weight, values in wanted["weights"].items():
            assert flat(went_on["weights"][weight]) == pytest.approx(flat(values), abs=1e-6)


def flat(values: Any) -> list[float]:
    return [leaf for each in values for leaf in flat(each)] if isinstance(values, list) else [values]
