"""The schedules of `lr_schedulers` as torch schedulers for the Trainer, with a state compatible with transformers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from pydantic import ValidationError
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from xdpx.config.declarations import declarations_of
from xdpx.config.faults import did_you_mean
from xdpx.logger import log
from xdpx.optimizers import lr_schedulers

OF_ARGUMENTS = frozenset({"warmup_steps", "learning_rate", "adam_betas"})
"""Keys of schedules whose values a Trainer takes from its own arguments."""


def scheduler_for(
    name: str, optimizer: Optimizer, warmup: int, total: int, kwargs: Mapping[str, Any] | None = None
) -> LRScheduler:
    """Return the scheduler `name` of an optimizer.

    Args:
        name: One of `lr_schedulers`.
        optimizer: The optimizer; its current learning rates are the full ones.
        warmup: Updates until the full learning rate is reached.
        total: Updates of the whole training.
        kwargs: Further arguments of this schedule (`lr_scheduler_kwargs`).

    Raises:
        ValueError: No schedule has this name, or a value is not valid.
        TypeError: One of `kwargs` is unknown to the schedule, or a required one is missing.
    """
    name = str(getattr(name, "value", name))
    if name not in lr_schedulers.lr_schedulers:
        raise ValueError(
            f"lr_scheduler_type: there is no schedule '{name}'. {_instead(name, lr_schedulers.lr_schedulers)}"
        )
    kind, given = lr_schedulers.lr_schedulers[name], dict(kwargs or {})
    _warn_of_no_effect(name, kind, warmup, total, given)
    if issubclass(kind, lr_schedulers.OnMetric):
        return cast(LRScheduler, kind.driving(optimizer, **given))
    if kind is lr_schedulers.Constant:
        return LambdaLR(optimizer, _constant)  # has no arguments: transformers ignores any
    last_epoch = given.pop("last_epoch", -1)
    if kind is lr_schedulers.ConstantWithWarmup:  # ignored by transformers too
        given = {}
    schedule = kind(_parameters(name, kind.Parameters, optimizer, warmup, given), total_steps=total)
    if isinstance(schedule, lr_schedulers.Curved):
        return LambdaLR(optimizer, schedule.curve, last_epoch=last_epoch)
    moves_momentum = schedule.momentum(1) is not None
    return (MomentumLR if moves_momentum else LambdaLR)(optimizer, schedule.after, last_epoch=last_epoch)


def steps_on_metric(scheduler: object) -> bool:
    """Return whether `step` takes the metric of an evaluation (plateau, greedy) instead of a call per update."""
    return _takes_metric(type(scheduler))  # type: ignore[arg-type]  # mypy: a class would not be hashable


@functools.cache
def _takes_metric(kind: type) -> bool:
    return issubclass(kind, ReduceLROnPlateau) or any(each.__name__ == "GreedyLR" for each in kind.mro())


class MomentumLR(LambdaLR):
    """Also sets the first beta or the momentum of each group (`cycle_momentum`).

    Its `lr_lambda` is the method `after` of a schedule.
    """

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates and the momentum of the next update."""
        super().step(epoch)
        schedule: lr_schedulers.LRScheduler = self.lr_lambdas[0].__self__  # type: ignore[attr-defined]
        momentum = schedule.momentum(self.last_epoch + 1)
        for group in self.optimizer.param_groups:
            if "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])
            elif "momentum" in group:
                group["momentum"] = momentum
            else:
                kind = type(self.optimizer).__name__
                raise ValueError(f"lr_scheduler_kwargs: cycle_momentum is true, but {kind} has no betas or momentum.")


def _warn_of_no_effect(name: str, kind: Any, warmup: int, total: int, given: Mapping[str, Any]) -> None:
    """Warn of a warm-up that this schedule or this training does not have, and of arguments that it ignores."""
    if warmup and not any(item.key == "warmup_steps" for item in declarations_of(kind.Parameters)):
        other = "'constant_with_warmup'" if kind is lr_schedulers.Constant else "another one"
        log.warning(
            f"warmup_steps: has no effect, as the schedule '{name}' has no warm-up. Choose {other}, or leave it out."
        )
    elif warmup >= total > 0:
        log.warning(
            f"warmup_steps: are {warmup:,} of {total:,} updates, so that the learning rate rises to the end and never "
            "reaches learning_rate. Lower it, or give a share of all updates, such as 0.1."
        )
    if given.keys() - {"last_epoch"} and kind in {lr_schedulers.Constant, lr_schedulers.ConstantWithWarmup}:
        log.warning(f"lr_scheduler_kwargs: {', '.join(given)} has no effect with '{name}'. Remove it.")


def _constant(_: int) -> float:
    return 1.0


def _parameters(name: str, declared: Any, optimizer: Optimizer, warmup: int, given: dict[str, Any]) -> Any:
    """Return the typed parameters of a schedule: those given, and those from the Trainer's own arguments."""
    where = f"lr_scheduler_kwargs of '{name}'"
    keys = {item.key: item for item in declarations_of(declared)}
    peak, betas = optimizer.defaults.get("lr"), optimizer.defaults.get("betas")
    if "min_lr_rate" in keys:
        given = _with_floor(where, peak, given)
    own = [key for key in keys if key not in OF_ARGUMENTS]
    for key in given:
        if key not in own:
            raise TypeError(f"{where}: '{key}' is unknown. {_instead(key, own)}")
    for key in own:
        if keys[key].required and key not in given:
            raise TypeError(f"{where}: '{key}' is missing. Give it: {keys[key].doc}")
    theirs = {"warmup_steps": warmup, "learning_rate": peak, "adam_betas": betas}
    known = {
        key: list(value) if isinstance(value, tuple) else float(value) if isinstance(value, torch.Tensor) else value
        for key, value in theirs.items()
        if key in keys and value is not None
    }
    try:
        parameters = declared(**known, **given)
    except ValidationError as error:
        first = error.errors()[0]
        at = f"{first['loc'][0]} is {first['input']!r}. " if first["loc"] else ""
        raise ValueError(f"{where}: {at}{first['msg']}.") from error
    for key, problem in parameters.conflicts():
        raise ValueError(f"{where}: {key} {problem}")
    return parameters


def _with_floor(where: str, peak: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the given arguments with `min_lr` converted to `min_lr_rate`. Raises ValueError unless one is given."""
    lowest, rate = given.pop("min_lr", None), given.pop("min_lr_rate", None)
    if (lowest is None) == (rate is None):
        found = "neither min_lr nor min_lr_rate is" if rate is None else "both min_lr and min_lr_rate are"
        raise ValueError(f"{where}: {found} given. Give one of them.")
    return {**given, "min_lr_rate": rate if lowest is None else lowest / peak}


def _instead(name: str, known: Iterable[str]) -> str:
    listed = f"Use one of: {', '.join(known)}." if [*known] else "This schedule takes no keys."
    return did_you_mean(name, known, rest=listed)
