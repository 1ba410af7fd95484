"""Read the config of DeepSpeed, and replace "auto" by values from the arguments."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from typing import Any

from xdpx.trainer.arguments.fields import Fields
from xdpx.trainer.arguments.values import read_dict
from xdpx.utils.decisions import TRUE_WORDS

AUTO = "auto"
Filling = tuple[str, Any, str]
"""(path in the config, with dots between keys; its value; the argument it comes from, '' for none)."""


def deepspeed_config(
    arguments: Fields,
    *,
    world_size: int,
    warmup_steps: int = 0,
    hidden_size: int | None = None,
    num_training_steps: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Any] | None:
    """Return the config of DeepSpeed with "auto" replaced where possible; None if DeepSpeed is not requested.

    Args:
        arguments: the source of the values; values already in the config must agree with them.
        world_size: number of processes that train together.
        warmup_steps: updates of warm-up, for the schedule.
        hidden_size: of the model; bucket sizes are derived from it. None leaves them "auto".
        num_training_steps: for the schedule. None leaves that "auto".
        environment: environment variables, by which accelerate's launcher can request DeepSpeed.

    Raises:
        ValueError: values disagree with arguments; all are listed.
    """
    config = _asked_for(arguments, environment)
    if config is None:
        return None
    wrong = [*_fill(config, _from_arguments(arguments, world_size))]
    if num_training_steps is not None:
        wrong += _fill(config, _from_schedule(num_training_steps, warmup_steps))
    if hidden_size is not None:
        wrong += _fill(config, _from_model(hidden_size, config))
    if arguments.save_on_each_node:
        config.setdefault("checkpoint", {})["use_node_local_storage"] = True
    if wrong:
        lines = "\n".join(f"  {line}" for line in wrong)
        raise ValueError(f'The DeepSpeed config and the arguments disagree:\n{lines}\nPut "auto" in the config there.')
    return config


def _asked_for(arguments: Fields, environment: Mapping[str, str]) -> dict[str, Any] | None:
    if arguments.deepspeed:
        try:
            return copy.deepcopy(read_dict(arguments.deepspeed))
        except ValueError as error:
            raise ValueError(f"deepspeed {error}") from error
    if environment.get("ACCELERATE_USE_DEEPSPEED", "").lower() not in TRUE_WORDS:
        return None
    path = environment.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    return _launched(environment) if path.lower() == "none" else read_dict(path)


def _launched(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the config that accelerate's launcher requests by single environment variables."""
    zero: dict[str, Any] = {"stage": int(environment.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))}
    for what in ("optimizer", "param"):
        device = environment.get(f"ACCELERATE_DEEPSPEED_OFFLOAD_{what.upper()}_DEVICE", "none")
        if device != "none":
            path = environment.get(f"ACCELERATE_DEEPSPEED_OFFLOAD_{what.upper()}_NVME_PATH", "none")
            zero[f"offload_{what}"] = {"device": device} | ({} if path == "none" else {"nvme_path": path})
    if environment.get("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "").lower() in TRUE_WORDS:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return {
        "train_batch_size": AUTO,
        "train_micro_batch_size_per_gpu": AUTO,
        "gradient_accumulation_steps": _number(environment.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS")),
        "gradient_clipping": _number(environment.get("ACCELERATE_GRADIENT_CLIPPING")),
        "zero_optimization": zero,
        "bf16": {"enabled": AUTO},
        "fp16": {"enabled": AUTO},
        "zero_allow_untested_optimizer": True,
    }


def _number(text: str | None) -> Any:
    if text is None or text.lower() in {"none", AUTO}:
        return AUTO
    return int(text) if text.isdigit() else float(text)


def _from_arguments(arguments: Fields, world_size: int) -> list[Filling]:
    micro, groups = arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps
    return [
        ("train_micro_batch_size_per_gpu", micro, "per_device_train_batch_size"),
        ("gradient_accumulation_steps", groups, "gradient_accumulation_steps"),
        ("train_batch_size", world_size * micro * groups, "per_device_train_batch_size over all devices and groups"),
        ("gradient_clipping", arguments.max_grad_norm, "max_grad_norm"),
        ("optimizer.params.lr", arguments.learning_rate, "learning_rate"),
        ("optimizer.params.betas", [arguments.adam_beta1, arguments.adam_beta2], "adam_beta1, adam_beta2"),
        ("optimizer.params.eps", arguments.adam_epsilon, "adam_epsilon"),
        ("optimizer.params.weight_decay", arguments.weight_decay, "weight_decay"),
        ("scheduler.params.warmup_min_lr", 0, ""),
        ("scheduler.params.warmup_max_lr", arguments.learning_rate, "learning_rate"),
        ("fp16.enabled", arguments.fp16 or arguments.fp16_full_eval, "fp16"),
        ("bf16.enabled", arguments.bf16 or arguments.bf16_full_eval, "bf16"),
    ]


def _from_schedule(num_training_steps: int, warmup_steps: int) -> list[Filling]:
    # DeepSpeed rejects 0 updates of warm-up
    return [
        ("scheduler.params.total_num_steps", num_training_steps, "max_steps, or num_train_epochs times their updates"),
        ("scheduler.params.warmup_num_steps", max(1, warmup_steps), "warmup_steps"),
    ]


def _from_model(hidden_size: int, config: Mapping[str, Any]) -> list[Filling]:
    sizes: list[Filling] = [("zero_optimization.reduce_bucket_size", hidden_size**2, "")]
    if config.get("zero_optimization", {}).get("stage") == 3:
        sizes += [
            ("zero_optimization.stage3_prefetch_bucket_size", int(0.9 * hidden_size**2), ""),
            ("zero_optimization.stage3_param_persistence_threshold", 10 * hidden_size, ""),
        ]
    return sizes


def _fill(config: dict[str, Any], fillings: list[Filling]) -> Iterator[str]:
    """Replace "auto" by values; yield a line for each other value that disagrees with its argument."""
    for place, value, argument in fillings:
        *outer, key = place.split(".")
        inner: Any = config
        for name in outer:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or inner.get(key) is None:
            continue
        if inner[key] == AUTO:
            inner[key] = value
        elif argument and inner[key] != value:
            yield f"{place}: is {inner[key]!r}, and {argument} is {value!r}."
