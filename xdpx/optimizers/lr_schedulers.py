"""Learning rate schedules by name, for x-train and the Trainer: functions of the number of updates, without torch.

`lr_scheduler` of x-train selects a class here, whose parameters are keys of the config; `lr_scheduler_type` of the
Trainer selects the same class, with `warmup_steps` and `lr_scheduler_kwargs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from xdpx.config import parameters as declare
from xdpx.config.registry import Registry

lr_schedulers: Registry[Any] = Registry(
    "lr_scheduler",
    {
        "constant": "xdpx.optimizers.lr_schedulers:Constant",
        "constant_with_warmup": "xdpx.optimizers.lr_schedulers:ConstantWithWarmup",
        "cosine": "xdpx.optimizers.lr_schedulers:Cosine",
        "cosine_warmup_with_min_lr": "xdpx.optimizers.lr_schedulers:CosineFromFirst",
        "cosine_with_min_lr": "xdpx.optimizers.lr_schedulers:CosineWithMinimum",
        "cosine_with_restarts": "xdpx.optimizers.lr_schedulers:CosineWithRestarts",
        "exponential_decay": "xdpx.optimizers.lr_schedulers:ExponentialDecay",
        "greedy": "xdpx.optimizers.lr_schedulers:Greedy",
        "inverse_sqrt": "xdpx.optimizers.lr_schedulers:InverseRoot",
        "linear": "xdpx.optimizers.lr_schedulers:Linear",
        "one_cycle": "xdpx.optimizers.lr_schedulers:OneCycle",
        "polynomial": "xdpx.optimizers.lr_schedulers:Polynomial",
        "reduce_lr_on_plateau": "xdpx.optimizers.lr_schedulers:ReduceOnPlateau",
        "warmup_constant": "xdpx.optimizers.lr_schedulers:WarmupConstant",
        "warmup_stable_decay": "xdpx.optimizers.lr_schedulers:WarmupStableDecay",
    },
    base="xdpx.optimizers.lr_schedulers:LRScheduler",
)
register = lr_schedulers.register

Factor = Callable[[int], float]
"""Maps the number of finished updates, 0 at the first one, to the factor of the learning rate."""

Ramp = Literal["linear", "cosine", "1-sqrt"]

key = partial(declare.param, group="optimization")
SHARE = "a float of at most 1.0 is a share of all updates."


class LRScheduler:
    """The factor of `learning_rate` for each update.

    Most schedules are stateless: the factor depends only on the number of the update, so that nothing has to be saved.
    A subclass nests its `Parameters` and overrides `factor`; schedules driven by scores derive from `OnMetric`.
    """

    Parameters = declare.Parameters

    def __init__(self, parameters: Any, *, total_steps: int) -> None:
        self.parameters = parameters
        self.total_steps = total_steps

    def factor(self, num_update: int) -> float:
        """Return the factor of the learning rate for update `num_update` (1 for the first); usually in [0, 1]."""
        raise NotImplementedError

    def after(self, done: int) -> float:
        """Return the factor of the update after `done` updates."""
        return self.factor(done + 1)

    def momentum(self, num_update: int) -> float | None:
        """Return the first Adam beta for update `num_update`; None: as configured."""
        return None

    def take_score(self, score: float) -> None:
        """Update the schedule with the score of an evaluation, equal on all processes. Ignored by default."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that depends on scores, as plain values; {} if there is none."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""


def ramp(share: float, start: float) -> float:
    """Return the linear interpolation from `start` at share 0 to 1 at share 1; constant outside of [0, 1]."""
    return start + (1.0 - start) * min(max(share, 0.0), 1.0)


def steps_of(count: int | float, total_steps: int) -> int:
    """Return a number of steps; a float of at most 1.0 is a share of `total_steps`."""
    if isinstance(count, float) and count <= 1.0:
        return math.floor(count * total_steps + 0.5)
    return int(count)


