from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xdpx.config.faults import ConfigError
from xdpx.logger import log
from xdpx.trainer.arguments import AcceleratorConfig, TrainingArguments


def test_no_folder_named_means_trainer_output_and_a_tilde_is_the_home_folder() -> None:
    assert TrainingArguments().output_dir == "trainer_output"
    assert TrainingArguments("~/runs").output_dir == str(Path.home() / "runs")
    assert TrainingArguments(Path("runs") / "a").output_dir == "runs/a"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("learning_rate", "1e-4", 1e-4),
        ("max_steps", "7", 7),
        ("max_steps", 1e3, 1000),
        ("do_train", "true", True),
        ("do_train", "False", False),
        ("tf32", "no", False),
        ("num_train_epochs", 2, 2),
        ("per_device_train_batch_size", np.int64(4), 4),
        ("weight_decay", np.float32(0.5), 0.5),
        ("learning_rate", torch.tensor(0.25), 0.25),
    ],
)
def test_numbers_and_flags_may_come_as_text_or_from_numpy(name: str, given: Any, taken: Any) -> None:
    value = getattr(TrainingArguments(**{name: given}), name)
    assert value == taken
    assert type(value) is type(taken)


@pytest.mark.parametrize("name", ["label_names", "include_for_metrics"])
def test_names_in_one_text_are_a_list(name: str) -> None:
    assert getattr(TrainingArguments(**{name: "labels"}), name) == ["labels"]
    assert getattr(TrainingArguments(**{name: "starts, ends"}), name) == ["starts", "ends"]


def test_a_whole_number_stays_one_where_shares_are_possible() -> None:
    made = TrainingArguments(logging_steps=10.0, warmup_steps=3, eval_strategy="steps")
    assert (type(made.logging_steps), type(made.eval_steps), type(made.warmup_steps)) == (int, int, int)


def test_a_dict_may_be_json_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "kwargs.json"
    file.write_text(json.dumps({"num_cycles": 2}))
    assert TrainingArguments(lr_scheduler_kwargs=str(file)).lr_scheduler_kwargs == {"num_cycles": 2}
    assert TrainingArguments(lr_scheduler_kwargs='{"a": {"b": "1"}}').lr_scheduler_kwargs == {"a": {"b": 1}}
    assert TrainingArguments(deepspeed="ds.json").deepspeed == "ds.json"


@pytest.mark.parametrize("text", ["{'a': 1}", "nowhere.json", "[1]"])
def test_what_is_no_dict_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="TrainingArguments: 1 fault\n  lr_scheduler_kwargs: "):
        TrainingArguments(lr_scheduler_kwargs=text)


def test_evaluating_follows_from_a_strategy_and_its_interval_from_that_of_the_log() -> None:
    made = TrainingArguments(eval_strategy="steps", logging_steps=20)
    assert (made.do_eval, made.eval_steps) == (True, 20)
    assert TrainingArguments().do_eval is False


def test_the_best_model_is_by_default_that_of_the_lowest_loss() -> None:
    best = {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch"}
    made = TrainingArguments(**best)  # type: ignore[arg-type]
    assert (made.metric_for_best_model, made.greater_is_better) == ("loss", False)
    assert TrainingArguments(metric_for_best_model="f1").greater_is_better is True
    assert TrainingArguments(metric_for_best_model="eval_loss").greater_is_better is False
    assert TrainingArguments().greater_is_better is None


def test_gradient_checkpointing_and_its_name_today_say_the_same() -> None:
    for name in ("gradient_checkpointing", "activation_checkpointing"):
        made = TrainingArguments(**{name: True})  # type: ignore[arg-type]
        assert made.gradient_checkpointing is made.activation_checkpointing is True
    assert TrainingArguments().gradient_checkpointing is False
    given = TrainingArguments(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False})
    assert given.activation_checkpointing_kwargs == {"use_reentrant": False}


def test_a_backend_or_a_mode_turns_compilation_on() -> None:
    assert TrainingArguments(torch_compile_backend="eager").torch_compile
    assert TrainingArguments(torch_compile_mode="default").torch_compile_backend == "inductor"


def test_pinned_memory_is_for_gpus() -> None:
    assert TrainingArguments(use_cpu=True).dataloader_pin_memory is False
    assert TrainingArguments().dataloader_pin_memory is True


@pytest.mark.parametrize(
    ("given", "taken"), [(True, "all"), (False, "no"), ("true", "all"), ("non_padding", "non_padding")]
)
def test_counting_tokens_may_be_a_flag(given: Any, taken: str) -> None:
    assert TrainingArguments(include_num_input_tokens_seen=given).include_num_input_tokens_seen == taken


def test_an_optimizer_of_earlier_years_becomes_the_one_that_does_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_warned", set())
    assert TrainingArguments(optim="adamw_hf").optim == "adamw_torch"
    assert "'adamw_hf' is an outdated name" in capsys.readouterr().err


def test_accumulation_may_be_said_in_accelerates_way_but_not_twice() -> None:
    config = {"gradient_accumulation_kwargs": {"num_steps": 4}}
    made = TrainingArguments(accelerator_config=config)
    assert made.gradient_accumulation_steps == 4
    assert TrainingArguments(**made.to_dict()) == made
    with pytest.raises(ValueError, match="gradient_accumulation_steps: is 2, and num_steps"):
        TrainingArguments(accelerator_config=config, gradient_accumulation_steps=2)


def test_accelerates_settings_become_one_object() -> None:
    assert TrainingArguments().accelerator_config == AcceleratorConfig()
    assert TrainingArguments(accelerator_config='{"split_batches": "true"}').accelerator_config == AcceleratorConfig(
        True
    )


@pytest.mark.parametrize(("given", "taken"), [("True", True), ("false", None), ("a/checkpoint-3", "a/checkpoint-3")])
def test_resuming_may_be_said_as_a_word(given: str, taken: Any) -> None:
    assert TrainingArguments(resume_from_checkpoint=given).resume_from_checkpoint == taken


def test_a_number_that_is_none_is_refused_unless_the_original_seldom_asks_for_it() -> None:
    with pytest.raises(ConfigError) as error:
        TrainingArguments(learning_rate=None, max_grad_norm=None, warmup_steps=None)  # type: ignore[arg-type]
    assert {fault.key for fault in error.value.faults} == {"learning_rate", "max_grad_norm", "warmup_steps"}
    assert "Give 0 for no clipping" in str(error.value)
    assert TrainingArguments(eval_delay=None, logging_strategy="no", logging_steps=None).eval_delay == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "given", "told"),
    [("eval_perplexity", None, True), ("perplexity", True, False), ("wer", False, False), ("accuracy", None, False)],
)
def test_an_error_whose_highest_value_would_be_the_best_is_told_of(
    metric: str, given: bool | None, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    made = TrainingArguments(metric_for_best_model=metric, greater_is_better=given)
    assert made.greater_is_better is (True if given is None else given)
    assert ("If the lowest is, set greater_is_better=False" in capsys.readouterr().err) == told


@pytest.mark.parametrize(("steps", "told"), [(0, True), (-1, False), (3, False)])
def test_it_is_told_that_zero_steps_are_as_many_epochs_as_otherwise(
    steps: int, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    TrainingArguments(max_steps=steps)
    assert ("max_steps: is 0, which counts as not given" in capsys.readouterr().err) == told
