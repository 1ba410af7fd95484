"""Resume with other settings: those that optimizer and schedule are given now, not those in the checkpoint."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

BESIDE = ("base_lrs", "min_lrs", "default_min_lr")
"""Settings of schedules that are kept under another name than their parameter has."""


class Given:
    """The settings of an optimizer and its schedule, taken down before a saved state is loaded into them.

    Settings are what their constructors take; all else (moments, counts of steps, the best score) is state and stays
    as it was saved.

    Args:
        optimizer: newly made.
        scheduler: newly made.
    """

    def __init__(self, optimizer: Optimizer, scheduler: Any) -> None:
        self._optimizer, self._scheduler = optimizer, scheduler
        names = _parameters(optimizer) or set(optimizer.defaults)
        names = (names | {"initial_lr"}) - {"lr", "params"}
        self._groups = [_some(group, names) for group in optimizer.param_groups]
        settings = _parameters(scheduler) - {"optimizer", "last_epoch"} | set(BESIDE)
        self._schedule = _some(vars(scheduler), settings)

    def put_back(self, ratio: float) -> None:
        """Let these settings hold again, with the learning rate that they give at the step that was loaded.

        Args:
            ratio: of the peak learning rate now to the one before; for schedules that do not keep the one before.
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
    """Name what the constructor of an object takes."""
    return set(inspect.signature(type(thing)).parameters) - {"args", "kwargs"}


def _some(values: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}
