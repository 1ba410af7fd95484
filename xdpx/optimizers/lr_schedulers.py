"""Learning rate schedules by name, for x-train and the Trainer: functions of the number of updates, without torch.

`lr_scheduler` of x-train picks a class here and gives it the keys of the config; `lr_scheduler_type` of the Trainer
picks the same class and gives it `warmup_steps` and `lr_scheduler_kwargs`. Either way one update has one factor.
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
)
register = lr_schedulers.register

Factor = Callable[[int], float]
"""From the number of updates done, 0 at the first, to the multiple of the learning rate."""

Ramp = Literal["linear", "cosine", "1-sqrt"]

key = partial(declare.param, group="optimization")
SHARE = "a float of at most 1.0 is a share of all updates."


class LRScheduler:
    """Decides by which factor of `learning_rate` each update is taken.

    Nearly all are stateless: every answer depends on the number of the update alone, so nothing has to be saved to
    resume. A subclass nests its `Parameters` and overrides `factor`; one that waits for scores is an `OnMetric`.
    """

    Parameters = declare.Parameters

    def __init__(self, parameters: Any, *, total_steps: int) -> None:
        self.parameters = parameters
        self.total_steps = total_steps

    def factor(self, num_update: int) -> float:
        """Return the multiple of the learning rate for update number `num_update` (1 for the first), in [0, 1]."""
        raise NotImplementedError

    def after(self, done: int) -> float:
        """Return the factor of the update that follows so many others."""
        return self.factor(done + 1)

    def momentum(self, num_update: int) -> float | None:
        """Return the first Adam beta to use for that update, None to leave it as configured."""
        return None

    def take_score(self, score: float) -> None:
        """Hear the score of an evaluation, on all processes the same one. Here it changes nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return what scores have changed, as plain values, {} for nothing."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""


def ramp(share: float, start: float) -> float:
    """Go in a straight line from `start` at share 0 to 1 at share 1, and stay there."""
    return start + (1.0 - start) * min(max(share, 0.0), 1.0)


def steps_of(count: int | float, total_steps: int) -> int:
    """Turn a number of steps, or a share of all steps when a float of at most 1.0, into a number of steps."""
    if isinstance(count, float) and count <= 1.0:
        return math.floor(count * total_steps + 0.5)
    return int(count)


