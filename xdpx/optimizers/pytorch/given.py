"""Resume with the settings of this run for optimizer and schedule in place of those in the checkpoint."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

BESIDE = ("base_lrs", "min_lrs", "default_min_lr")
"""Attributes of schedules that hold a setting under another name than that of the parameter."""


class Given:
    """The settings of an optimizer and its schedule, recorded before a saved state is loaded.

    Settings are the arguments of the constructors; all else (moments, step counts, the best score) is state, which is
    taken from the checkpoint.

    Args:
        optimizer: newly built.
        scheduler: newly built.
    """

    def __init__(self, optimizer: Optimizer, scheduler: Any) -> None:
        self._optimizer, self._scheduler = optimizer, scheduler
        names = _parameters(optimizer) or set(optimizer.defaults)
        names = (names | {"initial_lr"}) - {"lr", "params"}
        self._groups = [_some(group, names) for group in optimizer.param_groups]
        settings = _parameters(scheduler) - {"optimizer", "last_epoch"} | set(BESIDE)
        self._schedule = _some(vars(scheduler), settings)

    def put_back(self, ratio: float) -> None:
        """Restore the settings after the state was loaded, and set the learning rates to those of the loaded step.

        Args:
            ratio: new / old peak learning rate, for schedules that do not store the old one.
        """
        scheduler, groups = self._scheduler, self._optimizer.param_groups
        before, now = getattr(scheduler, "base_lrs", None), self._schedule.get("base_lrs")
        vars(scheduler).update(self._schedule)
        for index, (group, given) in enumerate(zip(groups, self._groups, strict=True)):
            group.update(given)
            if isinstance(scheduler, LambdaLR):
                rate = scheduler.base_lrs[index] * scheduler.lr_lambdas[index](scheduler.last_epoch)
            elif before and now and before[index]:
                rate = group["lr"] * (now[index] / before[index])
            else:
                rate = group["lr"] * ratio
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = float(rate)
        if hasattr(scheduler, "_last_lr"):
            scheduler._last_lr = [group["lr"] for group in groups]


def _parameters(thing: object) -> set[str]:
    """Return the names of the parameters of an object's constructor."""
    return set(inspect.signature(type(thing)).parameters) - {"args", "kwargs"}


def _some(values: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}
