"""Optimizers of torch and of other packages: their class and arguments, from settings of x-train or the Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module, metadata
from itertools import takewhile
from typing import Any

import torch
from torch import nn

from xdpx.config.faults import refusal
from xdpx.config.loading import Run
from xdpx.logger import log
from xdpx.optimizers import PACKAGES
from xdpx.optimizers.pytorch import adafactor, low_rank
from xdpx.optimizers.pytorch.parameters import (
    AdaLomoParameters,
    LayerwiseParameters,
    LomoParameters,
    LowRankAdamParameters,
    LowRankParameters,
    NamedAdamParameters,
    NamedParameters,
    ScheduleFreeParameters,
)
from xdpx.optimizers.pytorch.request import Chosen, Kwargs, OptimizerRequest, Settings, pairs


class MissingPackage(ImportError, ValueError):
    """A package is not installed. Both types, as transformers raises ImportError for some and ValueError for others."""


class Family:
    """Optimizers of one class, or of similar classes. A subclass nests its `Parameters`, the keys of x-train.

    x-train and the Trainer build them from the same `Request`, so that equal settings give equal optimizers.
    """

    Parameters: type[NamedParameters] = NamedParameters

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class and its arguments.

        Raises:
            ValueError: a setting is not valid, or the package of the class is not installed.
        """
        raise NotImplementedError

    @classmethod
    def built(
        cls, run: Run, groups: Sequence[Kwargs], *, model: nn.Module | None = None, prefix: str = ""
    ) -> torch.optim.Optimizer:
        """Return the optimizer of a run of x-train for the parameter groups of its model.

        Raises:
            ConfigError: a setting is not valid, or the package is not installed.
        """
        known, name = run.parameters("optimizer", prefix), run.picks[prefix, "optimizer"]
        try:
            request = OptimizerRequest(Settings.of(name, known), model, name, pairs(getattr(known, "optim_args", None)))
            kind, kwargs = cls.chosen(request)
            request.refuse_unread()
        except (ValueError, TypeError) as error:
            key, _, problem = str(error).partition(": ")
            key = "optimizer" if key == "optim" else key
            raise refusal(f"{prefix}{key}", problem) from error
        if "model" in kwargs:  # it takes the model instead of groups, and has one learning rate
            rates = {group["lr"] for group in groups}
            if len(rates) > 1:
                problem = f"is '{name}', which has one learning rate, but the model's groups have {len(rates)}."
                raise refusal(f"{prefix}optimizer", problem, "Use the same one for all layers.")
            return construct(kind, {"lr": rates.pop()}, kwargs["model"], None)
        decaying = [{"weight_decay": known.weight_decay, **group} for group in groups]
        picked = kwargs.pop("params", None)
        return construct(kind, kwargs, decaying if picked is None else low_rank.split(decaying, picked), model)


def construct(kind: Any, kwargs: Kwargs, groups: Any, model: nn.Module | None) -> torch.optim.Optimizer:
    """Return an optimizer over groups. With 8 bits of bitsandbytes, embeddings keep 32, as rare rows need precision."""
    built: torch.optim.Optimizer = kind(groups, **kwargs)
    if model is not None and "bitsandbytes" in str(kind) and kwargs.get("optim_bits") == 8:
        rules = import_module("bitsandbytes").optim.GlobalOptimManager.get_instance()
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                rules.register_module_override(module, "weight", {"optim_bits": 32})
    return built


def borrow(request: OptimizerRequest, source: str) -> Any:
    """Import "module:name". Raises MissingPackage, which names the optimizer and how to install the package."""
    module, _, name = source.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        package = module.partition(".")[0]
        missing = (getattr(error, "name", None) or package).partition(".")[0]
        install = PACKAGES[package].install
        if missing != package:  # the package is installed, but one of its dependencies is not
            install = f"pip install {missing}"
        raise MissingPackage(
            f"optim: '{request.name}' is {name} of the package {package}, which cannot be imported ({error}). "
            f"Install it: {install}; or choose adamw_torch, which needs only torch."
        ) from error


# ---- torch only


class AdamW(Family):
    """AdamW of torch: Adam with decoupled weight decay; `adamw_torch_fused` is a fused kernel.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2.
    """

    class Parameters(NamedAdamParameters):
        """Keys of `adamw_torch`."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of torch and its arguments."""
        fused: Kwargs = {"fused": True} if request.name == "adamw_torch_fused" else {}
        return torch.optim.AdamW, {**request.adam, **fused}