class Warmup(declare.Parameters):
    """How long the learning rate rises."""

    warmup_steps: int | float = key(
        0, ge=0, relative="inverse", doc=f"Updates until the full learning rate is reached; {SHARE}"
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse a broken number of steps."""
        if self.warmup_steps < 1 or float(self.warmup_steps).is_integer():
            return []
        return [
            ("warmup_steps", f"is {self.warmup_steps}. Use a whole number, or a share of all updates of at most 1.0.")
        ]


# ---- schedules of our own: update 1 is the first step of the warm-up


class Constant(LRScheduler):
    """One learning rate from the first update to the last."""

    def factor(self, num_update: int) -> float:
        """Return 1."""
        return 1.0


class WarmupConstant(LRScheduler):
    """From learning_rate / div_factor in a straight line to learning_rate after `warmup_steps` updates."""

    class Parameters(Warmup):
        """How the warm-up goes."""

        div_factor: float = key(25.0, ge=1, doc="The warm-up starts from learning_rate divided by this.")

    parameters: Parameters

    def factor(self, num_update: int) -> float:
        """Return 1/div_factor before the first update, 1 from update `warmup_steps` on."""
        steps = steps_of(self.parameters.warmup_steps, self.total_steps)
        return ramp(num_update / steps, 1.0 / self.parameters.div_factor) if steps else 1.0


class ExponentialDecay(LRScheduler):
    """After the warm-up the rate is multiplied by `decay_rate` after every `decay_steps` updates."""

    class Parameters(WarmupConstant.Parameters):
        """How the warm-up and the decay go."""

        decay_rate: float = key(0.95, gt=0, le=1, doc="Factor on the learning rate at each stair.")
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
    """From learning_rate / div_factor up to learning_rate and back, reached again at the last update.

    The same curve is used on the way up and on the way down. With `cycle_momentum` the first Adam beta goes the
    other way: from its configured value down to `base_momentum` at the top and back.

    Source: Smith and Topin, "Super-Convergence" (2018), section 3, with one curve of our choice for both ways.
    """

    class Parameters(Warmup):
        """The shape of the cycle."""

        anneal_strategy: Literal["linear", "cosine", "polynomial"] = key(
            "linear", doc="Curve of the way up and of the way down."
        )
        anneal_p: float = key(
            1.0, gt=0, doc="Power of the polynomial curve.", when=("anneal_strategy", "is", "polynomial")
        )
        div_factor: float = key(600.0, ge=1, doc="The cycle starts and ends at learning_rate divided by this.")
        cycle_momentum: bool = key(False, doc="Let the first Adam beta go down and up against the learning rate.")
        base_momentum: float = key(
            0.85,
            ge=0,
            lt=1,
            doc="Lowest first beta, at the highest learning rate.",
            when=("cycle_momentum", "is", True),
        )
        adam_betas: list[float] = key([0.9, 0.999], doc="Decay of the running means of the gradient and of its square.")

    parameters: Parameters

    def factor(self, num_update: int) -> float:
        """Return a value in [1/div_factor, 1]."""
        low = 1.0 / self.parameters.div_factor
        return low + (1.0 - low) * self.height(num_update)

    def momentum(self, num_update: int) -> float | None:
        """Return a value between adam_betas[0] (at the ends) and base_momentum (at the top)."""
        if not self.parameters.cycle_momentum:
            return None
        high, low = self.parameters.adam_betas[0], self.parameters.base_momentum
        return high - (high - low) * self.height(num_update)

    def height(self, num_update: int) -> float:
        """Return how far up the curve is: 0 at update 0 and at the last one, 1 at the end of the warm-up."""
        top = min(steps_of(self.parameters.warmup_steps, self.total_steps), self.total_steps)
        if num_update < top:
            return self.curve(num_update / top)
        rest = self.total_steps - top
        return self.curve(max(self.total_steps - num_update, 0) / rest) if rest else 1.0

    def curve(self, share: float) -> float:
        """Map a share of the way up to a height, both in [0, 1]."""
        if self.parameters.anneal_strategy == "cosine":
            return (1.0 - math.cos(math.pi * share)) / 2.0
        power = self.parameters.anneal_p if self.parameters.anneal_strategy == "polynomial" else 1.0
        return float(share**power)


# ---- the curves of the Trainer: functions of the updates done, whose keywords are those of the original's


def _rise(step: int, warmup: int) -> float:
    return step / max(1, warmup)


def _share(step: int, warmup: int, total: int) -> float:
    """Return how much of the time after the warm-up is over."""
    return (step - warmup) / max(1, total - warmup)


def _wave(cycles: float, share: float) -> float:
    """Return half a cosine per half cycle, from 1 down to 0."""
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


# ---- schedules of the Trainer: no update is done at the first step of the warm-up, so that its rate is 0


class Curved(LRScheduler):
    """One of the Trainer's. `curve` is handed to torch as it is, so that a `scheduler.pt` is that of the original."""

    Parameters = Warmup

    def __init__(self, parameters: Any, *, total_steps: int) -> None:
        super().__init__(parameters, total_steps=total_steps)
        self.curve = self.curve_from(steps_of(parameters.warmup_steps, total_steps), total_steps)

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return the curve after so many updates of warm-up, within so many in all."""
        raise NotImplementedError

    def factor(self, num_update: int) -> float:
        """Return the value of the curve after the updates before this one."""
        return self.curve(num_update - 1)


class ConstantWithWarmup(Curved):
    """From 0 in a straight line to learning_rate within `warmup_steps` updates, then constant."""

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return min(1, done / warmup_steps)."""
        return partial(_constant_with_warmup, num_warmup_steps=warmup)


class Linear(Curved):
    """A straight warm-up from 0, then in a straight line down to 0, which would follow the last update."""

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return a line up and a line down."""
        return partial(_linear, num_warmup_steps=warmup, num_training_steps=total)


class Cosine(Curved):
    """A straight warm-up from 0, then down to 0 along half a cosine."""

    class Parameters(Warmup):
        """How often it goes down and up."""

        num_cycles: float = key(0.5, ge=0, doc="Waves of the cosine after the warm-up; 0.5 only goes down.")

    parameters: Parameters

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return (1 + cos(2 pi num_cycles share)) / 2 of the share that is over."""
        cycles = self.parameters.num_cycles
        return partial(_cosine, num_warmup_steps=warmup, num_training_steps=total, num_cycles=cycles)


class CosineWithMinimum(Curved):
    """As `cosine`, but down to a share of the learning rate."""

    class Parameters(Cosine.Parameters):
        """How far down it goes."""

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
    """As `cosine_with_min_lr`, counted from 1, so that the first update is not taken at a rate of 0."""

    class Parameters(CosineWithMinimum.Parameters):
        """Where the warm-up starts."""

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
    """A straight warm-up from 0, then `num_cycles` times from the learning rate down to 0 along half a cosine."""

    class Parameters(Warmup):
        """How often it restarts."""

        num_cycles: int | float = key(1, ge=0, doc="How many times the rate goes down from its top.")

    parameters: Parameters

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return half a cosine for each cycle."""
        cycles = self.parameters.num_cycles
        return partial(_restarts, num_warmup_steps=warmup, num_training_steps=total, num_cycles=cycles)


class Polynomial(Curved):
    """A straight warm-up from 0, then down to `lr_end` along a power of the share that is left."""

    class Parameters(Warmup):
        """Where it ends, and how it goes there."""

        learning_rate: float = key(1e-3, gt=0, doc="Highest learning rate; the schedule multiplies it by at most 1.")
        lr_end: float = key(1e-7, ge=0, doc="Learning rate after the last update.")
        power: float = key(1.0, gt=0, doc="Power of the share that is left; 1 is a straight line.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse to end at the learning rate or above it."""
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
    """A straight warm-up from 0, then down with the inverse square root of the updates; it never ends."""

    class Parameters(Warmup):
        """How fast it goes down."""

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
    """A warm-up from 0, then constant, then down within the last `num_decay_steps` updates."""

    class Parameters(Warmup):
        """The lengths and curves of its three parts."""

        num_decay_steps: int | float = key(gt=0, relative="inverse", doc=f"Updates of the decay at the end; {SHARE}")
        num_stable_steps: int | float | None = key(
            None, ge=0, relative="inverse", doc=f"Updates at the full learning rate; null: all that are left; {SHARE}"
        )
        warmup_type: Ramp = key("linear", doc="Curve of the warm-up.")
        decay_type: Ramp = key("cosine", doc="Curve of the decay.")
        min_lr_ratio: float = key(0.0, ge=0, doc="Where the decay ends, as a share of learning_rate.")
        num_cycles: float = key(0.5, ge=0, doc="Waves of a decay by cosine; 0.5 only goes down.")

    parameters: Parameters

    def curve_from(self, warmup: int, total: int) -> Factor:
        """Return the three parts."""
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


# ---- schedules that wait for scores


class Judged(declare.Parameters):
    """What schedules know of evaluations, and how they judge them."""

    learning_rate: float = key(
        1e-3, gt=0, doc="The rate to begin with; the schedule multiplies it by what scores have made of its factor."
    )
    ascending_metric: bool = declare.param(True, doc="Whether higher is better.", group="trainer/evaluation")
    eval_interval: int = declare.param(doc="Updates between evaluations.", group="trainer/evaluation")
    patience: int = key(10, ge=0, doc="Evaluations in a row that change nothing yet; the one after them does.")
    cooldown: int = key(0, ge=0, doc="Evaluations that are not looked at after the rate was lowered.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse to wait for scores that never come."""
        if self.eval_interval > 0:
            return []
        problem = "is -1: only the end is evaluated, but the schedule waits for scores. Set a number of updates."
        return [("eval_interval", problem)]


class OnMetric(LRScheduler):
    """A schedule that moves at the score of an evaluation, and so has a state, which checkpoints hold.

    The Trainer drives the rates of its optimizer by the very class that drives the factor here.
    """

    class Parameters(Judged):
        """See the subclasses."""

    KEPT: tuple[str, ...] = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")
    """What the class keeps beside its settings."""

    parameters: Judged

    def __init__(self, parameters: Judged, *, total_steps: int) -> None:
        import torch

        super().__init__(parameters, total_steps=total_steps)
        self._driven = torch.optim.SGD([torch.zeros(1)], lr=1.0)  # takes no step: its rate is the factor
        mode = "max" if parameters.ascending_metric else "min"
        shared = {"mode": mode, "patience": parameters.patience, "cooldown": parameters.cooldown}
        shared["eps"] = 1e-8 / parameters.learning_rate  # a smaller change of the rate is none
        self._rule = self.driving(self._driven, **shared, **self.settings())

    @staticmethod
    def driving(optimizer: Any, **settings: Any) -> Any:
        """Return what drives the rates of an optimizer by scores: the class whose state the original saves, too."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return what that is given of the subclass's own keys."""
        raise NotImplementedError

    def factor(self, num_update: int) -> float:
        """Return what the scores so far have made of it."""
        del num_update
        return float(self._driven.param_groups[0]["lr"])

    def take_score(self, score: float) -> None:
        """Let the factor follow an evaluation."""
        self._rule.step(score)

    def state_dict(self) -> dict[str, Any]:
        """Return the factor and the counters, as plain values; settings are what they are when a run is resumed."""
        kept = self._rule.state_dict()
        return {"factor": self.factor(0), **{name: kept[name] for name in self.KEPT if name in kept}}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave; a factor alone begins to count anew."""
        counters = {name: value for name, value in saved.items() if name in self.KEPT}
        self._rule.load_state_dict({**self._rule.state_dict(), **counters})
        self._driven.param_groups[0]["lr"] = saved["factor"]


class ReduceOnPlateau(OnMetric):
    """Lowers the rate when scores get no better, as torch's ReduceLROnPlateau does.

    In x-train a score is the major metric of an evaluation.
    """

    class Parameters(Judged):
        """When, and by how much."""

        factor: float = key(0.1, gt=0, lt=1, doc="What the rate is multiplied by.")
        threshold: float = key(1e-4, ge=0, doc="How much better a score must be, as a share of the best.")
        min_lr_rate: float = key(0.0, ge=0, le=1, doc="Lowest rate, as a share of learning_rate.")

    parameters: Parameters

    @staticmethod
    def driving(optimizer: Any, **settings: Any) -> Any:
        """Return torch's schedule."""
        from torch.optim.lr_scheduler import ReduceLROnPlateau

        return ReduceLROnPlateau(optimizer, **settings)

    def settings(self) -> dict[str, Any]:
        """Return them by the names of torch."""
        known = self.parameters
        return {"factor": known.factor, "threshold": known.threshold, "min_lr": known.min_lr_rate}


class Greedy(OnMetric):
    """Raises the rate while scores get better, lowers it while they do not, as GreedyLR of transformers does."""

    class Parameters(Judged):
        """When, by how much, and within which bounds."""

        factor: float = key(0.95, gt=0, lt=1, doc="What the rate is multiplied by, or divided by to raise it.")
        threshold: float = key(1e-6, ge=0, doc="How much better a score must be.")
        warmup: int = key(0, ge=0, doc="Evaluations that are not looked at after the rate was raised.")
        min_lr_rate: float = key(0.1, gt=0, le=1, doc="Lowest rate, as a share of learning_rate.")
        max_lr_rate: float = key(10.0, ge=1, doc="Highest rate, as a multiple of learning_rate.")
        smooth: bool = key(False, doc="Judge the mean of the last `window_size` scores.")
        window_size: int = key(50, gt=0, doc="Scores in that mean.", when=("smooth", "is", True))
        reset_start: int = key(500, gt=0, doc="Begin anew when the lowest rate was lowered in vain so many times.")

    KEPT = (*OnMetric.KEPT, "num_good_epochs", "warmup_counter", "reset_start", "_streaming_avg")
    parameters: Parameters

    @staticmethod
    def driving(optimizer: Any, **settings: Any) -> Any:
        """Return the schedule of transformers."""
        from transformers.optimization import GreedyLR

        return GreedyLR(optimizer, **settings)

    def settings(self) -> dict[str, Any]:
        """Return them by the names of transformers."""
        known = self.parameters
        same = ("factor", "threshold", "warmup", "smooth", "window_size", "reset_start")
        bounds = {"min_lr": known.min_lr_rate, "max_lr": known.max_lr_rate}
        return {name: getattr(known, name) for name in same} | bounds
