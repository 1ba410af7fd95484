"""The optimizers of a Trainer by name (`optim`): those of torch here, those of other packages in `packages`."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import nn

from xdpx.config.faults import nearest
from xdpx.optimizers.pytorch import packages
from xdpx.optimizers.pytorch.adafactor import Adafactor
from xdpx.optimizers.pytorch.request import Chosen, Kwargs, Request, Wishes, pairs


def class_and_kwargs(args: Wishes, model: nn.Module | None = None) -> Chosen:
    """Choose the class of the optimizer and the arguments it is built with; nothing is built or changed.

    Args:
        args: The arguments of the training; `optim` names the optimizer.
        model: Needed by GaLore, APOLLO and LOMO alone.

    Raises:
        ValueError: No optimizer has this name, or `optim_args` cannot be read.
        ImportError: The package that has it is not installed; the message says how to get it.
    """
    name = str(getattr(args.optim, "value", args.optim))
    request = Request(args, model, name, pairs(args.optim_args))
    for table in (_OF_TORCH, packages.OPTIMIZERS):
        if name in table:
            return table[name](request)
    known = optimizer_names()
    near = nearest(name, known)
    hint = f"Did you mean '{near}'? " if near else ""
    raise ValueError(f"optim: there is no optimizer '{name}'. {hint}Use one of: {', '.join(known)}.")


def optimizer_names() -> list[str]:
    """Give every name that `optim` can have, those that need torch alone first."""
    return [*_OF_TORCH, *packages.OPTIMIZERS]


def optimizer_for(
    args: Wishes, model: nn.Module, groups: list[Kwargs], chosen: Chosen | None = None
) -> torch.optim.Optimizer:
    """Build the optimizer that the arguments name.

    Args:
        args: The arguments of the training.
        model: What is trained; some optimizers pick their parameters from it themselves.
        groups: Parameter groups, e.g. those of `decay_groups`.
        chosen: A class (or a class of factories, whose objects are called with the model) and its arguments in place
            of those that `args` names (`optimizer_cls_and_kwargs`).
    """
    kind, kwargs = class_and_kwargs(args, model) if chosen is None else chosen
    if not _is_optimizer(kind):
        made: torch.optim.Optimizer = kind()(model, **kwargs)
        return made
    kwargs = dict(kwargs)
    own = [kwargs.pop(key) for key in ("params", "model", "optimizer_dict") if key in kwargs]
    built: torch.optim.Optimizer = kind(own[-1] if own else groups, **kwargs)
    packages.keep_embeddings_exact(kind, kwargs, model)
    if fused_backward_of(built) is not None:  # its `step` would raise; bound, because schedules wrap it
        built.step = MethodType(_taken_already, built)  # type: ignore[method-assign]
    return built


def _taken_already(optimizer: torch.optim.Optimizer, closure: Any = None) -> None:
    """Do nothing: the weights moved in the backward pass."""


def fused_backward_of(optimizer: object) -> Callable[[torch.Tensor, float], None] | None:
    """Give `f(loss, learning_rate)` where the optimizer takes the backward pass upon itself (LOMO), otherwise None."""
    return getattr(optimizer, "fused_backward", None)


def _is_optimizer(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)


def _adamw(request: Request) -> Chosen:
    fused: Kwargs = {"fused": True} if request.name == "adamw_torch_fused" else {}
    return torch.optim.AdamW, {**request.adam, **fused}


def _adafactor(request: Request) -> Chosen:
    return Adafactor, {**request.rate, "scale_parameter": False, "relative_step": False}


def _sgd(request: Request) -> Chosen:
    extra = {**request.numbers("momentum", "dampening", "weight_decay"), **request.switches("nesterov")}
    return torch.optim.SGD, {**request.rate, **extra}


def _adagrad(request: Request) -> Chosen:
    return torch.optim.Adagrad, {**request.rate, **request.numbers("lr_decay", "weight_decay", "eps")}


def _rmsprop(request: Request) -> Chosen:
    extra = {**request.numbers("momentum", "alpha", "eps", "weight_decay"), **request.switches("centered")}
    return torch.optim.RMSprop, {**request.rate, **extra}


_OF_TORCH: dict[str, Callable[[Request], Chosen]] = {
    "adamw_torch": _adamw,
    "adamw_torch_fused": _adamw,
    "adafactor": _adafactor,
    "sgd": _sgd,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
}