class Adafactor(Family):
    """Adafactor with a factored mean square of matrices; the learning rate comes from the schedule.

    Source: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018.
    """

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of XDPX and its arguments, without relative steps."""
        return adafactor.Adafactor, {**request.rate, "scale_parameter": False, "relative_step": False}


class SGD(Family):
    """Stochastic gradient descent of torch; optim_args: momentum, dampening, nesterov.

    Source: Robbins and Monro, 1951; momentum as Sutskever et al., ICML 2013, section 2.
    """

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of torch and its arguments."""
        extra = {**request.numbers("momentum", "dampening", "weight_decay"), **request.switches("nesterov")}
        return torch.optim.SGD, {**request.rate, **extra}


class Adagrad(Family):
    """Adagrad of torch; optim_args: lr_decay, eps.

    Source: Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning", JMLR 12, 2011.
    """

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of torch and its arguments."""
        return torch.optim.Adagrad, {**request.rate, **request.numbers("lr_decay", "weight_decay", "eps")}


class RMSprop(Family):
    """RMSprop of torch; optim_args: momentum, alpha, eps, centered.

    Source: Tieleman and Hinton, "Neural Networks for Machine Learning", lecture 6.5, 2012.
    """

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of torch and its arguments."""
        extra = {**request.numbers("momentum", "alpha", "eps", "weight_decay"), **request.switches("centered")}
        return torch.optim.RMSprop, {**request.rate, **extra}


# ---- other packages


class BitsAndBytesAdamW(Family):
    """AdamW with a state of 8 or 32 bits, `paged` to the host if the device is full; package bitsandbytes.

    Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022.
    """

    class Parameters(NamedAdamParameters):
        """Keys of AdamW of bitsandbytes."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of bitsandbytes and its arguments."""
        return borrow(request, "bitsandbytes.optim:AdamW"), {**request.adam, **_bits(request), **_paged(request)}


class BitsAndBytesLion(Family):
    """Lion, which steps by the sign of a running mean, with a state of 8 or 32 bits; package bitsandbytes.

    Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023.
    """

    class Parameters(NamedAdamParameters):
        """Keys of Lion of bitsandbytes."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of bitsandbytes and its arguments."""
        own = {**request.rate, "betas": request.adam["betas"]}
        return borrow(request, "bitsandbytes.optim:Lion"), {**own, **_bits(request), **_paged(request)}


class BitsAndBytesRMSprop(Family):
    """RMSprop, state of 8 or 32 bits; optim_args: momentum, alpha, eps, centered; package bitsandbytes.

    Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022.
    """

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of bitsandbytes and its arguments."""
        extra = {**request.numbers("alpha", "eps", "weight_decay", "momentum"), **request.switches("centered")}
        return borrow(request, "bitsandbytes.optim:RMSprop"), {**request.rate, **extra, **_bits(request)}


class BitsAndBytesAdEMAMix(Family):
    """AdEMAMix: Adam with a second, slower mean; optim_args: beta3, alpha, t_alpha, t_beta3; package bitsandbytes.

    Source: Pagliardini, Ablin and Grangier, "The AdEMAMix Optimizer: Better, Faster, Older", ICLR 2025.
    """

    class Parameters(NamedAdamParameters):
        """Keys of AdEMAMix of bitsandbytes."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of bitsandbytes and its arguments."""
        first, second = request.adam["betas"]
        slowest = request.number("beta3", 0.9999)
        own = {
            **request.rate,
            "betas": (request.number("beta1", first), request.number("beta2", second), slowest),
            "alpha": request.number("alpha", 5.0),
            "eps": request.number("eps", request.args.adam_epsilon),
            **{key: request.whole(key, 0) for key in ("t_alpha", "t_beta3") if key in request.extra},
        }
        return borrow(request, "bitsandbytes.optim:AdEMAMix"), {**own, **_bits(request), **_paged(request)}


def _bits(request: OptimizerRequest) -> Kwargs:
    return {"optim_bits": 8 if "8bit" in request.name else 32}


def _paged(request: OptimizerRequest) -> Kwargs:
    return {"is_paged": "paged" in request.name}


