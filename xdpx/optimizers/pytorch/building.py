"""Build the optimizer of a run of x-train or of a Trainer, by name or from a user's class."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import nn

from xdpx.config.declarations import declarations_of
from xdpx.config.faults import did_you_mean, refusal
from xdpx.config.loading import Run
from xdpx.logger import log
from xdpx.optimizers import optimizers
from xdpx.optimizers.pytorch.families import Family, construct
from xdpx.optimizers.pytorch.lean_start import defer_compiler
from xdpx.optimizers.pytorch.request import Chosen, Kwargs, OptimizerArguments, OptimizerRequest, pairs

# ---- for x-train


def of_run(
    run: Run,
    groups: list[dict[str, Any]],
    *,
    model: nn.Module | None = None,
    prefix: str = "",
    learning_rate: float | None = None,
) -> Any:
    """Return the configured optimizer of a run for the parameter groups of a model.

    Classes that need more than their parameters (other optimizers of the run, a class of a package) have a `built`.

    Raises:
        ConfigError: the optimizer cannot be built with this config.
    """
    defer_compiler()
    kind = run.picked("optimizer", prefix)
    if hasattr(kind, "built"):
        return kind.built(run, groups, model=model, prefix=prefix)
    parameters = run.parameters("optimizer", prefix) if hasattr(kind, "Parameters") else None
    rate = run.values["learning_rate"] if learning_rate is None else learning_rate
    return build(kind, parameters, groups, rate)


def build(kind: Any, parameters: Any, groups: list[dict[str, Any]], learning_rate: float) -> Any:
    """Return an optimizer over parameter groups, each of which has its own learning rate.

    Args:
        kind: called as `kind(parameters, groups=...)`; without nested `Parameters`, like torch's own classes, as
            `kind(groups, lr=...)`.
        parameters: its typed parameters; None if it declares none.
        groups: returned by `Model.parameter_groups`.
        learning_rate: passed as `lr` if the class takes it.

    Raises:
        ConfigError: the class cannot be called like this.
    """
    signature = inspect.signature(kind)
    words: tuple[Any, ...] = (groups,) if parameters is None else (parameters,)
    named: dict[str, Any] = {} if parameters is None else {"groups": groups}
    if parameters is None and "lr" in signature.parameters:
        named["lr"] = learning_rate
    try:
        signature.bind(*words, **named)
    except TypeError as error:
        how = "(groups, lr=...)" if parameters is None else "(parameters, groups=...)"
        problem = f"is {kind.__name__}{signature}, which cannot be called as {kind.__name__}{how}: {error}."
        remedy = (
            "Give what is missing a default; or declare a nested class Parameters, and take (parameters, *, groups)."
        )
        raise refusal("optimizer", problem, remedy) from error
    return kind(*words, **named)


# ---- for a Trainer


def class_and_kwargs(args: OptimizerArguments, model: nn.Module | None = None) -> Chosen:
    """Return (class, arguments) of the optimizer, without building it.

    Args:
        args: The arguments of the training; `optim` names the optimizer.
        model: Needed only by GaLore, APOLLO and LOMO.

    Raises:
        ValueError: No optimizer has this name, it is for x-train only, or a setting such as `optim_args` is not valid.
        ImportError: Its package is not installed; the message says how to install it.
        NotImplementedError: It is a layerwise one, which cannot be used with several processes.
    """
    name = str(getattr(args.optim, "value", args.optim))
    if name not in optimizers:
        remedy = did_you_mean(name, optimizers, rest=f"Use one of: {', '.join(optimizers)}.")
        raise ValueError(f"optim: there is no optimizer '{name}'. {remedy}")
    kind, request = optimizers[name], OptimizerRequest(args, model, name, pairs(args.optim_args))
    if isinstance(kind, type) and issubclass(kind, Family):
        chosen = kind.chosen(request)
        try:
            request.refuse_unread()
        except ValueError as error:  # scripts written for the original may have such keys, which it ignores
            log.warning(str(error), once=True)
        if getattr(args, "optim_target_modules", None) is not None and "optim_target_modules" not in request.asked:
            log.warning(
                f"optim_target_modules: has no effect: '{name}' trains all layers alike. Choose a GaLore or APOLLO "
                "optimizer, or freeze what is not to be trained.",
                once=True,
            )
        if unread := request.unread_of_adam():
            log.warning(f"{', '.join(unread)}: no effect, as '{name}' is no variant of Adam. Leave it out.", once=True)
        return chosen
    if hasattr(kind, "built"):
        raise ValueError(
            f"optim: '{name}' is made for the groups of x-train's models. Give Trainer(optimizers=...) one of yours."
        )
    if hasattr(kind, "Parameters"):
        return kind, {"parameters": _parameters(kind.Parameters, request)}
    return kind, request.rate if "lr" in inspect.signature(kind).parameters else {}


def _parameters(declared: Any, request: OptimizerRequest) -> Any:
    """Return the typed parameters of an optimizer with `Parameters`, from the Trainer's arguments."""
    adam = request.adam
    theirs = {"learning_rate": adam["lr"], "adam_betas": list(adam["betas"]), "adam_eps": adam["eps"]}
    theirs["weight_decay"] = request.args.weight_decay
    extra: Kwargs = {}
    for key, text in request.extra.items():
        try:
            extra[key] = json.loads(text)
        except ValueError:
            extra[key] = text
    keys = {item.key for item in declarations_of(declared)}
    for key in extra.keys() - keys:
        raise ValueError(f"optim_args: '{request.name}' has no '{key}'. It has: {', '.join(sorted(keys))}.")
    parameters = declared(**{**{key: value for key, value in theirs.items() if key in keys}, **extra})
    for key, problem in parameters.conflicts():
        raise ValueError(f"optim: '{request.name}': {key} {problem}")
    return parameters


def optimizer_for(
    args: OptimizerArguments, model: nn.Module, groups: list[Kwargs], chosen: Chosen | None = None
) -> torch.optim.Optimizer:
    """Return the optimizer named by the arguments of a Trainer.

    Args:
        args: The arguments of the training.
        model: The trained model; some optimizers select parameters from it.
        groups: Parameter groups, e.g. those of `decay_groups`.
        chosen: (class, arguments) to use instead of `args.optim` (`optimizer_cls_and_kwargs`); the class may also be
            one of factories, whose instances are called with the model.
    """
    defer_compiler()
    kind, kwargs = class_and_kwargs(args, model) if chosen is None else chosen
    if hasattr(kind, "Parameters") and "parameters" in kwargs:  # built like in x-train, each group with its own lr
        with_rates = [{"lr": args.learning_rate, **group} for group in groups]
        return kind(kwargs["parameters"], groups=with_rates)  # type: ignore[no-any-return]
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        return kind()(model, **kwargs)  # type: ignore[no-any-return]
    kwargs = dict(kwargs)
    own = [kwargs.pop(key) for key in ("params", "model", "optimizer_dict") if key in kwargs]
    built = construct(kind, kwargs, own[-1] if own else groups, model)
    if fused_backward_of(built) is not None:  # its `step` would raise; a bound method, because schedules wrap it
        built.step = MethodType(_taken_already, built)  # type: ignore[method-assign]
    return built


def _taken_already(optimizer: torch.optim.Optimizer, closure: Any = None) -> None:
    """Do nothing: the weights were updated in the backward pass."""


def fused_backward_of(optimizer: object) -> Callable[[torch.Tensor, float], None] | None:
    """Return `f(loss, learning_rate)` if the optimizer runs the backward pass itself (LOMO), else None."""
    return getattr(optimizer, "fused_backward", None)
