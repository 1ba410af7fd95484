"""Learning rate schedules: factors of the base learning rate, as pure functions of the number of previous updates."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, Configurable

Point = tuple[float, float]
"""(step, value)."""


class BaseSchedule(Configurable):
    """A schedule: `schedule(step)` returns the factor of the learning rate, a float32 scalar; can be traced."""

    class HParams(BaseHParams):
        """No fields."""

    def __call__(self, step: jax.Array | int) -> jax.Array:
        """Return the factor of the update after `step` updates."""
        return jnp.asarray(self.factor(jnp.asarray(step, jnp.float32)), jnp.float32)

    value_at = __call__

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the factor at a float32 step."""
        raise NotImplementedError


def share_of_way(step: jax.Array, begin: float, end: float) -> jax.Array:
    """Return the share of the steps from `begin` to `end` that are done, in [0, 1]; from `begin` on 1 if none are."""
    if end <= begin:
        return jnp.where(step < begin, 0.0, 1.0)
    return jnp.clip((step - begin) / (end - begin), 0.0, 1.0)


def cosine_between(first: float, last: float, share: jax.Array) -> jax.Array:
    """Return the value after a share of half a cosine from `first` to `last`."""
    return last + 0.5 * (first - last) * (1 + jnp.cos(math.pi * share))


class Constant(BaseSchedule):
    """A constant factor."""

    class HParams(BaseSchedule.HParams):
        """Fields of the constant.

        Attributes:
            value: the factor.
        """

        value: float = 1.0

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the constant value."""
        return jnp.full_like(step, self.hparams.value)


class Polynomial(BaseSchedule):
    """Polynomial between two points; constant before and after."""

    class HParams(BaseSchedule.HParams):
        """Fields of the polynomial.

        Attributes:
            power: exponent of the share of steps between the points.
            start: (step, factor) of the first point.
            limit: (step, factor) of the second point.
            origin: `start`: flat at the start; `limit`: flat at the limit (for powers above 1).
        """

        power: float = 1
        start: Point = (0, 1.0)
        limit: Point = (1, 1.0)
        origin: str = "start"

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_order(type(self).__name__, hparams.start, hparams.limit)
        if hparams.origin not in {"start", "limit"}:
            raise refusal(f"{type(self).__name__}.origin", f"is '{hparams.origin}'.", "Use 'start' or 'limit'.")

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the interpolated factor."""
        wanted = self.hparams
        share = share_of_way(step, wanted.start[0], wanted.limit[0])
        bent = share**wanted.power if wanted.origin == "start" else 1 - (1 - share) ** wanted.power
        return jnp.asarray(wanted.start[1] + bent * (wanted.limit[1] - wanted.start[1]))


class Linear(Polynomial):
    """Linear between two points; constant before and after."""


class Exponential(BaseSchedule):
    """Exponential between two points; constant before and after."""

    class HParams(BaseSchedule.HParams):
        """Fields of the exponential.

        Attributes:
            start: (step, factor > 0).
            limit: (step, factor > 0).
        """

        start: Point = (0, 1.0)
        limit: Point = (1, 0.5)

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_order(type(self).__name__, hparams.start, hparams.limit)
        check_positive(type(self).__name__, **{"start[1]": hparams.start[1], "limit[1]": hparams.limit[1]})

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the interpolated factor."""
        (begin, first), (end, last) = self.hparams.start, self.hparams.limit
        return exponential_between(first, last, share_of_way(step, begin, end))


def exponential_between(first: float, last: float, share: jax.Array) -> jax.Array:
    """Return the value after a share of the exponential from `first` to `last`."""
    return jnp.exp(math.log(first) + share * (math.log(last) - math.log(first)))


class Cosine(BaseSchedule):
    """Half a cosine from step 0 on."""

    class HParams(BaseSchedule.HParams):
        """Fields of the cosine.

        Attributes:
            initial_value: factor at step 0.
            final_value: factor from `total_steps` on.
            total_steps: number of steps of the cosine.
        """

        initial_value: float = 1.0
        final_value: float = 0.0
        total_steps: int = 0

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_positive(type(self).__name__, total_steps=hparams.total_steps)

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the interpolated factor."""
        wanted = self.hparams
        return cosine_between(wanted.initial_value, wanted.final_value, share_of_way(step, 0, wanted.total_steps))


class DelayedCosine(BaseSchedule):
    """Half a cosine between two points; constant before and after."""

    class HParams(BaseSchedule.HParams):
        """Fields of the delayed cosine.

        Attributes:
            start: (step, factor).
            limit: (step, factor).
        """

        start: Point = (0, 1.0)
        limit: Point = (1, 0.5)

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_order(type(self).__name__, hparams.start, hparams.limit)

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the interpolated factor."""
        (begin, first), (end, last) = self.hparams.start, self.hparams.limit
        return cosine_between(first, last, share_of_way(step, begin, end))


class PiecewiseConstant(BaseSchedule):
    """A constant factor for each interval of steps."""

    class HParams(BaseSchedule.HParams):
        """Fields of the intervals.

        Attributes:
            boundaries: first steps of the second, third, ... interval, ascending.
            values: factor of each interval: one more than boundaries.
        """

        boundaries: list[int] | tuple[int, ...] | None = None
        values: list[float] | tuple[float, ...] | None = None

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_stretches(type(self).__name__, "values", hparams.boundaries, hparams.values, more=1)

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the factor of the interval of `step`."""
        return piece_of(step, self.hparams.boundaries, self.hparams.values)


