from __future__ import annotations

from typing import Any

import pytest
import transformers

from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.arguments.hardware import has_bf16, has_tf32

REFUSED_BY_BOTH: list[tuple[dict[str, Any], str]] = [
    ({"fp16": True, "bf16": True, "use_cpu": True}, "bf16: and fp16 are both true"),
    ({"fp16_full_eval": True, "bf16_full_eval": True, "use_cpu": True}, "bf16_full_eval: and fp16_full_eval"),
    ({"torch_empty_cache_steps": 0}, "torch_empty_cache_steps: is 0. Use 1 or more"),
    ({"torch_empty_cache_steps": 1.0}, "torch_empty_cache_steps: is 1.0. Use a whole number"),
    ({"logging_steps": 0}, "logging_steps: is 0, and logging_strategy is 'steps'"),
    ({"logging_steps": 1.5}, "logging_steps: is 1.5. Use a whole number, or a share"),
    ({"eval_strategy": "steps", "eval_steps": 2.5}, "eval_steps: is 2.5"),
    ({"eval_strategy": "steps", "logging_steps": 0}, "eval_steps: is 0.*Give eval_steps or logging_steps"),
    ({"save_steps": 1.5}, "save_steps: is 1.5"),
    ({"load_best_model_at_end": True}, "eval_strategy is 'no', save_strategy is 'steps'"),
    ({"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "no"}, "Set save_strategy to"),
    ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "'reduce_lr_on_plateau', which needs scores"),
    ({"lr_scheduler_type": "greedy"}, "'greedy', which needs scores"),
    ({"warmup_steps": -1}, "warmup_steps: is -1"),
    ({"dataloader_prefetch_factor": 2}, "no workers load data"),
    ({"optim": "adamm"}, "optim: no 'adamm' is known"),
    ({"debug": "overflow"}, "debug: no 'overflow' is known"),
    ({"fsdp": "shard_all"}, "fsdp: no 'shard_all' is known"),
]  # fmt: skip


REFUSED_BY_THE_ORIGINAL: list[dict[str, Any]] = [
    {"load_best_model_at_end": True, "eval_strategy": "epoch"},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 3, "save_steps": 4},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.3, "save_steps": 4},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.2, "save_steps": 0.3},
]


@pytest.mark.parametrize("case", REFUSED_BY_THE_ORIGINAL, ids=str)
def test_the_best_model_may_be_wanted_whatever_the_intervals(case: dict[str, Any]) -> None:
    assert TrainingArguments(**case).load_best_model_at_end


@pytest.mark.parametrize(("case", "told"), REFUSED_BY_BOTH, ids=lambda value: "-".join(value))
@pytest.mark.filterwarnings("ignore")
def test_what_the_original_refuses_is_refused_with_the_same_class(case: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError):
        transformers.TrainingArguments("x", **case)
    with pytest.raises(ValueError, match=told):
        TrainingArguments("x", **case)


ACCEPTED: list[dict[str, Any]] = [
    {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.1, "save_steps": 0.3},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 4},
    {
        "load_best_model_at_end": True,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_steps": 4,
        "save_strategy": "best",
    },
    {"load_best_model_at_end": True, "save_strategy": "no"},
    {"load_best_model_at_end": True, "save_strategy": "best"},
    {"logging_strategy": "epoch", "logging_steps": 0},
    {"dataloader_prefetch_factor": 2, "dataloader_num_workers": 1},
    {"bf16": True, "use_cpu": True},
    {"max_grad_norm": 0, "num_train_epochs": 0.5, "save_total_limit": 0},
    {"max_steps": 5, "num_train_epochs": -1},
]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: "-".join(case))
def test_what_fits_together_is_accepted(case: dict[str, Any]) -> None:
    transformers.TrainingArguments("x", **case)
    TrainingArguments("x", **case)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("per_device_train_batch_size", 0, "Use 1 or more"),
        ("gradient_accumulation_steps", 0, "Use 1 or more"),
        ("learning_rate", -1.0, "Use 0 or more"),
        ("learning_rate", float("nan"), "is nan"),
        ("max_grad_norm", float("nan"), "is nan. Use a number, 0 for no clipping"),
        ("label_smoothing_factor", 2.0, "Use from 0 to 1"),
        ("seed", 2**32, "Use from 0 to 4294967295"),
        ("ddp_timeout", 0, "Use more than 0"),
        ("save_steps", -3, "is -3"),
        ("log_level", "warnings", "Did you mean 'warning'"),
        ("train_sampling_strategy", "by_length", "Did you mean 'group_by_length'"),
        ("dataloader_multiprocessing_context", "thread", "fork, spawn, forkserver"),
        ("include_num_input_tokens_seen", "some", "no 'some' is known"),
        ("num_train_epochs", -1, "is -1. Use 0 or more, or set max_steps"),
        ("num_train_epochs", float("nan"), "is nan"),
        ("dataloader_persistent_workers", True, "no workers load data"),
        ("swa_interval", 3, "is 3, and swa_start is None: no weights are averaged"),
    ],
)
def test_a_value_that_would_fail_only_later_is_refused_at_once(name: str, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{told}"):
        TrainingArguments("x", **{name: value})


def test_bf16_without_an_accelerator_for_it_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    if has_bf16():
        pytest.skip("there is one")
    with pytest.raises(ValueError, match="bf16: is true.*Set use_cpu=True"):
        TrainingArguments(bf16=True)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert TrainingArguments(bf16=True).mixed_precision == "bf16"


def test_tf32_without_a_gpu_for_it_is_refused() -> None:
    if has_tf32():
        pytest.skip("there is one")
    with pytest.raises(ValueError, match="tf32: is true"):
        TrainingArguments(tf32=True)


def test_a_remote_output_dir_cannot_be_pushed_from() -> None:
    with pytest.raises(ValueError, match="uploads only from this machine; output_dir is 's3://bucket/run'"):
        TrainingArguments("s3://bucket/run", push_to_hub=True)
    assert TrainingArguments("s3://bucket/run").output_dir == "s3://bucket/run"