class LowBitAdamW(Family):
    """AdamW with a state of 4 or 8 bits; optim_args: block_size, bf16_stochastic_round; package torchao.

    Source: Li, Chen and Zhu, "Memory Efficient Optimizers with 4-bit States", NeurIPS 2023.
    """

    class Parameters(NamedAdamParameters):
        """Keys of AdamW of torchao."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of torchao, whose module depends on the version, and its arguments."""
        name = {"adamw_torch_4bit": "AdamW4bit", "adamw_torch_8bit": "AdamW8bit"}[request.name]
        old = _version("torchao") < (0, 11)
        kind = borrow(request, f"torchao.{'prototype.low_bit_optim' if old else 'optim'}:{name}")
        extra = {
            "block_size": request.whole("block_size", 256),
            "bf16_stochastic_round": request.switch("bf16_stochastic_round"),
        }
        return kind, {**request.adam, **extra}


def _version(package: str) -> tuple[int, ...]:
    """Return (major, minor) of an installed package; (0, 11), which has today's layout, if it is not installed."""
    try:
        text = metadata.version(package)
    except metadata.PackageNotFoundError:
        return (0, 11)
    return tuple(int("".join(takewhile(str.isdigit, part)) or 0) for part in text.split(".")[:2])


class AnyPrecisionAdamW(Family):
    """AdamW in low precision; optim_args use_kahan_summation=true: with Kahan summation; package torchdistx.

    Source: Zamirai et al., "Revisiting BFloat16 Training", 2020, arXiv 2010.06192.
    """

    class Parameters(NamedAdamParameters):
        """Keys of AdamW of torchdistx."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of torchdistx and its arguments."""
        types = {"momentum_dtype": "float32", "variance_dtype": "float32", "compensation_buffer_dtype": "bfloat16"}
        kept = {key: getattr(torch, request.text(key, default)) for key, default in types.items()}
        summed = {"use_kahan_summation": request.switch("use_kahan_summation")}
        return borrow(request, "torchdistx.optimizers:AnyPrecisionAdamW"), {**request.adam, **summed, **kept}


class XlaAdamW(Family):
    """AdamW for TPUs, without synchronisation with the host; package torch_xla.

    Source: Loshchilov and Hutter, ICLR 2019, algorithm 2.
    """

    class Parameters(NamedAdamParameters):
        """Keys of AdamW of torch_xla."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of torch_xla and its arguments."""
        return borrow(request, "torch_xla.amp.syncfree:AdamW"), request.adam


class NpuAdamW(Family):
    """AdamW as a fused kernel for Ascend NPUs; package torch_npu.

    Source: Loshchilov and Hutter, ICLR 2019, algorithm 2.
    """

    class Parameters(NamedAdamParameters):
        """Keys of AdamW of torch_npu."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of torch_npu and its arguments."""
        return borrow(request, "torch_npu.optim:NpuFusedAdamW"), request.adam


class GaLore(Family):
    """AdamW or Adafactor over gradients projected to a low rank; optim_args: rank, scale, …; package galore_torch.

    Source: Zhao et al., "GaLore: Memory-Efficient LLM Training by Gradient Low-Rank Projection", ICML 2024.
    """

    class Parameters(LowRankParameters):
        """Keys of GaLore."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of galore_torch and its arguments, with two groups."""
        names = {"adafactor": "GaLoreAdafactor", "8bit": "GaLoreAdamW8bit", "adamw": "GaLoreAdamW"}
        kind = borrow(request, f"galore_torch:{next(name for mark, name in names.items() if mark in request.name)}")
        rank = {
            "rank": request.whole("rank", 128),
            "update_proj_gap": request.whole("update_proj_gap", 200),
            "scale": request.number("scale", 0.25),
            "proj_type": request.text("proj_type", "std"),
        }
        fixed = {"scale_parameter": False, "relative_step": False} if "adafactor" in request.name else {}
        return low_rank.chosen(request, kind, rank, {**request.rate, **fixed})


class GaLoreLayerwise(GaLore):
    """GaLore that steps each weight within the backward pass; only for the Trainer.

    Source: Zhao et al., ICML 2024.
    """

    class Parameters(LayerwiseParameters):
        """No keys: not for x-train."""


class Apollo(Family):
    """Gradients scaled as AdamW on low-rank projections; optim_args: rank, proj, scale_type, …; package apollo_torch.

    Source: Zhu et al., "APOLLO: SGD-like Memory, AdamW-level Performance", MLSys 2025.
    """

    class Parameters(LowRankAdamParameters):
        """Keys of APOLLO."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of apollo_torch and its arguments, with two groups."""
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
        return low_rank.chosen(request, borrow(request, "apollo_torch:APOLLOAdamW"), rank, request.rate)


