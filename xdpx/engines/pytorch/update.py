"""One optimizer update on PyTorch, for both x-train and the Trainer.

First forward and backward for each micro-batch, as the caller defines them; then once: unscale, divide, clip, guard,
step, average, schedule. The callers pass in what differs: how gradients become a step, the schedule, event callbacks.
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
from xdpx.engines.pytorch.unmoved import Unmoved
from xdpx.utils.summands import summand

Sums = dict[str, Any]
"""Values that are summed over micro-batches; they may still be on the device."""

Work = Callable[[Any, bool], Iterable[Mapping[str, Any]]]
"""Runs forward and backward on (micro-batch, whether it is the last one), and yields the sums of each pass."""

LOSS = "loss_sum"
"""The sum that must be finite."""


class Clipped(NamedTuple):
    """The result of clipping, on the device.

    Attributes:
        norm: of the mean gradient over all processes, before clipping.
        clipped: 1.0 if the norm was above the limit; None if not recorded.
    """

    norm: Tensor
    clipped: Tensor | None = None


class Gradients(Protocol):
    """How the gradients of a group become a step of the optimizer."""

    def clip(self, sums: Sums) -> Clipped:
        """Compute the norm of the mean gradient, and clip gradients or work out their divisor."""
        ...

    def step(self, number: int) -> Tensor | bool:
        """Take the step of update `number`; return whether it was skipped because a gradient was not finite."""
        ...

    def leave_out(self) -> None:
        """Skip the step, after `clip`."""
        ...


class Rates(Protocol):
    """The schedule of the learning rate, around the step."""

    def before(self, number: int) -> None:
        """Prepare the step of update `number`."""
        ...

    def after(self, *, skipped: Tensor | bool) -> float:
        """Advance to the next update; return the learning rate of this one."""
        ...


class Taken(NamedTuple):
    """The result of an update; values may still be on the device.

    Attributes:
        norm, clipped: see `Clipped`.
        skipped: whether the step was left out, for any reason.
        left_out: whether the guard left it out because loss or gradient was NaN or infinite.
        learning_rate: of the step.
    """

    norm: Tensor
    clipped: Tensor | None
    skipped: Tensor | bool
    left_out: bool
    learning_rate: float


class UpdateTaker:
    """Takes updates. Waits for the device only if the guard or a loss scale needs values.

    Args:
        strategy: distributes the work over processes.
        gradients: turns gradients into a step.
        rates: the schedule.
        tell: called with on_substep_end between micro-batches, and with on_pre_optimizer_step and on_optimizer_step.
        guard: leaves out updates that are NaN or infinite; None does not check them.
        average: of the weights; follows them at each update. None keeps no average.
        unmoved: warns if the first updates change no weight. None does not look.
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
        unmoved: Unmoved | None = None,
    ) -> None:
        self._strategy, self._gradients, self._rates, self._tell = strategy, gradients, rates, tell
        self._guard, self._average, self._unmoved = guard, average, unmoved

    def add_gradients(self, model: nn.Module, group: Sequence[Any], work: Work) -> Sums:
        """Add up the gradients of all micro-batches; return the sums of the values that `work` yields."""
        if self._unmoved is not None:
            self._unmoved.begin()
        sums: Sums = {}
        last = len(group) - 1
        for index, batch in enumerate(group):
            if index:
                self._tell("on_substep_end")
            with self._strategy.accumulating(model, index == last):
                for found in work(batch, index == last):
                    for name, value in found.items():
                        sums[name] = sums[name] + summand(value) if name in sums else summand(value)
        return sums

    def take(self, number: int, sums: Sums) -> Taken:
        """Take update `number` with the accumulated gradients.

        Raises:
            FloatingPointError: the guard or the loss scale ends the training.
        """
        norm, clipped = self._gradients.clip(sums)
        self._rates.before(number)
        self._tell("on_pre_optimizer_step")
        left_out = self._guard is not None and self._guard.leaves_out(sums[LOSS], norm, number)
        if left_out:
            self._gradients.leave_out()
        skipped = left_out or self._gradients.step(number)
        if self._average is not None:
            # A tensor is a fact for the log: wherever training goes on after a skipped step, the host knows of it.
            self._average.follow(number, skipped=skipped is True)
        self._tell("on_optimizer_step")
        rate = self._rates.after(skipped=skipped)
        if self._unmoved is not None:
            self._unmoved.follow(rate, norm, skipped=skipped is True)
            self._unmoved = None if self._unmoved.is_done else self._unmoved
        return Taken(norm, clipped, skipped, left_out, rate)


