"""DeepSpeed at every stage gives the numbers of DDP, on two processes; where its package is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import environment, free_port

pytest.importorskip("deepspeed")
pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("deepspeed_pair.py")


@pytest.fixture(scope="module", params=[0, 1, 2, 3])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp(f"stage-{request.param}")
    port, around = f"--master_port={free_port()}", environment(CUDA_VISIBLE_DEVICES="")
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", port, str(SCRIPT)]
    done = subprocess.run(
        [*line, str(folder), str(request.param)], env=around, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = [json.loads((folder / f"rank-{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]
    assert all(rank["straight"]["stage"] == request.param for rank in found)
    found[0]["files"] = sorted(path.name for path in (folder / "straight" / "checkpoint-6").iterdir())
    return found


def test_losses_norms_rates_and_weights_are_those_of_ddp(both: list[dict[str, Any]]) -> None:
    for rank in both:
        plain, found = rank["plain"], rank["straight"]
        assert (plain["wrapper"], found["wrapper"]) == ("DistributedDataParallel", "DeepSpeedEngine")
        assert found["rates"] == plain["rates"]
        assert found["losses"] == pytest.approx(plain["losses"], abs=1e-5)
        assert found["norms"] == pytest.approx(plain["norms"], rel=1e-3)
        assert found["eval"] == pytest.approx(plain["eval"], abs=1e-5)
        for name, values in plain["weights"].items():
            assert found["weights"][name] == pytest.approx(values, abs=1e-4)


def test_a_run_that_is_resumed_ends_where_a_straight_one_ends(both: list[dict[str, Any]]) -> None:
    for rank in both:
        assert rank["resumed"]["losses"] == pytest.approx(rank["straight"]["losses"], abs=1e-6)
        for name, values in rank["straight"]["weights"].items():
            assert rank["resumed"]["weights"][name] == pytest.approx(values, abs=1e-6)


def test_a_checkpoint_holds_whole_weights_and_the_state_of_deepspeed(both: list[dict[str, Any]]) -> None:
    wanted = {"model.safetensors", "optimizer_0", "scheduler.pt", "trainer_state.json", "rng_state_0.pth", "latest"}
    assert wanted <= set(both[0]["files"])


def test_in_half_precision_it_learns_as_well(both: list[dict[str, Any]]) -> None:
    for rank in both:
        plain, half = rank["plain"], rank["half"]
        assert half["losses"] == pytest.approx(plain["losses"], abs=0.02)
        assert half["norms"] == pytest.approx(plain["norms"], rel=0.02)
        assert half["rates"] == plain["rates"]
        assert half["losses"] != plain["losses"]  # it was at work
