"""Prepare a model before a Trainer trains it: refuse untrainable models, save memory, replace kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

from torch import Tensor, nn

from xdpx.logger import log


def bare(model: nn.Module) -> nn.Module:
    """Return the model without wrappers for compilation, distribution and adapters."""
    while True:
        inner = _inside(model)
        if inner is None:
            return model
        model = inner


def _inside(model: nn.Module) -> nn.Module | None:
    wrapped = getattr(model, "_orig_mod", None)
    if wrapped is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        wrapped = model.module
    # A model with adapters in it has `peft_config`, too, and in transformers a `base_model` that is a property.
    if wrapped is None and hasattr(model, "peft_config") and "base_model" in model._modules:
        base = model.get_base_model() if hasattr(model, "get_base_model") else model.base_model.model  # type: ignore[operator,union-attr]
        wrapped = base if base is not model else None
    return wrapped if isinstance(wrapped, nn.Module) else None


class PreparingArguments(Protocol):
    """Fields read from the arguments of a training."""

    use_liger_kernel: bool
    liger_kernel_config: dict[str, bool] | None
    activation_checkpointing: bool | None
    activation_checkpointing_kwargs: dict[str, Any] | None
    debug: Any


def before_training(model: nn.Module, args: PreparingArguments, processing_class: object = None) -> None:
    """Apply kernels, activation checkpointing, special tokens and overflow detection, as the arguments request."""
    if args.use_liger_kernel:
        apply_liger(model, args.liger_kernel_config)
    if args.activation_checkpointing:
        checkpoint_activations(model, args.activation_checkpointing_kwargs)
    align_special_tokens(model, processing_class)
    if "underflow_overflow" in args.debug:
        from transformers.debug_utils import DebugUnderflowOverflow

        DebugUnderflowOverflow(model)


def refuse_headless(model: nn.Module) -> None:
    """Refuse a model of transformers that only computes hidden states, if the loss is the model's own.

    Raises ValueError with what to use instead.
    """
    model = bare(model)
    kind = type(model).__name__
    inputs = inspect.signature(model.forward).parameters
    targets = {"return_loss", "start_positions", "end_positions"}
    takes_targets = any("label" in name or name in targets for name in inputs)
    if takes_targets or not type(model).__module__.startswith("transformers.models."):
        return
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    names = [name for value in MODEL_MAPPING_NAMES.values() for name in ([value] if isinstance(value, str) else value)]
    if kind in names:
        stem = kind.removesuffix("Model")
        raise ValueError(
            f"{kind} computes hidden states only: it takes no labels and returns no loss. Use a model with a head for "
            f"your task, e.g. {stem}ForSequenceClassification or an AutoModelFor…; or override compute_loss, or give "
            "compute_loss_func."
        )


def with_decoder_inputs(model: nn.Module, inputs: dict[str, Any], labels: Tensor) -> dict[str, Any]:
    """Return the inputs with the ids that an encoder-decoder makes of labels, which it is not going to see itself."""
    made = getattr(bare(model), "prepare_decoder_input_ids_from_labels", None)
    if made is None or not {"decoder_input_ids", "decoder_inputs_embeds"}.isdisjoint(inputs):
        return inputs
    return {**inputs, "decoder_input_ids": made(labels)}


def refuse_quantized(model: nn.Module) -> None:
    """Refuse a quantised model that cannot be trained: compiled, without adapters, or by a method without gradients.

    Raises ValueError with what to do.
    """
    if not getattr(model, "is_quantized", False) or getattr(model, "_hf_peft_config_loaded", False):
        return
    quantizer: Any = getattr(model, "hf_quantizer", None)
    if hasattr(model, "_orig_mod"):
        raise ValueError("The model is quantised and compiled. Give the model itself and leave torch_compile out.")
    if not hasattr(model, "peft_config") and not getattr(quantizer, "is_qat_trainable", False):
        raise ValueError(
            "The model is quantised, and quantised weights cannot be trained. Add adapters (peft.get_peft_model), "
            "or load it without quantization_config."
        )
    if not getattr(quantizer, "is_trainable", False):
        method = getattr(getattr(quantizer, "quantization_config", None), "quant_method", "unknown")
        raise ValueError(
            f"The model is quantised by '{method}', through which gradients cannot pass. Use a method that can be "
            "trained (e.g. bitsandbytes), or load it without quantization_config."
        )


def set_use_cache(model: nn.Module, use_cache: bool) -> None:
    """Set whether the model caches keys and values for generation, if it has a config."""
    config = getattr(model, "config", None)
    if config is not None:
        config.use_cache = use_cache


def checkpoint_activations(model: nn.Module, kwargs: Mapping[str, Any] | None = None) -> None:
    """Let the layers of a model recompute their activations in the backward pass instead of storing them.

    Args:
        model: A model of transformers, or any with `activation_checkpointing_enable` or
            `gradient_checkpointing_enable`.
        kwargs: `every_n_layers` (1: each layer), `offload` (store in host memory); others are passed to
            `torch.utils.checkpoint.checkpoint`, with `use_reentrant=False` by default.

    Raises:
        AttributeError: The model has neither method.
        ValueError: The model does not support it, or not with `every_n_layers` or `offload`.
    """
    for_torch = {"use_reentrant": False, **(kwargs or {})}
    ours = {key: for_torch.pop(key, default) for key, default in _OF_LAYERS.items()}
    for name in ("activation_checkpointing", "gradient_checkpointing"):
        enable = getattr(model, f"{name}_enable", None)
        if enable is not None:
            _enable(enable, f"{name}_kwargs", for_torch, ours)
            return
    raise AttributeError(
        f"gradient_checkpointing: {type(model).__name__} has no activation_checkpointing_enable and no "
        "gradient_checkpointing_enable. Define one of them, or set gradient_checkpointing=False."
    )


_OF_LAYERS: dict[str, Any] = {"every_n_layers": 1, "offload": False}
"""Options of the model's method, with the default values that it need not accept."""


