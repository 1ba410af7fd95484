"""Schedules with a linear warm-up, and schedules composed of other schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.config.hparams import build
from xdpx.optimizers.spmd.schedules import (
    BaseSchedule,
    check_positive,
    check_stretches,
    cosine_between,
    exponential_between,
    piece_of,
    share_of_way,
)


class RampedSchedule(BaseSchedule):
    """Linear rise to `max`, constant, then decay to `min_ratio * max`, then constant. Subclasses define the decay."""

    class HParams(BaseSchedule.HParams):
        """Fields of a ramp.

        Attributes:
            warmup_steps: number of steps of the rise.
            decay_start: step at which the decay starts.
            decay_end: step at which the decay ends.
            min_ratio: final factor as a share of `max`.
            max: highest factor.
        """

        warmup_steps: int = 0
        decay_start: int = 0
        decay_end: int = 0
        min_ratio: float = 0.01
        max: float = 0.0

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        where = type(self).__name__
        check_positive(where, max=hparams.max)
        if not hparams.warmup_steps <= hparams.decay_start <= hparams.decay_end:
            steps = f"warmup_steps {hparams.warmup_steps}, decay_start {hparams.decay_start}"
            raise refusal(where, f"{steps}, decay_end {hparams.decay_end} must rise (equal ones are fine).")

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the factor of the rise before `warmup_steps`, of the decay afterwards."""
        wanted = self.hparams
        fall = self.decay(share_of_way(step, wanted.decay_start, wanted.decay_end))
        rise = wanted.max * step / max(wanted.warmup_steps, 1)
        return jnp.where(step < wanted.warmup_steps, rise, fall)

    def decay(self, share: jax.Array) -> jax.Array:
        """Return the factor after this share of the decay, in [0, 1]."""
        raise NotImplementedError


class LinearRampupPolynomialDecay(RampedSchedule):
    """Linear rise, then polynomial decay."""

    class HParams(RampedSchedule.HParams):
        """Fields of the decay.

        Attributes:
            power: exponent of the share of the decay.
        """

        power: float = 1

    def decay(self, share: jax.Array) -> jax.Array:
        """Return the factor of the polynomial."""
        wanted = self.hparams
        return jnp.asarray(wanted.max + share**wanted.power * wanted.max * (wanted.min_ratio - 1))


class LinearRampupCosineDecay(RampedSchedule):
    """Linear rise, then decay along half a cosine."""

    def decay(self, share: jax.Array) -> jax.Array:
        """Return the factor of the cosine."""
        return cosine_between(self.hparams.max, self.hparams.max * self.hparams.min_ratio, share)


class LinearRampupExponentialDecay(RampedSchedule):
    """Linear rise, then exponential decay."""

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_positive(type(self).__name__, min_ratio=hparams.min_ratio)

    def decay(self, share: jax.Array) -> jax.Array:
        """Return the factor of the exponential."""
        return exponential_between(self.hparams.max, self.hparams.max * self.hparams.min_ratio, share)


class LinearRampupSqrtDecay(BaseSchedule):
    """Linear rise to a peak, then the inverse square root of the step: like `Transformer`, with a configured peak."""

    class HParams(BaseSchedule.HParams):
        """Fields of the schedule.

        Attributes:
            peak: highest factor.
            warmup_steps: step of the peak.
        """

        peak: float = 1.0
        warmup_steps: int = 4000

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_positive(type(self).__name__, warmup_steps=hparams.warmup_steps)

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the factor of the rise or of the decay, whichever is lower."""
        now, warmup = jnp.maximum(step, 1.0), float(self.hparams.warmup_steps)
        return jnp.asarray(self.hparams.peak * jnp.minimum(now / warmup, jnp.sqrt(warmup / now)))


class LinearRampupPiecewiseConstant(BaseSchedule):
    """Linear rise to the first value, then piecewise constant."""

    class HParams(BaseSchedule.HParams):
        """Fields of the schedule.

        Attributes:
            boundaries: first step of each interval, ascending; the rise ends at the first one.
            values: factor of each interval.
        """

        boundaries: list[int] | tuple[int, ...] | None = None
        values: list[float] | tuple[float, ...] | None = None

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_stretches(type(self).__name__, "values", hparams.boundaries, hparams.values, more=0)

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the factor of the rise, or of the interval of `step`."""
        first, *others = self.hparams.boundaries
        rise = self.hparams.values[0] * step / max(first, 1)
        return jnp.where(step < first, rise, piece_of(step, others, self.hparams.values))


class PiecewiseSchedule(BaseSchedule):
    """A schedule for each interval of steps; each counts from the start of its interval."""

    class HParams(BaseSchedule.HParams):
        """Fields of the intervals.

        Attributes:
            boundaries: first steps of the second, third, ... interval, ascending.
            schedules: a template for each interval.
        """

        boundaries: list[int] | tuple[int, ...] | None = None
        schedules: Any = None

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_stretches(type(self).__name__, "schedules", hparams.boundaries, hparams.schedules, more=1)
        self.schedules = _built(hparams.schedules)

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the factor of the interval of `step`."""
        value = self.schedules[0].factor(step)
        for boundary, schedule in zip(self.hparams.boundaries, self.schedules[1:], strict=True):
            value = jnp.where(step < boundary, value, schedule.factor(step - boundary))
        return value


class CycleSchedule(BaseSchedule):
    """Schedules that are used in turns, cyclically; each gets the step of the whole run."""

    class HParams(BaseSchedule.HParams):
        """Fields of the cycle.

        Attributes:
            schedules: a template for each turn.
            steps: number of steps of each turn.
        """

        schedules: Any = None
        steps: list[int] | tuple[int, ...] | None = None

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        if hparams.schedules is None or hparams.steps is None or len(hparams.schedules) != len(hparams.steps):
            raise refusal("CycleSchedule", "give one number of steps for each schedule.")
        self.schedules = _built(hparams.schedules)

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the factor of the schedule of the current turn."""
        turn = jnp.mod(step, float(sum(self.hparams.steps)))
        value, end = self.schedules[0].factor(step), 0
        for length, schedule in zip(self.hparams.steps, self.schedules[1:], strict=False):
            end += length
            value = jnp.where(turn < end, value, schedule.factor(step))
        return value


def _built(templates: Sequence[Any]) -> list[BaseSchedule]:
    return [build(template) for template in templates]
