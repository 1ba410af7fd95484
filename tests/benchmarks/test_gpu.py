"""`python -m benchmarks gpu`: in small from end to end, and what decides whether a promise is kept."""

from __future__ import annotations

import runpy
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu, report
from benchmarks.report import Row
from benchmarks.work import PeerFailed
from tests import processes

TAKEN = {"loss": 0.7, "skipped": False, "moved": True, "scale_before": 64.0, "scale": 64.0}
SKIPPED = {"loss": 7e5, "skipped": True, "moved": False, "scale_before": 128.0, "scale": 64.0}
BEFORE = TAKEN | {"scale_before": 128.0, "scale": 128.0}


def test_a_machine_that_shows_no_gpu_has_none_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu.ONE_GPU, "CUDA_VISIBLE_DEVICES", "")
    assert gpu.gpu_at_hand() is None


@pytest.mark.slow
def test_all_parts_run_in_small_without_a_gpu_and_keep_what_does_not_depend_on_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command runs in this process, so that those it starts are forked (tests/warm_starts.py)."""
    page = tmp_path / "results.md"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "gpu", "--small", "--results", str(page)])
    for name, value in processes.environment(JAX_DISABLE_MOST_OPTIMIZATIONS="1").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("benchmarks", run_name="__main__")
    assert ended.value.code == 0, capfd.readouterr()
    written = page.read_text(encoding="utf-8")
    assert "## GPU: in small on the CPU" in written
    assert all(f"| {what}" in written for what in ("fp16", "DDP", "FSDP2", "BERT", "decoder", "tokens/s"))
    assert "| NO |" not in written


def test_the_process_that_starts_the_parts_uses_neither_torch_nor_jax() -> None:
    code = "import sys, benchmarks.__main__; print(sorted({'torch', 'jax'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=processes.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_part_whose_time_is_over_is_told_and_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Row("the next", "1.00x", ">= 1.0x", True)
    late, after = ("late", "strategies", 0, gpu.strategies), ("next", "fp16", 1, lambda *_: iter([fine]))
    monkeypatch.setattr(gpu, "PARTS", [late, after])
    first, second = gpu.measure("NVIDIA H200")  # in small there is no such end
    assert (first.what, first.kept, second) == ("late", False, fine)
    assert "one_device.py none was stopped after 0 s" in first.measured


@pytest.mark.parametrize(
    ("updates", "told"),
    [
        ([BEFORE, SKIPPED, TAKEN], []),
        ([SKIPPED | {"scale_before": 256.0, "scale": 128.0}, SKIPPED, TAKEN], []),
        ([BEFORE, BEFORE, BEFORE], ["update 2 was not skipped"]),
        ([BEFORE, SKIPPED | {"moved": True}, TAKEN], ["update 2: weights moved"]),
        ([BEFORE, SKIPPED | {"scale": 128.0}, TAKEN], ["update 2: scale 128 to 128"]),
        ([BEFORE, SKIPPED, SKIPPED], ["the last update was skipped"]),
        ([BEFORE, SKIPPED, TAKEN | {"moved": False}], ["update 3: weights stood"]),
        ([BEFORE, SKIPPED, TAKEN | {"loss": float("nan")}], ["update 3: loss nan"]),
    ],
)
def test_an_overflow_is_skipped_halves_the_scale_and_training_goes_on(
    updates: list[dict[str, Any]], told: list[str]
) -> None:
    assert gpu.faults_of(updates, 1) == told


def test_mfu_counts_six_flops_per_weight_and_token_and_attention() -> None:
    spec, told = {"layers": 2, "dims": 100, "length": 50}, {"weights": 10**9, "tokens_per_second": 1e5}
    flops = 6e9 + 12 * 2 * 100 * 50
    assert gpu.mfu("NVIDIA H200", spec, told, causal=False) == pytest.approx(flops * 1e5 / 989e12)
    assert gpu.mfu(None, spec, told, causal=False) is None


def test_losses_that_are_missing_or_not_finite_are_infinitely_far_apart() -> None:
    assert gpu.largest_difference([1.0, 2.0], [1.0, 2.5]) == 0.5
    for ours in ([1.0], [1.0, float("nan")], [float("inf"), 2.0], []):
        assert gpu.largest_difference(ours, [1.0, 2.0]) == gpu.largest_difference([], []) == float("inf")


ROUND = ({"tokens_per_second": 90.0, "peak_bytes": 2**31}, {"tokens_per_second": 100.0, "peak_bytes": 2**30})


def test_speed_mfu_and_memory_are_bounded_on_a_gpu_and_only_shown_in_small() -> None:
    bounds = {"speed": 1.0, "memory": 1.5, "utilisation": 0.5}
    rows = list(gpu.compared(gpu.Stage("NVIDIA H200", 0), "it", "the other's", [ROUND], [[0.4, 0.5]], **bounds))
    assert [(row.measured, row.kept) for row in rows] == [("0.90x", False), ("0.40", False), ("2.00x", False)]
    unknown = gpu.compared(gpu.Stage(None, 0), "it", "the other's", [ROUND], [[None, None]], **bounds)
    assert [(row.measured, row.kept) for row in unknown] == [("0.90x", True), ("2.00x", True)]


@dataclass(frozen=True)
class Recorded(gpu.Stage):
    """A stage whose processes only take their time, and of which the third round fails."""

    seen: list[str] = field(default_factory=list)

    def run(self, script: str, name: str, spec: gpu.Spec) -> gpu.Told:
        self.seen.append(name)
        time.sleep(0.01)
        if len(self.seen) == 5:
            raise PeerFailed("out of memory")
        return {"name": name}


def test_rounds_alternate_and_those_before_a_failure_count() -> None:
    stage = Recorded("NVIDIA H200", time.monotonic() + 60)
    assert stage.in_turn("script.py", "ours", "other", {}) == [({"name": "ours"}, {"name": "other"})] * 2
    assert stage.seen == ["ours", "other", "other", "ours", "ours"]


def test_a_round_begins_only_where_it_may_end_in_time() -> None:
    stage = Recorded("NVIDIA H200", time.monotonic() + 0.03)
    assert len(stage.in_turn("script.py", "ours", "other", {})) == 1


def test_sections_that_are_not_measured_keep_their_date(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    page.write_text("# Benchmarks\n\n## Loop\n\n2020-01-02 · one core\n\n| a |\n\n## GPU\n\nold\n", encoding="utf-8")
    report.write_results({"GPU": [Row("new", "1x", "", True)]}, page)
    written = page.read_text(encoding="utf-8")
    assert "## Loop\n\n2020-01-02 · one core\n\n| a |" in written
    assert "| new | 1x |" in written
    assert "old" not in written
