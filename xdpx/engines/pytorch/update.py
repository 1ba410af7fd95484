"""The one place that takes an update on PyTorch, for x-train and for the Trainer.

For each micro-batch forward and backward, as the door says; then once: unscale, divide, clip, guard, step, average,
schedule. What differs between the doors is handed in: how gradients become a step, the schedule, and who is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch.averaging import Average, OptimizersAverage
from xdpx.engines.pytorch.gradients import Scaling, gradients_of, scale_of
from xdpx.engines.pytorch.loss_scale import LossScale
from xdpx.engines.pytorch.nonfinite import Guard
from xdpx.engines.pytorch.optimizing import take_step
from xdpx.engines.pytorch.options import EngineOptions
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.strategies.base import Strategy
from xdpx.engines.pytorch.strategies.states import parameters_of

Sums = dict[str, Any]
"""Numbers that add up over micro-batches; they may still live on the device."""

Work = Callable[[Any, bool], Iterable[Mapping[str, Any]]]
"""Goes forward and backward on a micro-batch, and yields the sums of each pass; is told whether it is the last one."""

LOSS = "loss_sum"
"""The sum that must be finite."""


class Clipped(NamedTuple):
    """What clipping found, on the device.

    Attributes:
        norm: of the mean gradient over all processes, before it was clipped.
        clipped: 1.0 when that was above the limit; None where it is not told.
    """

    norm: Tensor
    clipped: Tensor | None = None


class Gradients(Protocol):
    """How the gradients of a group become a step of the optimizer."""

    def clip(self, sums: Sums) -> Clipped:
        """Bring gradients to their mean, and clip them."""
        ...

    def step(self, number: int) -> Tensor | bool:
        """Take the step of update `number`; tell whether it was left out because gradients had overflown."""
        ...

    def leave_out(self) -> None:
        """Take no step, after `clip`."""
        ...


class Rates(Protocol):
    """The schedule of the learning rate, around the step."""

    def before(self, number: int) -> None:
        """Prepare the step of update `number`."""
        ...

    def after(self, *, skipped: Tensor | bool) -> float:
        """Go on to the next update; return the learning rate of this one."""
        ...


class Taken(NamedTuple):
    """What an update gave, which may still live on the device.

    Attributes:
        norm, clipped: see `Clipped`.
        skipped: whether the step was left out, for whatever reason.
        left_out: whether the guard left it out, because loss or gradient was NaN or infinite.
        learning_rate: that the step was taken with.
    """

    norm: Tensor
    clipped: Tensor | None
    skipped: Tensor | bool
    left_out: bool
    learning_rate: float


class UpdateTaker:
    """Takes updates. It waits for the device only for what the guard, or a loss scale, must know.

    Args:
        strategy: spreads the work over processes.
        gradients: makes them a step.
        rates: the schedule.
        tell: hears of on_substep_end between micro-batches, and of on_pre_optimizer_step and on_optimizer_step.
        guard: leaves updates out that are NaN or infinite; None takes them as they are.
        average: of the weights; follows them at each update, also at one that was left out. None keeps none.
    """

    def __init__(
        self,
        strategy: Strategy,
        gradients: Gradients,
        rates: Rates,
        tell: Callable[[str], object],
        *,
        guard: Guard | None = None,
        average: Average | OptimizersAverage | None = None,
    ) -> None:
        self._strategy, self._gradients, self._rates, self._tell = strategy, gradients, rates, tell
        self._guard, self._average = guard, average

    def add_gradients(self, model: nn.Module, group: Sequence[Any], work: Work) -> Sums:
        """Add up the gradients of all micro-batches; return the sums of what their passes gave."""
        sums: Sums = {}
        last = len(group) - 1
        for index, batch in enumerate(group):
            if index:
                self._tell("on_substep_end")
            with self._strategy.accumulating(model, index == last):
                for found in work(batch, index == last):
                    for name, value in found.items():
                        sums[name] = sums[name] + value if name in sums else value
        return sums

    def take(self, number: int, sums: Sums) -> Taken:
        """Take update `number` along the gradients that were added up.

        Raises:
            FloatingPointError: the guard, or the loss scale, ends the training.
        """
        norm, clipped = self._gradients.clip(sums)
        self._rates.before(number)
        self._tell("on_pre_optimizer_step")
        left_out = self._guard is not None and self._guard.leaves_out(sums[LOSS], norm, number)
        if left_out:
            self._gradients.leave_out()
        skipped = left_out or self._gradients.step(number)
        if self._average is not None:
            self._average.follow(number)
        self._tell("on_optimizer_step")
        return Taken(norm, clipped, skipped, left_out, self._rates.after(skipped=skipped))


class SummedLosses:
    """Implements `Gradients` for gradients of sums of losses: one divisor holds count, loss scale and clipping.

    An optimizer of ours divides in its own kernel; any other sees divided and clipped gradients. See `take_step`.
    """

    _scaling: Scaling  # of the update that was clipped last

    def __init__(
        self, optimizer: torch.optim.Optimizer, strategy: Strategy, options: EngineOptions, loss_scale: LossScale
    ) -> None:
        self._optimizer, self._strategy, self._options, self._loss_scale = optimizer, strategy, options, loss_scale
        self._ends = options.nonfinite_steps == "raise" and options.precision != "fp16"
        self._broken: Tensor | None = None  # 1.0 since an update that ends the training, which is known later

    def clip(self, sums: Sums) -> Clipped:
        """Work out the divisor, from the sums over all processes; the gradients stay as they are."""
        self._strategy.sum_gradients(parameters_of(self._optimizer))
        norm = self._strategy.norm(gradients_of(self._optimizer))
        multiplied = self._loss_scale.scale / self._strategy.mean_over
        self._scaling = scale_of(norm, sums["count"], multiplied, self._options.clip_norm)
        if self._options.nonfinite_steps == "keep" and self._options.precision != "fp16":
            self._scaling = self._scaling._replace(broken=torch.zeros_like(self._scaling.broken))
        if self._ends:
            # No later update moves the weights: so the one that ended it can be taken again as it was.
            broken = self._scaling.broken
            self._broken = broken if self._broken is None else torch.maximum(self._broken, broken)
            self._scaling = self._scaling._replace(broken=self._broken)
        return Clipped(self._scaling.norm, self._scaling.clipped)

    def step(self, number: int) -> Tensor:
        """Take the step, unless the gradient is NaN or infinite; the loss scale of fp16 hears of it."""
        take_step(self._optimizer, self._scaling)
        if self._options.precision == "fp16":
            # The only wait for the device in an update: the next one must know its loss scale.
            overflow = bool(self._scaling.broken)
            self._loss_scale.after(overflow=overflow, options=self._options, num_updates=number)
        return self._scaling.broken

    def leave_out(self) -> None:
        """Leave weights, optimizer and loss scale as they are."""


class StepsInBackward:
    """Implements `Gradients` where the backward pass has moved the weights (LOMO): nothing is left to clip or step."""

    def __init__(self, device: torch.device) -> None:
        self._nothing = torch.zeros((), device=device)

    def clip(self, sums: Sums) -> Clipped:
        """Return 0: no gradient is left whose norm could be told."""
        del sums
        return Clipped(self._nothing, self._nothing)

    def step(self, number: int) -> bool:
        """Do nothing."""
        del number
        return False

    def leave_out(self) -> None:
        """Raise: the step is taken already."""
        raise RuntimeError("this is a bug: a step within the backward pass cannot be left out.")


class LossShares:
    """Implements `Gradients` for gradients of shares of the mean loss, which need not be divided any more.

    They are unscaled and clipped in place, as scripts written for the original expect to find them.

    Attributes:
        optimizer: that takes the step.
        max_norm: largest norm of the gradient; 0 leaves it.
    """

    max_norm = 0.0

    def __init__(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], strategy: Strategy, precision: Precision
    ) -> None:
        self.optimizer = optimizer
        self._parameters, self._strategy, self._precision = parameters, strategy, precision

    def clip(self, sums: Sums) -> Clipped:
        """Unscale the gradients and clip them."""
        del sums
        self._strategy.sum_gradients(self._parameters)
        self._precision.unscale(self.optimizer)
        return Clipped(self._strategy.clip(self._parameters, self.max_norm))

    def step(self, number: int) -> bool:
        """Take the step, which under fp16 is left out where gradients have overflown."""
        return self._precision.step(self.optimizer, number)

    def leave_out(self) -> None:
        """Take no step."""
        self._precision.leave_out()
