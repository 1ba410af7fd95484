from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xdpx.logger import log
from xdpx.trainer.arguments import FsdpOptions, TrainingArguments
from xdpx.trainer.arguments.fsdp import fsdp_options


@pytest.fixture(autouse=True)
def _nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_warned", set())


def options(fsdp: Any = True, **config: Any) -> FsdpOptions:
    found = fsdp_options(TrainingArguments("x", fsdp=fsdp, fsdp_config=config or None), {})
    assert found is not None
    return found


@pytest.mark.parametrize("off", [None, "", False, [], "false"])
def test_without_it_nothing_is_sharded(off: Any) -> None:
    assert fsdp_options(TrainingArguments("x", fsdp=off), {}) is None


ON = [True, "true", "full_shard", ["full_shard"], "full_shard auto_wrap", "FULL_SHARD", "full shard"]


@pytest.mark.parametrize("on", ON)
def test_by_default_everything_is_sharded_layer_by_layer(on: Any) -> None:
    assert options(on) == FsdpOptions()


@pytest.mark.parametrize(
    ("words", "strategy", "reshard"),
    [
        ("full_shard", "full_shard", True),
        ("shard_grad_op", "shard_grad_op", False),
        ("no_shard", "no_shard", False),
        ("hybrid_shard", "hybrid_shard", True),
        ("hybrid_shard_zero2", "hybrid_shard_zero2", False),
    ],
)
def test_each_documented_strategy_is_understood(words: str, strategy: str, reshard: bool) -> None:
    found = options(f"{words} offload auto_wrap")
    assert (found.strategy, found.reshard_after_forward, found.offload) == (strategy, reshard, True)


def test_keys_may_have_their_prefix_and_flags_may_be_text() -> None:
    config = {
        "fsdp_transformer_layer_cls_to_wrap": "BertLayer, BertEmbeddings",
        "fsdp_activation_checkpointing": "true",
        "cpu_offload": "False",
        "fsdp_state_dict_type": "sharded_state_dict",
        "reshard_after_forward": "false",
        "fsdp_cpu_ram_efficient_loading": True,
        "version": 2,
    }
    assert options(True, **config) == FsdpOptions(
        strategy="shard_grad_op",
        reshard_after_forward=False,
        layer_classes=("BertLayer", "BertEmbeddings"),
        activation_checkpointing=True,
        state_dict_type="SHARDED_STATE_DICT",
        cpu_ram_efficient_loading=True,
    )


def test_the_config_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "fsdp.json"
    file.write_text(json.dumps({"fsdp_min_num_params": 1000}))
    made = TrainingArguments("x", fsdp="full_shard auto_wrap", fsdp_config=str(file))
    assert made.fsdp_config["min_num_params"] == 1000  # type: ignore[index]
    found = made.fsdp_options()
    assert found is not None
    assert (found.wrap, found.min_num_params) == ("size", 1000)


@pytest.mark.parametrize(
    ("config", "wrap"),
    [
        ({}, "transformer"),
        ({"min_num_params": 5}, "size"),
        ({"auto_wrap_policy": "NO_WRAP"}, "none"),
        ({"auto_wrap_policy": "transformer_based_wrap", "min_num_params": 5}, "transformer"),
        ({"auto_wrap_policy": "SIZE_BASED_WRAP"}, "size"),
    ],
)
def test_what_becomes_a_unit_is_by_layer_by_size_or_nothing(config: dict[str, Any], wrap: str) -> None:
    assert options(True, **config).wrap == wrap