class SummedLosses:
    """Implements `Gradients` for gradients of summed losses: one divisor combines count, loss scale and clipping.

    Built-in optimizers divide in their own kernel; any other sees divided and clipped gradients. See `take_step`.
    """

    _scaling: Scaling  # of the last `clip`

    def __init__(
        self, optimizer: torch.optim.Optimizer, strategy: Strategy, options: EngineOptions, loss_scale: LossScale
    ) -> None:
        self._optimizer, self._strategy, self._options, self._loss_scale = optimizer, strategy, options, loss_scale
        self._ends = options.nonfinite_steps == "raise" and options.precision != "fp16"
        self._broken: Tensor | None = None  # 1.0 from a non-finite update on; the host finds out later and ends

    def clip(self, sums: Sums) -> Clipped:
        """Sum gradients over processes where the backward pass has not, and work out the divisor, still unapplied."""
        self._strategy.sum_gradients(parameters_of(self._optimizer))
        norm = self._strategy.norm(gradients_of(self._optimizer))
        multiplied = self._loss_scale.scale / self._strategy.mean_over
        self._scaling = scale_of(norm, sums["count"], multiplied, self._options.clip_norm)
        if self._options.nonfinite_steps == "keep" and self._options.precision != "fp16":
            self._scaling = self._scaling._replace(broken=torch.zeros_like(self._scaling.broken))
        if self._ends:
            # Later updates must not change the weights, so that the non-finite one can be run again from them.
            broken = self._scaling.broken
            self._broken = broken if self._broken is None else torch.maximum(self._broken, broken)
            self._scaling = self._scaling._replace(broken=self._broken)
        return Clipped(self._scaling.norm, self._scaling.clipped)

    def step(self, number: int) -> Tensor | bool:
        """Take the step unless the gradient is NaN or infinite, and adapt the loss scale of fp16."""
        take_step(self._optimizer, self._scaling)
        if self._options.precision == "fp16":
            # The only wait for the device in an update: the next one needs its loss scale.
            overflow = bool(self._scaling.broken)
            self._loss_scale.after(overflow=overflow, options=self._options, num_updates=number)
            return overflow
        return self._scaling.broken

    def leave_out(self) -> None:
        """Leave weights, optimizer and loss scale unchanged."""


class StepsInBackward:
    """Implements `Gradients` where the backward pass updates the weights (LOMO): nothing is left to clip or step."""

    def __init__(self, device: torch.device) -> None:
        self._nothing = torch.zeros((), device=device)

    def clip(self, sums: Sums) -> Clipped:
        """Return norm 0: no gradients are left to compute it from."""
        del sums
        return Clipped(self._nothing, self._nothing)

    def step(self, number: int) -> bool:
        """Do nothing."""
        del number
        return False

    def leave_out(self) -> None:
        """Raise RuntimeError: the step is already taken."""
        raise RuntimeError("this is a bug: a step within the backward pass cannot be left out.")


class LossShares:
    """Implements `Gradients` for losses already divided, so that gradients add up to those of the mean loss.

    They are unscaled and clipped in place, as scripts written for the original (Transformers) expect.

    Attributes:
        optimizer: takes the step.
        max_norm: largest norm of the gradient; 0 does not clip.
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
        """Take the step; under fp16 it is skipped if gradients overflowed. Return whether it was."""
        return self._precision.step(self.optimizer, number)

    def leave_out(self) -> None:
        """Skip the step."""
        self._precision.leave_out()
