from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.arguments.deepspeed import deepspeed_config

AUTO: dict[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "fp16": {"enabled": "auto", "loss_scale": 0},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "total_num_steps": "auto",
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
        },
    },
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
    },
}


def arguments(**options: Any) -> TrainingArguments:
    return TrainingArguments("x", per_device_train_batch_size=4, gradient_accumulation_steps=2, **options)


def test_without_it_there_is_no_config() -> None:
    assert deepspeed_config(arguments(), world_size=2, environment={}) is None


def test_every_auto_is_filled_in_from_the_arguments_and_the_model() -> None:
    made = arguments(
        deepspeed=AUTO, learning_rate=1e-3, weight_decay=0.1, warmup_steps=0.1, fp16=True, max_grad_norm=0.5
    )
    config = made.deepspeed_config(hidden_size=10, num_training_steps=100)
    assert config == {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 0.5,
        "fp16": {"enabled": True, "loss_scale": 0},
        "bf16": {"enabled": False},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1},
        },
        "scheduler": {
            "type": "WarmupDecayLR",
            "params": {
                "total_num_steps": 100,
                "warmup_min_lr": 0,
                "warmup_max_lr": 1e-3,
                "warmup_num_steps": 10,
            },
        },
        "zero_optimization": {
            "stage": 3,
            "reduce_bucket_size": 100,
            "stage3_prefetch_bucket_size": 90,
            "stage3_param_persistence_threshold": 100,
        },
    }
    assert made.deepspeed == AUTO


def test_what_nobody_knows_yet_stays_auto() -> None:
    config = arguments(deepspeed=AUTO).deepspeed_config()
    assert config is not None
    assert (
        config["scheduler"]["params"]["total_num_steps"] == config["zero_optimization"]["reduce_bucket_size"] == "auto"
    )


def test_no_warm_up_is_one_update_of_it() -> None:
    config = arguments(deepspeed=AUTO).deepspeed_config(num_training_steps=9)
    assert config is not None
    assert config["scheduler"]["params"]["warmup_num_steps"] == 1


def test_the_config_may_be_a_file_and_the_batch_is_that_of_all_processes(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"train_batch_size": "auto"}))
    config = deepspeed_config(arguments(deepspeed=str(file)), world_size=3, environment={})
    assert config == {"train_batch_size": 24}


def test_values_that_disagree_are_all_named() -> None:
    given = {"train_batch_size": 9, "optimizer": {"params": {"lr": 1.0}}, "gradient_clipping": 1.0}
    with pytest.raises(ValueError) as caught:
        arguments(deepspeed=given).deepspeed_config()
    assert "train_batch_size: is 9, and" in str(caught.value)
    assert "optimizer.params.lr: is 1.0, and learning_rate is 5e-05." in str(caught.value)
    assert "gradient_clipping" not in str(caught.value)


def test_a_config_that_cannot_be_read_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="deepspeed 'nowhere.json' cannot be read"):
        arguments(deepspeed="nowhere.json").deepspeed_config()


def test_nodes_that_save_for_themselves_tell_deepspeed() -> None:
    config = arguments(deepspeed={"train_batch_size": "auto"}, save_on_each_node=True).deepspeed_config()
    assert config is not None
    assert config["checkpoint"] == {"use_node_local_storage": True}


def test_accelerates_launcher_may_name_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"gradient_clipping": "auto"}')
    environment = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": str(file)}
    assert deepspeed_config(arguments(), world_size=1, environment=environment) == {"gradient_clipping": 1.0}


def test_accelerates_launcher_may_say_it_by_single_variables() -> None:
    environment = {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu",
        "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "nvme",
        "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH": "/nvme",
        "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
        "ACCELERATE_DEEPSPEED_CONFIG_FILE": "none",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "2",
        "ACCELERATE_GRADIENT_CLIPPING": "1.0",
    }
    config = deepspeed_config(arguments(), world_size=2, environment=environment)
    assert config is not None
    assert config["zero_optimization"] == {
        "stage": 3,
        "offload_optimizer": {"device": "cpu"},
        "offload_param": {"device": "nvme", "nvme_path": "/nvme"},
        "stage3_gather_16bit_weights_on_model_save": True,
    }
    assert (config["train_batch_size"], config["gradient_clipping"]) == (16, 1.0)
    with pytest.raises(ValueError, match="gradient_accumulation_steps: is 3, and gradient_accumulation_steps is 2"):
        deepspeed_config(
            arguments(), world_size=2, environment=environment | {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "3"}
        )
