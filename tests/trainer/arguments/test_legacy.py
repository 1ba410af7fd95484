from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.logger import log
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.arguments.legacy import OLD_NAMES, OldAttribute


@pytest.fixture(autouse=True)
def _nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_warned", set())


TAKEN_OVER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"evaluation_strategy": "epoch"}, {"eval_strategy": "epoch", "do_eval": True}),
    ({"no_cuda": True}, {"use_cpu": True, "dataloader_pin_memory": False}),
    ({"per_gpu_train_batch_size": 3}, {"per_device_train_batch_size": 3}),
    ({"per_gpu_eval_batch_size": 3}, {"per_device_eval_batch_size": 3}),
    ({"push_to_hub_model_id": "me/it"}, {"hub_model_id": "me/it"}),
    ({"push_to_hub_token": "t"}, {"hub_token": "t"}),
    ({"push_to_hub_organization": "us", "hub_model_id": "it"}, {"hub_model_id": "us/it"}),
    ({"push_to_hub_organization": "us", "output_dir": "runs/best/"}, {"hub_model_id": "us/best"}),
    ({"torchdynamo": "eager"}, {"torch_compile": True, "torch_compile_backend": "eager"}),
    ({"xpu_backend": "mpi"}, {"ddp_backend": "mpi"}),
    ({"warmup_ratio": 0.1}, {"warmup_steps": 0.1}),
    ({"warmup_ratio": 0.1, "warmup_steps": 20}, {"warmup_steps": 20}),
    ({"group_by_length": True}, {"train_sampling_strategy": "group_by_length"}),
    ({"group_by_length": False}, {"train_sampling_strategy": "random"}),
    ({"adafactor": True}, {"optim": "adafactor"}),
    ({"include_inputs_for_metrics": True, "include_for_metrics": ["loss"]},
     {"include_for_metrics": ["loss", "inputs"]}),
    ({"include_tokens_per_second": True}, {"include_num_input_tokens_seen": "all"}),
    ({"fsdp": True, "fsdp_min_num_params": 9}, {"fsdp": True}),
]  # fmt: skip


@pytest.mark.parametrize(("old", "today"), TAKEN_OVER, ids=lambda value: "-".join(value))
def test_a_renamed_argument_is_taken_over(old: dict[str, Any], today: dict[str, Any]) -> None:
    made = TrainingArguments(**old)
    assert {name: getattr(made, name) for name in today} == today


def test_arguments_that_became_keys_are_put_there_beside_the_others() -> None:
    made = TrainingArguments(
        fsdp="full_shard",
        fsdp_config={"state_dict_type": "SHARDED_STATE_DICT"},
        fsdp_transformer_layer_cls_to_wrap="Block",
        split_batches=True,
        dispatch_batches=None,
    )
    options = made.fsdp_options()
    assert options is not None
    assert (options.layer_classes, options.state_dict_type) == (("Block",), "SHARDED_STATE_DICT")
    assert made.accelerator_config.split_batches  # type: ignore[union-attr]


@pytest.mark.parametrize("name", OLD_NAMES)
def test_every_old_name_is_accepted_and_told_once(name: str) -> None:
    value = {bool: True, int: 1, float: 0.5, str: "x"}[OLD_NAMES[name].kind]
    value = {"evaluation_strategy": "epoch", "torchdynamo": "eager"}.get(name, value)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(2):
            TrainingArguments("x", **{name: value})
    assert [(each.category, each.filename) for each in told] == [(FutureWarning, __file__)]
    assert str(told[0].message).startswith(f"`{name}` is deprecated, and accepted")


def test_the_number_of_gpus_in_an_old_dump_of_arguments_is_found_out_anew() -> None:
    assert TrainingArguments("x", use_cpu=True, _n_gpu=8).n_gpu == 0  # type: ignore[call-arg]


def test_names_of_today_are_not_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TrainingArguments("x", eval_strategy="epoch", warmup_steps=0.1)
    assert not capsys.readouterr().err


def test_a_script_reads_old_names_as_it_used_to() -> None:
    made = TrainingArguments("x", eval_strategy="epoch", warmup_steps=0.1, use_cpu=True)
    assert (made.evaluation_strategy, made.warmup_ratio, made.no_cuda) == ("epoch", 0.1, True)  # type: ignore[attr-defined]
    assert (made.overwrite_output_dir, made.group_by_length, made.past_index) == (False, False, -1)  # type: ignore[attr-defined]
    assert made.logging_dir is None  # type: ignore[attr-defined]
    assert TrainingArguments(warmup_steps=9).warmup_ratio == 0  # type: ignore[attr-defined]
    assert isinstance(TrainingArguments.evaluation_strategy, OldAttribute)  # type: ignore[attr-defined]


def test_what_only_scripts_look_at_is_remembered() -> None:
    made = TrainingArguments(
        "x", overwrite_output_dir=True, logging_dir="logs", ray_scope="all", save_safetensors=False
    )
    read = (made.overwrite_output_dir, made.logging_dir, made.ray_scope, made.save_safetensors)  # type: ignore[attr-defined]
    assert read == (True, "logs", "all", False)


def test_setting_an_old_name_sets_todays() -> None:
    made: Any = TrainingArguments("x")
    made.evaluation_strategy, made.warmup_ratio, made.logging_dir = "epoch", 0.2, "here"
    assert (made.eval_strategy, made.warmup_steps, made.logging_dir) == ("epoch", 0.2, "here")
    with pytest.raises(AttributeError, match="split_batches is part of accelerator_config now"):
        made.split_batches = True


def test_a_share_of_all_updates_as_warm_up_stays_a_share() -> None:
    assert TrainingArguments(warmup_ratio=1.0).get_warmup_steps(40) == 40  # type: ignore[call-arg]


def test_both_names_that_disagree_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="evaluation_strategy: is 'epoch', and eval_strategy, its current name, is 'no'"
    ):
        TrainingArguments("x", evaluation_strategy="epoch", eval_strategy="no")  # type: ignore[call-arg]
    assert TrainingArguments("x", evaluation_strategy="epoch", eval_strategy="epoch").do_eval  # type: ignore[call-arg]


def test_every_old_argument_that_cannot_be_taken_over_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        TrainingArguments("x", warmup_ratio=3, no_cuda=True, use_cpu=False)  # type: ignore[call-arg]
    assert [fault.key for fault in caught.value.faults] == ["warmup_ratio", "no_cuda"]


def test_an_argument_that_never_was_is_refused_with_the_nearest_name() -> None:
    expected = r"unexpected keyword argument 'lerning_rate' \(did you mean 'learning_rate'\?\)"
    with pytest.raises(TypeError, match=expected):
        TrainingArguments("x", lerning_rate=1)  # type: ignore[call-arg]


def test_a_field_of_the_user_with_an_old_name_is_his_own(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass
    class Mine(TrainingArguments):
        adafactor: int = 0
        logging_dir: str = "mine"
        warmup_ratio: float | None = field(default_factory=lambda: None)  # leaves no attribute of the class

    made = Mine("x", adafactor=3)
    assert (made.adafactor, made.logging_dir, made.optim) == (3, "mine", "adamw_torch_fused")
    assert (Mine("x").warmup_ratio, Mine("x", warmup_ratio=0.5).warmup_ratio) == (None, 0.5)
    assert Mine("x", warmup_ratio=0.5).warmup_steps == 0
    assert not capsys.readouterr().err