def test_normalised_arguments_stay_what_they_are_when_made_again() -> None:
    made = TrainingArguments("x", fsdp="no_shard offload", fsdp_config={"fsdp_limit_all_gathers": True})
    again = TrainingArguments(**made.to_dict())
    assert again == made
    assert (again.fsdp, again.fsdp_options()) == (True, made.fsdp_options())


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"auto_wrap_policy": "BY_LAYER"}, "fsdp_config.auto_wrap_policy: no 'BY_LAYER' is known"),
        ({"state_dict_type": "FULL"}, "fsdp_config.state_dict_type: no 'FULL' is known"),
        ({"backward_prefetch": "backward"}, "fsdp_config.backward_prefetch: no 'backward' is known"),
        ({"sharding_strategy": "all"}, "fsdp_config.sharding_strategy: no 'all' is known"),
        ({"cpu_offload": "maybe"}, "fsdp_config.cpu_offload: is 'maybe'. Use true or false"),
        ({"min_num_params": "many"}, "fsdp_config.min_num_params: is 'many'. Use a whole number"),
        ("nowhere.json", "fsdp_config: 'nowhere.json' cannot be read"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(config: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        TrainingArguments("x", fsdp=True, fsdp_config=config)


def test_an_unknown_word_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="fsdp: no 'full_shards' is known. Did you mean 'full_shard'"):
        TrainingArguments("x", fsdp="full_shards")


def test_an_unknown_key_is_told_and_left_aside(capsys: pytest.CaptureFixture[str]) -> None:
    options(True, min_num_param=4)
    assert (
        "no key 'min_num_param' is known; it has no effect. Did you mean 'min_num_params'?" in capsys.readouterr().err
    )


def test_what_only_fsdp1_knows_is_accepted_and_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("backward_pre", "backward_pos"):  # as the documents write them
        options(True, backward_prefetch=word, limit_all_gathers="true", version=1)
    told = capsys.readouterr().err
    assert told.count("in which backward_prefetch, limit_all_gathers, version: 1 have no effect") == 1


def test_a_config_without_fsdp_is_said_to_have_no_effect(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "fsdp_config: has no effect without fsdp"
    TrainingArguments(
        "x", fsdp_config={"min_num_params": 0, "xla": False}
    )  # what earlier versions of the original write
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    TrainingArguments("x", fsdp_config={"min_num_params": 5})
    assert said not in capsys.readouterr().err
    monkeypatch.delenv("ACCELERATE_USE_FSDP")
    TrainingArguments("x", fsdp_config={"min_num_params": 5})
    assert said in capsys.readouterr().err


def test_the_oldest_form_of_a_sharded_checkpoint_becomes_its_successor() -> None:
    assert options(True, state_dict_type="LOCAL_STATE_DICT").state_dict_type == "SHARDED_STATE_DICT"


def test_xla_without_torch_xla_is_refused_when_it_is_used() -> None:
    made = TrainingArguments(
        "x", fsdp=True, fsdp_config={"xla": True, "xla_fsdp_settings": {"compute_dtype": "float32"}}
    )
    with pytest.raises(ImportError, match="xla is true, and torch_xla is not installed. Install it"):
        made.fsdp_options()


LAUNCHED = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "1",
    "FSDP_SHARDING_STRATEGY": "SHARD_GRAD_OP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_OFFLOAD_PARAMS": "true",
    "FSDP_MIN_NUM_PARAMS": "100000000",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "BertLayer,BertPooler",
    "FSDP_BACKWARD_PREFETCH": "BACKWARD_PRE",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_FORWARD_PREFETCH": "false",
    "FSDP_USE_ORIG_PARAMS": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    "FSDP_SYNC_MODULE_STATES": "true",
    "FSDP_ACTIVATION_CHECKPOINTING": "false",
}


def test_what_accelerates_launcher_passes_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    found = fsdp_options(TrainingArguments("x"), LAUNCHED)
    assert found == FsdpOptions(
        strategy="shard_grad_op",
        reshard_after_forward=False,
        offload=True,
        layer_classes=("BertLayer", "BertPooler"),
        min_num_params=100_000_000,
        cpu_ram_efficient_loading=True,
    )
    assert not capsys.readouterr().err  # it passes the knobs of FSDP1 unasked


def test_a_launcher_that_speaks_of_fsdp2_says_only_whether_to_reshard() -> None:
    said = LAUNCHED | {"FSDP_VERSION": "2", "FSDP_RESHARD_AFTER_FORWARD": "true"}
    found = fsdp_options(TrainingArguments("x"), said)
    assert found is not None
    assert found.strategy == "full_shard"


@pytest.mark.parametrize(("number", "strategy"), [("1", "full_shard"), ("3", "no_shard"), ("5", "hybrid_shard_zero2")])
def test_strategies_have_numbers_in_older_configs(number: str, strategy: str) -> None:
    found = fsdp_options(TrainingArguments("x"), LAUNCHED | {"FSDP_SHARDING_STRATEGY": number})
    assert found is not None
    assert found.strategy == strategy


def test_a_launcher_that_names_no_units_wraps_the_whole_model() -> None:
    found = fsdp_options(TrainingArguments("x"), {"ACCELERATE_USE_FSDP": "true", "FSDP_MIN_NUM_PARAMS": "100000000"})
    assert found is not None
    assert found.wrap == "none"


def test_the_arguments_win_over_the_launcher() -> None:
    assert fsdp_options(TrainingArguments("x", fsdp=True), LAUNCHED) == FsdpOptions()
    changed = fsdp_options(TrainingArguments("x", fsdp_config={"reshard_after_forward": True}), LAUNCHED)
    assert changed is not None
    assert (changed.strategy, changed.offload) == ("full_shard", True)


def test_a_script_may_ask_for_it_after_the_arguments_were_made() -> None:
    made = TrainingArguments("x")
    made.fsdp = "shard_grad_op offload"
    found = made.fsdp_options()
    assert found is not None
    assert (found.strategy, found.offload) == ("shard_grad_op", True)
    made.fsdp = "shard_all"
    with pytest.raises(ValueError, match="fsdp: no 'shard_all' is known"):
        made.fsdp_options()


def test_a_wrong_word_from_the_launcher_is_refused_too() -> None:
    with pytest.raises(ValueError, match="FSDP:\n  fsdp_config.sharding_strategy: no 'halves' is known"):
        fsdp_options(TrainingArguments("x"), LAUNCHED | {"FSDP_SHARDING_STRATEGY": "halves"})
