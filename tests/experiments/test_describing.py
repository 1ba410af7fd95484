"""Experiments in words."""

from typing import Any

import pytest

from xdpx.engines.spmd.flops import Count
from xdpx.engines.spmd.peaks import GIB, Device
from xdpx.engines.spmd.planning import Memory, StepPlan, Tensor
from xdpx.engines.spmd.verdict import judge
from xdpx.experiments.describing import class_vars_text, facts_of, model_params_text, plan_text
from xdpx.experiments.registry import resolve


def a_plan(**changes: Any) -> StepPlan:
    memory = Memory(4 * GIB, 8 * GIB, 0, 0, 4 * GIB, 12 * GIB, 6 * GIB)
    given: dict[str, Any] = {
        "mesh": {"replica": 1, "data": 4, "mdl": 1}, "num_devices": 4, "parameters": 10**9, "memory": memory,
        "flops": Count(10**12), "rows": 128, "tokens": 128 * 1024,
        "buffers": [Tensor("lm/softmax", "f32[32768,32000]", 4 * GIB)], "seconds": {"compile": 1.0},
        "tensors": [Tensor("opt_state/mu/w", "float32[10]", 2 * GIB, copies=4)],
    }  # fmt: skip
    return StepPlan(**given | changes)


def test_fields_are_written_below_the_class_that_sets_them_last() -> None:
    text = class_vars_text(resolve("LmCloudSpmd2BLimitSteps")(PERCORE_BATCH_SIZE=2))
    assert "\nxdpx.experiments.lm.lm_cloud.LmCloudSpmd2BLimitSteps:\n    MAX_STEPS: 300\n" in text
    assert "    ICI_MESH_SHAPE: [1, 4, 1]\n" in text
    assert text.endswith("this experiment:\n    PERCORE_BATCH_SIZE: 2\n")


def test_what_follows_is_worked_out_and_not_written_by_hand() -> None:
    facts = facts_of(resolve("LmCloudSpmdPipelineMultislice2BCircular")())
    assert facts == {
        "devices": 8, "mesh": "stage 2 x replica 4 x data 1 x mdl 1",
        "across slices": "stage 2", "global batch": 128, "tokens per batch": 131072, "micro-batches": 16,
    }  # fmt: skip


def test_every_value_of_the_task_and_the_inputs_has_its_line() -> None:
    text = model_params_text(resolve("LmCloudSpmdTest")())
    assert "task.train.learner.optimizer.learning_rate : 0.00025\n" in text
    assert "datasets[0].batch_size : 4\n" in text
    assert "datasets : not resolved: TRAIN_DATA is not set." in model_params_text(resolve("C4SpmdAdam")())


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (64 * GIB, "it fits: 32.8 GiB of d are left"),
        (24 * GIB, "it may fit: on d 819.2 MiB are left at least use, 5.2 GiB lack at most"),
        (16 * GIB, "it does not fit: 6.8 GiB are missing on d"),
    ],
)
def test_a_plan_says_whether_it_fits(memory: int, words: str) -> None:
    plan = a_plan()
    text = plan_text("X", resolve("C4Spmd1BAdam4Replicas")(), plan, judge(plan, Device("d", 1e12, memory)))
    assert words in text
    assert "memory of a device       22.0 GiB to 28.0 GiB of" in text


def test_what_takes_most_is_blamed_and_a_remedy_that_is_taken_already_is_not_offered() -> None:
    plan = a_plan(memory=Memory(GIB, 2 * GIB, 0, 0, GIB, 20 * GIB, 18 * GIB))
    verdict = judge(plan, Device("d", 1e12, 16 * GIB))
    text = plan_text("X", resolve("C4Spmd1BAdam4Replicas")(), plan, verdict)
    assert "to blame: activations take 20.0 GiB of 24.0 GiB" in text
    assert "to blame: lm/softmax f32[32768,32000] (4.0 GiB) is made during the update" in text
    assert "CHECKPOINT_POLICY=save_nothing" not in text
    assert "CHECKPOINT_POLICY=save_nothing" in plan_text("X", resolve("C4SpmdAdam")(), plan, verdict)


def test_a_state_that_is_too_large_names_its_tensors_and_how_often_they_are_there() -> None:
    large = Memory(4 * GIB, 20 * GIB, 0, 0, 4 * GIB, GIB, GIB)
    verdict = judge(a_plan(memory=large), Device("d", 1e12, 16 * GIB))
    assert "opt_state/mu/w float32[10] (2.0 GiB), the same on 4 devices" in verdict.blame
    assert any("data 4 -> 8" in hint for hint in verdict.hints)
