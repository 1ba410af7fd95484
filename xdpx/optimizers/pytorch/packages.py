"""Optimizers that other packages bring: which class, built with what, and what to install where it is missing."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, metadata
from itertools import takewhile
from typing import Any

import torch
from torch import nn

from xdpx.logger import log
from xdpx.optimizers.pytorch import low_rank
from xdpx.optimizers.pytorch.request import Chosen, Kwargs, Request


class MissingPackage(ImportError, ValueError):
    """A package is not installed. The original raises ImportError for some and ValueError for others: this is both."""


def _borrow(request: Request, source: str, install: str) -> Any:
    """Import "module:name". Raises MissingPackage saying for which optimizer, and how to install what is missing."""
    module, _, name = source.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        package = module.partition(".")[0]
        missing = (getattr(error, "name", None) or package).partition(".")[0]
        if missing != package:  # it is there, but what it needs is not
            install = f"pip install {missing}"
        raise MissingPackage(
            f"optim: '{request.name}' is {name} of the package {package}, which cannot be imported ({error}). "
            f"Install it: {install}; or choose optim='adamw_torch', which needs torch alone."
        ) from error


def keep_embeddings_exact(kind: type, kwargs: Kwargs, model: nn.Module) -> None:
    """Tell bitsandbytes to keep 32 bits for the embeddings, whose rare rows 8 bits would lose."""
    if "bitsandbytes" not in str(kind) or kwargs.get("optim_bits") != 8:
        return
    rules = import_module("bitsandbytes").optim.GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            rules.register_module_override(module, "weight", {"optim_bits": 32})


def _bitsandbytes(request: Request) -> Chosen:
    family = next(family for family in _BITSANDBYTES if family in request.name)
    kind = _borrow(request, f"bitsandbytes.optim:{_BITSANDBYTES[family]}", "pip install bitsandbytes")
    bits = {"optim_bits": 8 if "8bit" in request.name else 32}
    if family == "rmsprop":
        extra = {**request.numbers("alpha", "eps", "weight_decay", "momentum"), **request.switches("centered")}
        return kind, {**request.rate, **extra, **bits}
    keys = {"adam": request.adam, "lion": {**request.rate, "betas": request.adam["betas"]}}
    own = keys[family] if family in keys else _ademamix(request)
    return kind, {**own, **bits, "is_paged": "paged" in request.name}


_BITSANDBYTES = {"ademamix": "AdEMAMix", "adam": "AdamW", "lion": "Lion", "rmsprop": "RMSprop"}


def _ademamix(request: Request) -> Kwargs:
    first, second = request.adam["betas"]
    times = {key: request.whole(key, 0) for key in ("t_alpha", "t_beta3") if key in request.extra}
    return {
        **request.rate,
        "betas": (request.number("beta1", first), request.number("beta2", second), request.number("beta3", 0.9999)),
        "alpha": request.number("alpha", 5.0),
        "eps": request.number("eps", request.args.adam_epsilon),
        **times,
    }


def _torchao(request: Request) -> Chosen:
    name = {"adamw_torch_4bit": "AdamW4bit", "adamw_torch_8bit": "AdamW8bit"}[request.name]
    old = _version("torchao") < (0, 11)
    source = f"torchao.{'prototype.low_bit_optim' if old else 'optim'}:{name}"
    kind = _borrow(request, source, "pip install 'torchao>=0.4'")
    extra = {
        "block_size": request.whole("block_size", 256),
        "bf16_stochastic_round": request.switch("bf16_stochastic_round"),
    }
    return kind, {**request.adam, **extra}


def _any_precision(request: Request) -> Chosen:
    kind = _borrow(request, "torchdistx.optimizers:AnyPrecisionAdamW", "see https://github.com/pytorch/torchdistx")
    types = {"momentum_dtype": "float32", "variance_dtype": "float32", "compensation_buffer_dtype": "bfloat16"}
    chosen = {key: getattr(torch, request.text(key, default)) for key, default in types.items()}
    return kind, {**request.adam, "use_kahan_summation": request.switch("use_kahan_summation"), **chosen}


def _xla(request: Request) -> Chosen:
    return _borrow(request, "torch_xla.amp.syncfree:AdamW", "pip install torch_xla"), request.adam


def _npu(request: Request) -> Chosen:
    return _borrow(request, "torch_npu.optim:NpuFusedAdamW", "pip install torch_npu"), request.adam


def _galore(request: Request) -> Chosen:
    names = {"adafactor": "GaLoreAdafactor", "8bit": "GaLoreAdamW8bit", "adamw": "GaLoreAdamW"}
    name = next(name for mark, name in names.items() if mark in request.name)
    install = "pip install galore-torch"
    kind = _borrow(request, f"galore_torch:{name}", install)
    rank = {
        "rank": request.whole("rank", 128),
        "update_proj_gap": request.whole("update_proj_gap", 200),
        "scale": request.number("scale", 0.25),
        "proj_type": request.text("proj_type", "std"),
    }
    fixed = {"scale_parameter": False, "relative_step": False} if "adafactor" in request.name else {}
    return low_rank.chosen(request, kind, rank, {**request.rate, **fixed})


def _apollo(request: Request) -> Chosen:
    kind = _borrow(request, "apollo_torch:APOLLOAdamW", "pip install apollo-torch")
    rank = {
        "rank": request.whole("rank", 128),
        "proj": request.text("proj", "random"),
        "scale_type": request.text("scale_type", "channel"),
        "update_proj_gap": request.whole("update_proj_gap", 200),
        "scale": request.number("scale", 1.0),
        "proj_type": request.text("proj_type", "std"),
        "betas": request.adam["betas"],
        "eps": request.adam["eps"],
    }
    return low_rank.chosen(request, kind, rank, request.rate)


def _lomo(request: Request) -> Chosen:
    kind = _borrow(
        request, f"lomo_optim:{'AdaLomo' if request.name == 'adalomo' else 'Lomo'}", "pip install lomo-optim"
    )
    if request.model is None:
        raise ValueError(f"optim: '{request.name}' steps within the backward pass of a model. Give the model.")
    return kind, {**request.rate, "model": request.model}


def _grok(request: Request) -> Chosen:
    kind = _borrow(request, "grokadamw:GrokAdamW", "pip install grokadamw")
    defaults = {
        "alpha_init": 0.98,
        "lamb": 2.0,
        "gamma": 0.1,
        "grokking_signal_decay_rate": 0.1,
        "gradient_clipping": 1.0,
    }
    return kind, {**request.rate, **{key: request.number(key, default) for key, default in defaults.items()}}


def _schedule_free(request: Request) -> Chosen:
    names = {"radam": "RAdamScheduleFree", "adamw": "AdamWScheduleFree", "sgd": "SGDScheduleFree"}
    family = request.name.rpartition("_")[2]
    kind = _borrow(request, f"schedulefree:{names[family]}", "pip install 'schedulefree>=1.4'")
    own = request.rate if family == "sgd" else request.adam
    warmup = {} if family == "radam" else {"warmup_steps": _whole_warmup(request)}
    extra = {"weight_lr_power": request.number("weight_lr_power", 2.0), "r": request.number("r", 0.0)}
    return kind, {**own, "weight_decay": request.args.weight_decay, **warmup, **extra}


def _whole_warmup(request: Request) -> float:
    steps = request.args.warmup_steps
    if not 0 < steps < 1:
        return steps
    total = getattr(request.args, "max_steps", -1)
    if total > 0:
        return float(-(-steps * total // 1))
    log.warning(
        f"optim: '{request.name}' warms up by itself and needs a number of steps; warmup_steps={steps} is a share of a "
        "training whose length it cannot know, so there is no warm-up. Write warmup_steps as a whole number."
    )
    return steps


def _stable(request: Request) -> Chosen:
    kind = _borrow(request, "optimi:StableAdamW", "pip install torch-optimi")
    extra = {
        "weight_decay": request.args.weight_decay,
        "decouple_lr": request.switch("decouple_lr"),
        "max_lr": request.number("max_lr", 0.0) if "max_lr" in request.extra else None,
        "kahan_sum": request.switch("kahan_sum") if "kahan_sum" in request.extra else None,
    }
    return kind, {**request.adam, **extra}


def _version(package: str) -> tuple[int, ...]:
    """Give the first two numbers of an installed version; (0, 11), which means today's layout, where there is none."""
    try:
        text = metadata.version(package)
    except metadata.PackageNotFoundError:
        return (0, 11)
    return tuple(int("".join(takewhile(str.isdigit, part)) or 0) for part in text.split(".")[:2])