def piece_of(step: jax.Array, boundaries: Any, values: Any) -> jax.Array:
    """Return the value of the interval of `step`."""
    index = jnp.searchsorted(jnp.asarray(boundaries, jnp.float32), step, side="right")
    return jnp.asarray(values, jnp.float32)[index]


class Transformer(BaseSchedule):
    """Linear rise to a peak of 1 / sqrt(model_dim * warmup), then the inverse square root of the step.

    Source: Vaswani et al., Attention is all you need, section 5.3.
    """

    class HParams(BaseSchedule.HParams):
        """Fields of the schedule.

        Attributes:
            warmup_steps: steps of the warm-up per worker replica.
            model_dim: width of the model.
            worker_replicas: multiplies the warm-up.
            decay_end: step from which the factor is constant.
        """

        warmup_steps: int = 4000
        model_dim: int = 512
        worker_replicas: int = 1
        decay_end: int | None = None

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_positive(
            type(self).__name__, warmup_steps=hparams.warmup_steps, model_dim=hparams.model_dim,
            worker_replicas=hparams.worker_replicas,
        )  # fmt: skip

    def factor(self, step: jax.Array) -> jax.Array:
        """Return the factor of the rise or of the decay, whichever is lower."""
        wanted = self.hparams
        now = (step if wanted.decay_end is None else jnp.minimum(step, float(wanted.decay_end))) + 1
        warmup = float(wanted.warmup_steps * wanted.worker_replicas)
        return jnp.asarray(wanted.model_dim**-0.5 * jnp.minimum(now * warmup**-1.5, now**-0.5))


class SqrtDecay(BaseSchedule):
    """The inverse square root of the step."""

    class HParams(BaseSchedule.HParams):
        """Fields of the decay.

        Attributes:
            decay_start: lower bound of the step minus `offset`: the factor is constant until then.
            multiplier: of the factor.
            offset: subtracted from the step.
        """

        decay_start: int = 10000
        multiplier: float = 1.0
        offset: float = 0.0

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_positive(type(self).__name__, decay_start=hparams.decay_start)

    def factor(self, step: jax.Array) -> jax.Array:
        """Return multiplier / sqrt(max(step - offset, decay_start))."""
        wanted = self.hparams
        root = jnp.sqrt(jnp.maximum(step - wanted.offset, float(wanted.decay_start)))
        return jnp.asarray(wanted.multiplier / root)


class ContinuousSchedule(BaseSchedule):
    """Constant, then exponential decay with a half-life, down to a minimum."""

    class HParams(BaseSchedule.HParams):
        """Fields of the decay.

        Attributes:
            initial_value: initial factor.
            start_step: step at which the decay starts.
            half_life_steps: number of steps that halve the factor.
            min: final factor as a share of `initial_value`.
        """

        initial_value: float = 1.0
        start_step: int = 400_000
        half_life_steps: int = 100_000
        min: float = 0.01

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        check_positive(type(self).__name__, min=hparams.min, half_life_steps=hparams.half_life_steps)

    def factor(self, step: jax.Array) -> jax.Array:
        """Return initial_value * max(0.5 ** halvings, min)."""
        wanted = self.hparams
        halvings = jnp.maximum(step - wanted.start_step, 0.0) / wanted.half_life_steps
        return jnp.asarray(wanted.initial_value * jnp.maximum(0.5**halvings, wanted.min))


def check_order(where: str, start: Point, limit: Point) -> None:
    """Raise ConfigError if the second point is not after the first."""
    if start[0] >= limit[0]:
        raise refusal(where, f"start is at step {start[0]}, limit at step {limit[0]}.", "Put limit after start.")


def check_positive(where: str, **values: float) -> None:
    """Raise ConfigError if a value is not above 0."""
    for name, value in values.items():
        if value <= 0:
            raise refusal(f"{where}.{name}", f"is {value}.", "Use a number above 0.")


def check_stretches(where: str, name: str, boundaries: Any, parts: Any, *, more: int) -> None:
    """Raise ConfigError unless boundaries ascend and there are as many parts, plus `more`."""
    if boundaries is None or parts is None:
        raise refusal(where, f"boundaries and {name} are both needed.")
    if len(parts) != len(boundaries) + more:
        there = f"there are {len(boundaries)} boundaries and {len(parts)} {name}"
        raise refusal(where, f"{there}.", f"Give {len(boundaries) + more} {name}.")
    if list(boundaries) != sorted(boundaries):
        raise refusal(f"{where}.boundaries", f"{list(boundaries)} do not increase.", "Sort them.")