def _enable(enable: Callable[..., None], name: str, for_torch: dict[str, Any], ours: dict[str, Any]) -> None:
    found = inspect.signature(enable).parameters
    anything = any(one.kind is one.VAR_KEYWORD for one in found.values())
    wanted = {key: value for key, value in ours.items() if anything or key in found or value != _OF_LAYERS[key]}
    for key in wanted:
        if not (anything or key in found):
            model = type(getattr(enable, "__self__", enable)).__name__
            raise ValueError(f"gradient_checkpointing_kwargs: {model} does not know '{key}'. Leave it out.")
    enable(**({name: for_torch} if anything or name in found else {}), **wanted)


def apply_liger(model: nn.Module, kernels: Mapping[str, bool] | None = None) -> None:
    """Replace layers by Triton kernels of Liger.

    Args:
        model: A model of transformers, also with adapters; any other is unchanged, and a warning is logged.
        kernels: Kernels to use (`liger_kernel_config`), e.g. {"rope": True}.

    Raises ImportError if liger-kernel is not installed.
    """
    try:
        patch = import_module("liger_kernel.transformers")._apply_liger_kernel_to_instance
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"use_liger_kernel: liger-kernel 0.3.0 or newer cannot be imported ({error}). "
            "Install it: pip install liger-kernel; or set use_liger_kernel=False."
        ) from error
    model = bare(model)
    if hasattr(model, "config") and hasattr(model, "save_pretrained"):
        patch(model=model, **(kernels or {}))
    else:
        log.warning(f"use_liger_kernel: {type(model).__name__} is not a model of transformers; no kernel was replaced.")


def align_special_tokens(model: nn.Module, processing_class: object) -> dict[str, int]:
    """Set the end, begin and padding tokens in a model's configs to those of its tokenizer.

    Tokens that the tokenizer does not define are unchanged. Ids that stop generation are only added.

    Returns:
        The changes: name of the token -> its new id.
    """
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    if not hasattr(tokenizer, "eos_token_id") or not hasattr(getattr(model, "config", None), "get_text_config"):
        return {}
    configs = [model.config.get_text_config(), getattr(model, "generation_config", None)]  # type: ignore[operator,union-attr]
    names = ("eos_token_id", "bos_token_id", "pad_token_id")
    wanted = {name: getattr(tokenizer, name, None) for name in names}
    changed = {name: token for name, token in wanted.items() if token is not None and _align(configs, name, token)}
    if changed:
        log.warning(
            "The tokenizer has new PAD/BOS/EOS tokens that differ from the model config and generation config. The "
            "model config and generation config were aligned accordingly, being updated with the tokenizer's values. "
            f"Updated tokens: {changed}.",
            under="transformers.trainer_utils",
        )
    return changed


def _align(configs: list[Any], name: str, token: int) -> bool:
    """Set one token in every config; return whether one of them was different."""
    present = [config for config in configs if config is not None]
    if all(token in _listed(getattr(config, name, None)) for config in present):
        return False
    for index, config in enumerate(present):
        known = getattr(config, name, None)
        several = name == "eos_token_id" and (index == 1 or isinstance(known, list))
        setattr(config, name, [token, *(one for one in _listed(known) if one != token)] if several else token)
    return True


def _listed(ids: int | list[int] | None) -> list[int]:
    if ids is None:
        return []
    return list(ids) if isinstance(ids, list) else [ids]
