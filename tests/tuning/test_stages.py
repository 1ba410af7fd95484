"""A stage goes on with the very run; what an error of training means for its trial and for the search."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.training.status import read_status
from xdpx.tuning.objective import progress_of
from xdpx.tuning.plan import Plan
from xdpx.tuning.stages import Stage, outcome_of, reached, train_to


def stage_of(plan: Plan, trial: int, samples: int, *, values: dict[str, object] | None = None) -> Stage:
    return plan.stages_of(plan.runs_of(trial, values or {}), trial, samples)[0]


def weights_of(stage: Stage) -> list[torch.Tensor]:
    state = Checkpointer(stage.folder).load_state(12)
    return [part for part in state["engine"]["model"].values() if isinstance(part, torch.Tensor)]


def test_a_run_that_is_promoted_twice_ends_with_the_bits_of_one_that_never_stopped(
    planned: Callable[..., Plan],
) -> None:
    plan = planned()
    for samples in (64, 128, 192):  # the last two stages are equally long
        assert train_to(stage_of(plan, 0, samples)).kind == "done"
        assert read_status(stage_of(plan, 0, samples).folder).step == samples // 16  # type: ignore[union-attr]
    assert train_to(stage_of(plan, 1, 192)).kind == "done"
    pairs = list(zip(weights_of(stage_of(plan, 0, 192)), weights_of(stage_of(plan, 1, 192)), strict=True))
    assert len(pairs) > 3
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_stage_that_was_done_before_a_kill_is_not_trained_again(planned: Callable[..., Plan]) -> None:
    stage = stage_of(planned(), 0, 64)
    assert not reached(stage)
    train_to(stage)
    before = Path(stage.folder, "valid.log.tsv").stat().st_mtime_ns
    assert reached(stage)
    assert train_to(stage).kind == "done"
    assert Path(stage.folder, "valid.log.tsv").stat().st_mtime_ns == before


def test_a_run_that_x_train_took_to_its_end_is_compared_as_far_as_its_stage(planned: Callable[..., Plan]) -> None:
    plan = planned()
    train_to(stage_of(plan, 0, 192))
    assert train_to(stage_of(plan, 0, 64)).kind == "done"
    part = progress_of(stage_of(plan, 0, 64))
    assert (part.samples, part.over, [seen for seen, _ in part.curve]) == (64, False, [64])
    assert progress_of(stage_of(plan, 0, 192)).over


def test_a_run_that_a_rule_of_its_own_ended_does_not_go_on(planned: Callable[..., Plan]) -> None:
    plan = planned(base={"tolerance": 1, "eval_interval": 1})
    train_to(stage_of(plan, 0, 160))
    first = read_status(stage_of(plan, 0, 160).folder)
    assert first is not None
    assert first.step < 10
    assert train_to(stage_of(plan, 0, 192)).kind == "done"
    assert read_status(stage_of(plan, 0, 192).folder) == first


def test_a_trial_that_diverges_has_failed_and_says_why(planned: Callable[..., Plan]) -> None:
    outcome = train_to(stage_of(planned(base={"clip_norm": 0}), 0, 192, values={"learning_rate": 1e38}))
    assert outcome.kind == "failed"
    assert "diverged" in outcome.reason


def test_a_run_whose_states_are_all_damaged_is_set_aside_and_begun_again(planned: Callable[..., Plan]) -> None:
    plan = planned()
    train_to(stage_of(plan, 0, 64))
    for state in Path(stage_of(plan, 0, 64).folder).glob("*.pts"):
        state.write_bytes(b"damage")
    assert train_to(stage_of(plan, 0, 128)).kind == "done"
    assert read_status(stage_of(plan, 0, 128).folder).step == 8  # type: ignore[union-attr]
    assert Path(f"{stage_of(plan, 0, 64).folder}.damaged-1").is_dir()


def test_memory_is_the_trials_fault_and_a_full_disk_is_nobodys() -> None:
    assert outcome_of(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")).kind == "failed"
    assert outcome_of(ZeroDivisionError("in a model")).reason == "ZeroDivisionError: in a model"
    assert outcome_of(OSError(errno.ENOSPC, "No space left on device")).kind == "world"


def test_a_stage_that_is_interrupted_keeps_its_end(planned: Callable[..., Plan]) -> None:
    from xdpx.tuning.stages import continuing

    stage = stage_of(planned(), 0, 128)
    train_to(replace(stage, until=4))
    status = read_status(stage.folder)
    assert status is not None
    replace(status, status="preempted", until=8, train_steps=4).write(stage.folder)
    assert continuing(stage).values["train_steps"] == 4
    assert continuing(replace(stage, until=12, total=12)).values["train_steps"] is None