_BITSANDBYTES_NAMES = (
    "adamw_bnb_8bit",
    "adamw_8bit",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "ademamix",
    "ademamix_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
    "lion_8bit",
    "lion_32bit",
    "paged_lion_32bit",
    "paged_lion_8bit",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
)
_GALORE_NAMES = (
    "galore_adamw",
    "galore_adamw_8bit",
    "galore_adafactor",
    "galore_adamw_layerwise",
    "galore_adamw_8bit_layerwise",
    "galore_adafactor_layerwise",
)

OPTIMIZERS: dict[str, Callable[[Request], Chosen]] = {
    **dict.fromkeys(_BITSANDBYTES_NAMES, _bitsandbytes),
    **dict.fromkeys(_GALORE_NAMES, _galore),
    **dict.fromkeys(("apollo_adamw", "apollo_adamw_layerwise"), _apollo),
    **dict.fromkeys(("adamw_torch_4bit", "adamw_torch_8bit"), _torchao),
    **dict.fromkeys(("lomo", "adalomo"), _lomo),
    **dict.fromkeys(("schedule_free_radam", "schedule_free_adamw", "schedule_free_sgd"), _schedule_free),
    "grokadamw": _grok,
    "stable_adamw": _stable,
    "adamw_anyprecision": _any_precision,
    "adamw_torch_xla": _xla,
    "adamw_torch_npu_fused": _npu,
}
"""What builds the choice for each name."""