class ApolloLayerwise(Apollo):
    """APOLLO that steps each weight within the backward pass; only for the Trainer.

    Source: Zhu et al., MLSys 2025.
    """

    class Parameters(LayerwiseParameters):
        """No keys: not for x-train."""


class Lomo(Family):
    """LOMO, which steps within the backward pass and stores no gradients; package lomo_optim.

    Source: Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited Resources", ACL 2024.
    """

    class Parameters(LomoParameters):
        """Keys of LOMO."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of lomo_optim and its arguments, with the model."""
        kind = borrow(request, f"lomo_optim:{'AdaLomo' if request.name == 'adalomo' else 'Lomo'}")
        if request.model is None:
            raise ValueError(f"optim: '{request.name}' steps within the backward pass of a model. Give the model.")
        return kind, {**request.rate, "model": request.model}


class AdaLomo(Lomo):
    """LOMO with a factored running mean square; only for the Trainer, and not resumed exactly.

    Source: Lv et al., "AdaLomo: Low-memory Optimization with Adaptive Learning Rate", ACL Findings 2024.
    """

    class Parameters(AdaLomoParameters):
        """No keys: not for x-train."""


class GrokAdamW(Family):
    """AdamW that amplifies slow gradients; optim_args: alpha_init, lamb, gamma, …; package grokadamw.

    Source: Lee et al., "Grokfast: Accelerated Grokking by Amplifying Slow Gradients", 2024, arXiv 2405.20233.
    """

    DEFAULTS: Mapping[str, float] = {
        "alpha_init": 0.98,
        "lamb": 2.0,
        "gamma": 0.1,
        "grokking_signal_decay_rate": 0.1,
        "gradient_clipping": 1.0,
    }

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of grokadamw and its arguments."""
        extra = {key: request.number(key, default) for key, default in GrokAdamW.DEFAULTS.items()}
        return borrow(request, "grokadamw:GrokAdamW"), {**request.rate, **extra}


class ScheduleFree(Family):
    """Averages weights in place of a schedule: AdamW or RAdam; optim_args: r, weight_lr_power; package schedulefree.

    The trained weights differ from the averaged ones that are evaluated and saved; the engine switches between them
    (`OptimizersAverage`).

    Source: Defazio et al., "The Road Less Scheduled", NeurIPS 2024.
    """

    class Parameters(ScheduleFreeParameters):
        """Keys of schedule-free Adam."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of schedulefree and its arguments."""
        names = {"radam": "RAdamScheduleFree", "adamw": "AdamWScheduleFree", "sgd": "SGDScheduleFree"}
        family = request.name.rpartition("_")[2]
        kind = borrow(request, f"schedulefree:{names[family]}")
        own = request.rate if family == "sgd" else request.adam
        warmup = {} if family == "radam" else {"warmup_steps": _whole_warmup(request)}
        extra = {"weight_lr_power": request.number("weight_lr_power", 2.0), "r": request.number("r", 0.0)}
        return kind, {**own, "weight_decay": request.args.weight_decay, **warmup, **extra}


class ScheduleFreeSGD(ScheduleFree):
    """Schedule-free stochastic gradient descent; optim_args: r, weight_lr_power; package schedulefree.

    Source: Defazio et al., NeurIPS 2024.
    """

    class Parameters(NamedParameters):
        """Keys of schedule-free SGD."""


def _whole_warmup(request: OptimizerRequest) -> float:
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


class StableAdamW(Family):
    """AdamW with the update clipping of Adafactor; optim_args: decouple_lr, max_lr, kahan_sum; package optimi.

    Source: Wortsman et al., "Stable and low-precision training for large-scale vision-language models", NeurIPS 2023.
    """

    class Parameters(NamedAdamParameters):
        """Keys of StableAdamW of optimi."""

    @staticmethod
    def chosen(request: OptimizerRequest) -> Chosen:
        """Return the class of optimi and its arguments."""
        extra = {
            "weight_decay": request.args.weight_decay,
            "decouple_lr": request.switch("decouple_lr"),
            "max_lr": request.number("max_lr", 0.0) if "max_lr" in request.extra else None,
            "kahan_sum": request.switch("kahan_sum") if "kahan_sum" in request.extra else None,
        }
        return borrow(request, "optimi:StableAdamW"), {**request.adam, **extra}