class Warmup(declare.Parameters):
    """Keys of the warm-up."""

    warmup_steps: int | float = key(
        0, ge=0, relative="inverse", doc=f"Updates until the full learning rate is reached; {SHARE}"
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: a fractional number of steps above 1."""
        if self.warmup_steps < 1 or float(self.warmup_steps).is_integer():
            return []
        return [
            ("warmup_steps", f"is {self.warmup_steps}. Use a whole number, or a share of all updates of at most 1.0.")
        ]


# ---- schedules of XDPX: update 1 is the first step of the warm-up


class Constant(LRScheduler):
    """Constant learning rate."""

    def factor(self, num_update: int) -> float:
        """Return 1."""
        return 1.0


class WarmupConstant(LRScheduler):
    """Linear from learning_rate / div_factor to learning_rate within `warmup_steps` updates, then constant."""

    class Parameters(Warmup):
        """Keys of `warmup_constant`."""

        div_factor: float = key(25.0, ge=1, doc="The warm-up starts from learning_rate divided by this.")

    parameters: Parameters

    def factor(self, num_update: int) -> float:
        """Return 1/div_factor before the first update, 1 from update `warmup_steps` on."""
        steps = steps_of(self.parameters.warmup_steps, self.total_steps)
        return ramp(num_update / steps, 1.0 / self.parameters.div_factor) if steps else 1.0


class ExponentialDecay(LRScheduler):
    """Linear warm-up, then the learning rate is multiplied by `decay_rate` after every `decay_steps` updates."""

    class Parameters(WarmupConstant.Parameters):
        """Keys of `exponential_decay`."""

        decay_rate: float = key(0.95, gt=0, le=1, doc="Factor of the learning rate at each stair.")
        decay_steps: int = key(
            1000, gt=0, relative="inverse", doc="Updates on each stair, counted from the end of the warm-up."
        )

    parameters: Parameters

    def factor(self, num_update: int) -> float:
        """Return decay_rate ** floor((num_update - warmup_steps) / decay_steps) after the warm-up."""
        known, warmup = self.parameters, steps_of(self.parameters.warmup_steps, self.total_steps)
        if num_update < warmup:
            return ramp(num_update / warmup, 1.0 / known.div_factor)
        return known.decay_rate ** ((num_update - warmup) // known.decay_steps)


class OneCycle(LRScheduler):
    """From learning_rate / div_factor up to learning_rate, and back down at the last update.

    Rise and fall have the same curve. With `cycle_momentum` the first Adam beta moves inversely: from its configured
    value down to `base_momentum` at the highest learning rate, and back.

    Source: Smith and Topin, "Super-Convergence" (2018), section 3, with the same configurable curve for rise and fall.
    """

    class Parameters(Warmup):
        """Keys of `one_cycle`."""

        anneal_strategy: Literal["linear", "cosine", "polynomial"] = key(
            "linear", doc="Curve of the rise and of the fall."
        )
        anneal_p: float = key(
            1.0, gt=0, doc="Power of the polynomial curve.", when=("anneal_strategy", "is", "polynomial")
        )
        div_factor: float = key(600.0, ge=1, doc="The cycle starts and ends at learning_rate divided by this.")
        cycle_momentum: bool = key(False, doc="Move the first Adam beta inversely to the learning rate.")
        base_momentum: float = key(
            0.85,
            ge=0,
            lt=1,
            doc="Lowest first Adam beta, at the highest learning rate.",
            when=("cycle_momentum", "is", True),
        )
        adam_betas: list[float] = key([0.9, 0.999], doc="Decay of the running means of the gradient and of its square.")

    parameters: Parameters

    def factor(self, num_update: int) -> float:
        """Return a value in [1/div_factor, 1]."""
        low = 1.0 / self.parameters.div_factor
        return low + (1.0 - low) * self.height(num_update)

    def momentum(self, num_update: int) -> float | None:
        """Return a value between adam_betas[0] (at both ends) and base_momentum (at the highest learning rate)."""
        if not self.parameters.cycle_momentum:
            return None
        high, low = self.parameters.adam_betas[0], self.parameters.base_momentum
        return high - (high - low) * self.height(num_update)

    def height(self, num_update: int) -> float:
        """Return the height of the curve: 0 at update 0 and at the last update, 1 at the end of the warm-up."""
        top = min(steps_of(self.parameters.warmup_steps, self.total_steps), self.total_steps)
        if num_update < top:
            return self.curve(num_update / top)
        rest = self.total_steps - top
        return self.curve(max(self.total_steps - num_update, 0) / rest) if rest else 1.0

    def curve(self, share: float) -> float:
        """Return the height after a share of the rise, both in [0, 1]."""
        if self.parameters.anneal_strategy == "cosine":
            return (1.0 - math.cos(math.pi * share)) / 2.0
        power = self.parameters.anneal_p if self.parameters.anneal_strategy == "polynomial" else 1.0
        return float(share**power)


# ---- the curves of the Trainer: functions of the number of finished updates, with the keywords of the original


def _rise(step: int, warmup: int) -> float:
    return step / max(1, warmup)


def _share(step: int, warmup: int, total: int) -> float:
    """Return the share of the updates after the warm-up that are finished."""
    return (step - warmup) / max(1, total - warmup)


def _wave(cycles: float, share: float) -> float:
    """Return a cosine wave between 1 (at share 0) and 0, with so many cycles up to share 1."""
    return 0.5 * (1.0 + math.cos(math.pi * float(cycles) * 2.0 * share))


def _constant_with_warmup(step: int, *, num_warmup_steps: int) -> float:
    return _rise(step, num_warmup_steps) if step < num_warmup_steps else 1.0


def _linear(step: int, *, num_warmup_steps: int, num_training_steps: int) -> float:
    if step < num_warmup_steps:
        return _rise(step, num_warmup_steps)
    return max(0.0, (num_training_steps - step) / max(1, num_training_steps - num_warmup_steps))


def _cosine(
    step: int, *, num_warmup_steps: int, num_training_steps: int, num_cycles: float, min_lr_rate: float = 0.0
) -> float:
    if step < num_warmup_steps:
        return _rise(step, num_warmup_steps)
    return max(
        0.0, _wave(num_cycles, _share(step, num_warmup_steps, num_training_steps)) * (1.0 - min_lr_rate) + min_lr_rate
    )


def _cosine_from_first(
    step: int,
    *,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: float,
    min_lr_rate: float,
    warmup_lr_rate: float | None,
) -> float:
    if step < num_warmup_steps:
        if warmup_lr_rate is None:
            return (step + 1.0) / max(1.0, num_warmup_steps)
        return warmup_lr_rate + (1.0 - warmup_lr_rate) * step / max(1, num_warmup_steps - 1)
    share = (step - num_warmup_steps + 1.0) / max(1.0, num_training_steps - num_warmup_steps)
    return max(0.0, _wave(num_cycles, share) * (1.0 - min_lr_rate) + min_lr_rate)


def _restarts(step: int, *, num_warmup_steps: int, num_training_steps: int, num_cycles: float) -> float:
    if step < num_warmup_steps:
        return _rise(step, num_warmup_steps)
    share = _share(step, num_warmup_steps, num_training_steps)
    if share >= 1.0:
        return 0.0
    return max(0.0, _wave(0.5, (float(num_cycles) * share) % 1.0))


def _polynomial(
    step: int, *, num_warmup_steps: int, num_training_steps: int, lr_init: float, lr_end: float, power: float
) -> float:
    if step < num_warmup_steps:
        return _rise(step, num_warmup_steps)
    if step > num_training_steps:
        return lr_end / lr_init
    left = max(0.0, 1.0 - _share(step, num_warmup_steps, num_training_steps))
    return ((lr_init - lr_end) * math.pow(left, power) + lr_end) / lr_init


def _inverse_root(step: int, *, num_warmup_steps: int, timescale: float) -> float:
    if step < num_warmup_steps:
        return _rise(step, num_warmup_steps)
    return 1.0 / math.sqrt((step + timescale - num_warmup_steps) / timescale)


def _stable(
    step: int,
    *,
    num_warmup_steps: int,
    num_stable_steps: int,
    num_decay_steps: int,
    warmup_type: Ramp,
    decay_type: Ramp,
    min_lr_ratio: float,
    num_cycles: float,
) -> float:
    if step < num_warmup_steps:
        factor = _rise_along(warmup_type, _rise(step, num_warmup_steps))
    elif step < num_warmup_steps + num_stable_steps:
        return 1.0
    elif step < num_warmup_steps + num_stable_steps + num_decay_steps:
        factor = _fall_along(
            decay_type, (step - num_warmup_steps - num_stable_steps) / max(1, num_decay_steps), num_cycles
        )
    else:
        return min_lr_ratio
    return max(0.0, factor * (1.0 - min_lr_ratio) + min_lr_ratio)


def _rise_along(curve: Ramp, share: float) -> float:
    if curve == "cosine":
        return 0.5 * (1.0 - math.cos(math.pi * share))
    return share if curve == "linear" else 1.0 - math.sqrt(1.0 - share)


def _fall_along(curve: Ramp, share: float, cycles: float) -> float:
    if curve == "cosine":
        return _wave(cycles, share)
    return 1.0 - (share if curve == "linear" else math.sqrt(share))


# ---- schedules of the Trainer: functions of the finished updates, so that the first update has a learning rate of 0


class Curved(LRScheduler):
    """A schedule of the Trainer. `curve` is passed to torch unchanged, so that `scheduler.pt` equals the original's."""

    Parameters = Warmup

    def __init__(self, parameters: Any, *, total_steps: int) -> None:
        super().__init__(parameters, total_steps=total_steps)
        self.curve = self.curve_from(steps_of(parameters.warmup_steps, total_steps), total_steps)

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return the curve for so many updates of warm-up and updates in total."""
        raise NotImplementedError

    def factor(self, num_update: int) -> float:
        """Return the value of the curve at the number of updates before this one."""
        return self.curve(num_update - 1)


class ConstantWithWarmup(Curved):
    """Linear from 0 to learning_rate within `warmup_steps` updates, then constant."""

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return min(1, done / warmup_steps)."""
        return partial(_constant_with_warmup, num_warmup_steps=warmup)


class Linear(Curved):
    """Linear warm-up from 0, then linear decay, which reaches 0 one update after the last."""

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return the linear rise and fall."""
        return partial(_linear, num_warmup_steps=warmup, num_training_steps=total)


class Cosine(Curved):
    """Linear warm-up from 0, then decay to 0 along half a cosine."""

    class Parameters(Warmup):
        """Keys of `cosine`."""

        num_cycles: float = key(0.5, ge=0, doc="Periods of the cosine after the warm-up; 0.5: only down.")

    parameters: Parameters

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return (1 + cos(2 pi num_cycles share)) / 2; share: of the updates after the warm-up that are finished."""
        cycles = self.parameters.num_cycles
        return partial(_cosine, num_warmup_steps=warmup, num_training_steps=total, num_cycles=cycles)


class CosineWithMinimum(Curved):
    """Like `cosine`, but down to a share of the learning rate."""

    class Parameters(Cosine.Parameters):
        """Keys of `cosine_with_min_lr`."""

        min_lr_rate: float = key(
            ge=0, doc="Lowest learning rate as a share of learning_rate; min_lr of x-train says when to stop."
        )

    parameters: Parameters

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return the cosine between min_lr_rate and 1."""
        known = self.parameters
        return partial(
            _cosine,
            num_warmup_steps=warmup,
            num_training_steps=total,
            num_cycles=known.num_cycles,
            min_lr_rate=known.min_lr_rate,
        )


class CosineFromFirst(Curved):
    """Like `cosine_with_min_lr`, but counted from 1, so that the learning rate of the first update is not 0."""

    class Parameters(CosineWithMinimum.Parameters):
        """Keys of `cosine_warmup_with_min_lr`."""

        warmup_lr_rate: float | None = key(
            None, ge=0, doc="Rate of the first update as a share of learning_rate; null: 1 / warmup_steps."
        )

    parameters: Parameters

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return a warm-up from warmup_lr_rate, and the cosine between 1 and min_lr_rate."""
        known = self.parameters
        return partial(
            _cosine_from_first,
            num_warmup_steps=warmup,
            num_training_steps=total,
            num_cycles=known.num_cycles,
            min_lr_rate=known.min_lr_rate,
            warmup_lr_rate=known.warmup_lr_rate,
        )


class CosineWithRestarts(Curved):
    """Linear warm-up from 0, then `num_cycles` times from the learning rate down to 0 along half a cosine."""

    class Parameters(Warmup):
        """Keys of `cosine_with_restarts`."""

        num_cycles: int | float = key(1, ge=0, doc="Number of decays from the full learning rate to 0.")

    parameters: Parameters

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return half a cosine for each cycle."""
        cycles = self.parameters.num_cycles
        return partial(_restarts, num_warmup_steps=warmup, num_training_steps=total, num_cycles=cycles)


class Polynomial(Curved):
    """Linear warm-up from 0, then decay to `lr_end` with a power of the remaining share of updates."""

    class Parameters(Warmup):
        """Keys of `polynomial`."""

        learning_rate: float = key(1e-3, gt=0, doc="Maximum learning rate; the schedule multiplies it by at most 1.")
        lr_end: float = key(1e-7, ge=0, doc="Learning rate after the last update.")
        power: float = key(1.0, gt=0, doc="Power of the remaining share of updates; 1: linear.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Return conflicts: `lr_end` is not below the learning rate."""
            if self.lr_end < self.learning_rate:
                return super().conflicts()
            wrong = f"is {self.lr_end}, not below learning_rate {self.learning_rate}. Lower lr_end."
            return [*super().conflicts(), ("lr_end", wrong)]

    parameters: Parameters

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return ((learning_rate - lr_end) * left ** power + lr_end) / learning_rate."""
        known = self.parameters
        return partial(
            _polynomial,
            num_warmup_steps=warmup,
            num_training_steps=total,
            lr_init=known.learning_rate,
            lr_end=known.lr_end,
            power=known.power,
        )


class InverseRoot(Curved):
    """Linear warm-up from 0, then decay with the inverse square root of the updates; does not depend on their total."""

    class Parameters(Warmup):
        """Keys of `inverse_sqrt`."""

        timescale: int | float | None = key(
            None, gt=0, doc="Updates after which the rate is 0.71 of its top; null: warmup_steps, or 10000 without."
        )

    parameters: Parameters

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return sqrt(timescale / (timescale + updates since the warm-up))."""
        timescale = self.parameters.timescale
        return partial(
            _inverse_root,
            num_warmup_steps=warmup,
            timescale=(warmup or 10_000) if timescale is None else timescale,
        )


class WarmupStableDecay(Curved):
    """Warm-up from 0, then constant, then decay within `num_decay_steps` updates."""

    class Parameters(Warmup):
        """Keys of `warmup_stable_decay`."""

        num_decay_steps: int | float = key(gt=0, relative="inverse", doc=f"Updates of the decay at the end; {SHARE}")
        num_stable_steps: int | float | None = key(
            None, ge=0, relative="inverse", doc=f"Updates at the full learning rate; null: all that are left; {SHARE}"
        )
        warmup_type: Ramp = key("linear", doc="Curve of the warm-up.")
        decay_type: Ramp = key("cosine", doc="Curve of the decay.")
        min_lr_ratio: float = key(0.0, ge=0, doc="Learning rate at the end of the decay, as a share of learning_rate.")
        num_cycles: float = key(0.5, ge=0, doc="Periods of a cosine decay; 0.5: only down.")

    parameters: Parameters

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return the curve of the three phases."""
        known = self.parameters
        decay = steps_of(known.num_decay_steps, total)
        left = total - warmup - decay
        return partial(
            _stable,
            num_warmup_steps=warmup,
            num_stable_steps=left if known.num_stable_steps is None else steps_of(known.num_stable_steps, total),
            num_decay_steps=decay,
            warmup_type=known.warmup_type,
            decay_type=known.decay_type,
            min_lr_ratio=known.min_lr_ratio,
            num_cycles=known.num_cycles,
        )


# ---- schedules driven by scores


class Judged(declare.Parameters):
    """Keys of schedules driven by the scores of evaluations."""

    learning_rate: float = key(
        1e-3, gt=0, doc="Initial learning rate; the schedule multiplies it by a factor that depends on scores."
    )
    ascending_metric: bool = declare.param(True, doc="Whether higher is better.", group="trainer/evaluation")
    eval_interval: int = declare.param(doc="Updates between evaluations.", group="trainer/evaluation")
    patience: int = key(10, ge=0, doc="Evaluations in a row before the next one changes the learning rate.")
    cooldown: int = key(0, ge=0, doc="Evaluations that are ignored after the learning rate was lowered.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: no evaluation during training, so that there are no scores."""
        if self.eval_interval > 0:
            return []
        problem = "is -1: only the end is evaluated, but the schedule waits for scores. Set a number of updates."
        return [("eval_interval", problem)]


class OnMetric(LRScheduler):
    """A schedule driven by the scores of evaluations; its state is saved in checkpoints.

    The factor is computed by the class of torch or transformers that the Trainer uses for its optimizer.
    """

    class Parameters(Judged):
        """Keys of the schedule; extended by subclasses."""

    KEPT: tuple[str, ...] = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")
    """State of that class, without its settings."""

    parameters: Judged

    def __init__(self, parameters: Judged, *, total_steps: int) -> None:
        import torch

        super().__init__(parameters, total_steps=total_steps)
        self._driven = torch.optim.SGD([torch.zeros(1)], lr=1.0)  # never stepped: its learning rate is the factor
        mode = "max" if parameters.ascending_metric else "min"
        shared = {"mode": mode, "patience": parameters.patience, "cooldown": parameters.cooldown}
        shared["eps"] = 1e-8 / parameters.learning_rate  # smaller changes of the learning rate are ignored
        self._rule = self.driving(self._driven, **shared, **self.settings())

    @staticmethod
    def driving(optimizer: Any, **settings: Any) -> Any:
        """Return the schedule object that changes the learning rates of an optimizer by scores."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the arguments of `driving` from the keys of the subclass."""
        raise NotImplementedError

    def factor(self, num_update: int) -> float:
        """Return the current factor, which depends on the scores so far."""
        del num_update
        return float(self._driven.param_groups[0]["lr"])

    def take_score(self, score: float) -> None:
        """Update the factor with the score of an evaluation."""
        self._rule.step(score)

    def state_dict(self) -> dict[str, Any]:
        """Return the factor and the counters, as plain values, without settings: a resumed run has its own."""
        kept = self._rule.state_dict()
        return {"factor": self.factor(0), **{name: kept[name] for name in self.KEPT if name in kept}}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned; missing counters keep their first values."""
        counters = {name: value for name, value in saved.items() if name in self.KEPT}
        self._rule.load_state_dict({**self._rule.state_dict(), **counters})
        self._driven.param_groups[0]["lr"] = saved["factor"]


class ReduceOnPlateau(OnMetric):
    """Lowers the learning rate when scores do not improve, with torch's ReduceLROnPlateau.

    In x-train the score is the major metric of an evaluation.
    """

    class Parameters(Judged):
        """Keys of `reduce_lr_on_plateau`."""

        factor: float = key(0.1, gt=0, lt=1, doc="Factor by which the learning rate is lowered.")
        threshold: float = key(1e-4, ge=0, doc="Minimum improvement of a score that counts, as a share of the best.")
        min_lr_rate: float = key(0.0, ge=0, le=1, doc="Lowest learning rate, as a share of learning_rate.")

    parameters: Parameters

    @staticmethod
    def driving(optimizer: Any, **settings: Any) -> Any:
        """Return torch's ReduceLROnPlateau."""
        from torch.optim.lr_scheduler import ReduceLROnPlateau

        return ReduceLROnPlateau(optimizer, **settings)

    def settings(self) -> dict[str, Any]:
        """Return the settings by their names in torch."""
        known = self.parameters
        return {"factor": known.factor, "threshold": known.threshold, "min_lr": known.min_lr_rate}


class Greedy(OnMetric):
    """Raises the learning rate while scores improve, and lowers it otherwise, with GreedyLR of transformers."""

    class Parameters(Judged):
        """Keys of `greedy`."""

        factor: float = key(0.95, gt=0, lt=1, doc="Factor to lower the learning rate, or divisor to raise it.")
        threshold: float = key(1e-6, ge=0, doc="Minimum improvement of a score that counts.")
        warmup: int = key(0, ge=0, doc="Evaluations that are ignored after the learning rate was raised.")
        min_lr_rate: float = key(0.1, gt=0, le=1, doc="Lowest learning rate, as a share of learning_rate.")
        max_lr_rate: float = key(10.0, ge=1, doc="Maximum learning rate, as a multiple of learning_rate.")
        smooth: bool = key(False, doc="Use the mean of the last `window_size` scores.")
        window_size: int = key(50, gt=0, doc="Number of scores in that mean.", when=("smooth", "is", True))
        reset_start: int = key(500, gt=0, doc="Reset after so many reductions at the lowest learning rate.")

    KEPT = (*OnMetric.KEPT, "num_good_epochs", "warmup_counter", "reset_start", "_streaming_avg")
    parameters: Parameters

    @staticmethod
    def driving(optimizer: Any, **settings: Any) -> Any:
        """Return GreedyLR of transformers."""
        from transformers.optimization import GreedyLR

        return GreedyLR(optimizer, **settings)

    def settings(self) -> dict[str, Any]:
        """Return the settings by their names in transformers."""
        known = self.parameters
        same = ("factor", "threshold", "warmup", "smooth", "window_size", "reset_start")
        bounds = {"min_lr": known.min_lr_rate, "max_lr": known.max_lr_rate}
        return {name: getattr(known, name) for name in same} | bounds
