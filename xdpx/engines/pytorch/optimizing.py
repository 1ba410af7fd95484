"""What the engine does with an optimizer, built-in or a user's: check it, set its rates, take a step, resume it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import refusal
from xdpx.engines.base import Schedule
from xdpx.engines.pytorch.collectives import map_tensors
from xdpx.engines.pytorch.gradients import SCALING, Scaling, gradients_of, is_able
from xdpx.engines.pytorch.strategies.states import like, parameters_of

SCHEDULED = frozenset({"lr", "initial_lr", "betas", "momentum"})
"""Settings that are computed again before each update from the optimizer's initial ones, so never restored."""


def check(optimizer: torch.optim.Optimizer, schedule: Schedule | None) -> None:
    """Raise ConfigError if this engine cannot step an optimizer, or the optimizer cannot follow the schedule."""
    name = type(optimizer).__name__
    lacking = [each for each in ("step", "zero_grad", "param_groups", "state_dict") if not hasattr(optimizer, each)]
    if lacking:
        problem = f"is {name}, which has no {', '.join(lacking)}."
        raise refusal("optimizer", problem, "Derive it from torch.optim.Optimizer.")
    try:
        inspect.signature(optimizer.step).bind()
    except TypeError as error:
        problem = f"is {name}, whose step() cannot be called without arguments ({error}): gradients are computed once."
        raise refusal("optimizer", problem, "Use one that needs no closure.") from error
    momentum = None if schedule is None else schedule.momentum(1)
    if momentum is not None and not all({"betas", "momentum"} & group.keys() for group in optimizer.param_groups):
        problem = f"is true, but {name} has neither betas nor a momentum in its parameter groups."
        raise refusal("cycle_momentum", problem, "Set it to false, or use an optimizer that has one.")


def set_rates(optimizer: torch.optim.Optimizer, factor: float, momentum: float | None) -> None:
    """Set each group's learning rate (the initial one if it has a `fixed_rate`) and its first beta or momentum."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * (1.0 if group.get("fixed_rate") else factor)
        if momentum is not None and "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        elif momentum is not None:
            group["momentum"] = momentum


def take_step(optimizer: Any, scaling: Scaling) -> None:
    """Step along the clipped mean gradient; leave weights and optimizer unchanged if it is not finite.

    An optimizer with the ability `SCALING` does all of that in its own kernel. For any other it is done here, so that
    it sees the same gradients as in a hand-written loop; the host then waits for the device, to know whether to step.
    """
    if is_able(optimizer, SCALING):
        optimizer.grad_scale, optimizer.found_inf = scaling.divisor, scaling.broken
        optimizer.step()
    elif not scaling.broken:
        torch._foreach_div_(gradients_of(optimizer), scaling.divisor)
        optimizer.step()


def settings_of(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[dict[str, Any]]:
    """Return the settings of each group of a new optimizer, with the names of its weights in place of the weights."""
    names = {id(weight): name for name, weight in model.named_parameters()}
    return [
        {**group, "params": [names.get(id(weight), "") for weight in group["params"]]}
        for group in optimizer.param_groups
    ]


def load(
    optimizer: torch.optim.Optimizer,
    saved: Mapping[str, Any],
    *,
    before: Sequence[Mapping[str, Any]] | None,
    now: Sequence[Any],
) -> None:
    """Restore the state of an optimizer, under its current settings.

    An unchanged setting gets its saved value, because some optimizers keep state among their settings; a changed
    setting takes effect. If the trained weights or their groups differ from then, each weight keeps its own state, and
    new weights start without any.

    Args:
        optimizer: newly made.
        saved: its `state_dict` when it was saved, with whole tensors.
        before: what `settings_of` returned then; None if unknown.
        now: what `settings_of` returns now.

    Raises:
        ValueError, KeyError: the saved state belongs to other weights.
    """
    if before is None or [group["params"] for group in before] == [group["params"] for group in now]:
        optimizer.load_state_dict({**saved, "state": _shared_out(optimizer, saved["state"])})
        for index, (group, given) in enumerate(zip(optimizer.param_groups, now, strict=True)):
            made: Mapping[str, Any] = {} if before is None else before[index]
            changed = (key for key in given if key in SCHEDULED or not _same(made.get(key), given[key]))
            group.update({key: given[key] for key in changed if key != "params"})
        return
    then = [name for group in before for name in group["params"]]
    state = {then[index]: value for index, value in saved["state"].items()}
    own = optimizer.state_dict()
    here = [name for group in now for name in group["params"]]
    kept = {index: state[name] for index, name in enumerate(here) if name in state}
    optimizer.load_state_dict({**own, "state": _shared_out(optimizer, kept)})


def _shared_out(optimizer: torch.optim.Optimizer, state: Mapping[int, Any]) -> dict[int, Any]:
    """Return a whole optimizer state, by index of the weight, cut to this process's shards of the weights."""
    weights = parameters_of(optimizer)
    return {
        index: map_tensors(partial(like, weights[index]), each) if index < len(weights) else each
        for index, each in state.items()
    }


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return torch.equal(first, second)
    return bool(first == second)
