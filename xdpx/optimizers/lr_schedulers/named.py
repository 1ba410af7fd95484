"""The twelve schedules of a Trainer by name: torch schedulers whose state the original can load, and the reverse.

Each factor is a pure function of the number of updates done, 0 at the first. All but the constant one are handed to
`LambdaLR` as partials, because that is how the original's lie in `scheduler.pt`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, cast

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from xdpx.config.faults import nearest

Factor = Callable[[int], float]
"""From the number of updates done to the multiple of the learning rate."""

Ramp = Literal["linear", "cosine", "1-sqrt"]


def scheduler_for(
    name: str, optimizer: Optimizer, warmup: int, total: int, kwargs: Mapping[str, Any] | None = None
) -> LRScheduler:
    """Build the schedule called `name` on an optimizer.

    Args:
        name: One of `SCHEDULES`.
        optimizer: Whose learning rates are driven, each from the value it has now.
        warmup: Updates until the full learning rate is reached.
        total: Updates of the whole training.
        kwargs: What this schedule alone takes (`lr_scheduler_kwargs`).

    Raises:
        ValueError: No schedule has this name, or a value makes no sense.
        TypeError: The schedule does not take one of `kwargs`, or lacks one.
    """
    name = str(getattr(name, "value", name))
    if name not in SCHEDULES:
        raise ValueError(f"lr_scheduler_type: there is no schedule '{name}'. {_instead(name, SCHEDULES)}")
    given = dict(kwargs or {})
    if name == "reduce_lr_on_plateau":
        return ReduceLROnPlateau(optimizer, **given)
    if name == "greedy":
        return _greedy(optimizer, given)
    if name == "constant":  # takes nothing: the original drops what it is given, so scripts may give something
        return LambdaLR(optimizer, _constant)
    last_epoch = given.pop("last_epoch", -1)
    factor = _factor(name, optimizer.defaults["lr"], warmup, total, given)
    return LambdaLR(optimizer, factor, last_epoch=last_epoch)


def steps_on_metric(scheduler: Any) -> bool:
    """Tell whether `step` wants the metric of an evaluation (plateau, greedy), not one call per update."""
    return isinstance(scheduler, ReduceLROnPlateau) or any(
        kind.__name__ == "GreedyLR" for kind in type(scheduler).mro()
    )


def _factor(name: str, peak: float, warmup: int, total: int, given: dict[str, Any]) -> Factor:
    build = _BUILDERS[name]
    known = {key: one for key, one in inspect.signature(build).parameters.items() if one.kind is one.KEYWORD_ONLY}
    where = f"lr_scheduler_kwargs of '{name}'"
    if name == "constant_with_warmup":  # as with the constant one
        given = {}
    for key in given:
        if key not in known:
            raise TypeError(f"{where}: '{key}' is unknown. {_instead(key, known)}")
    for key, one in known.items():
        if one.default is one.empty and key not in given:
            raise TypeError(
                f"{where}: '{key}' is missing. Give it, e.g. lr_scheduler_kwargs={{'{key}': {total // 5}}}."
            )
    return build(peak, warmup, total, **given)


def _instead(name: str, known: Mapping[str, Any]) -> str:
    near = nearest(name, known)
    hint = f"Did you mean '{near}'? " if near else ""
    return f"{hint}Use one of: {', '.join(known)}." if known else "This schedule takes nothing."


def _greedy(optimizer: Optimizer, given: dict[str, Any]) -> LRScheduler:
    """Raise the rate while the metric improves, lower it while it does not (arXiv 2512.14527).

    The original's class, so that a checkpoint of either side holds the same dozen counters.
    """
    from transformers.optimization import GreedyLR

    return cast(LRScheduler, GreedyLR(optimizer, **given))


def _constant(_: int) -> float:
    return 1.0


def _rise(step: int, warmup: int) -> float:
    return step / max(1, warmup)


def _share(step: int, warmup: int, total: int) -> float:
    """How much of the time after the warm-up is over."""
    return (step - warmup) / max(1, total - warmup)


def _wave(cycles: float, share: float) -> float:
    """Half a cosine per half cycle, from 1 down to 0."""
    return 0.5 * (1.0 + math.cos(math.pi * float(cycles) * 2.0 * share))


def _linear(step: int, *, warmup: int, total: int) -> float:
    return _rise(step, warmup) if step < warmup else max(0.0, (total - step) / max(1, total - warmup))


def _constant_with_warmup(step: int, *, warmup: int) -> float:
    return _rise(step, warmup) if step < warmup else 1.0


def _cosine(step: int, *, warmup: int, total: int, cycles: float, floor: float) -> float:
    if step < warmup:
        return _rise(step, warmup)
    return max(0.0, _wave(cycles, _share(step, warmup, total)) * (1.0 - floor) + floor)


def _restarts(step: int, *, warmup: int, total: int, cycles: int) -> float:
    if step < warmup:
        return _rise(step, warmup)
    share = _share(step, warmup, total)
    if share >= 1.0:
        return 0.0
    return max(0.0, _wave(0.5, (float(cycles) * share) % 1.0))


def _polynomial(step: int, *, warmup: int, total: int, peak: float, end: float, power: float) -> float:
    if step < warmup:
        return _rise(step, warmup)
    if step > total:
        return end / peak
    left = max(0.0, 1.0 - _share(step, warmup, total))
    return ((peak - end) * math.pow(left, power) + end) / peak


def _inverse_sqrt(step: int, *, warmup: int, timescale: int) -> float:
    if step < warmup:
        return _rise(step, warmup)
    return 1.0 / math.sqrt((step + timescale - warmup) / timescale)


def _cosine_from_first(
    step: int, *, warmup: int, total: int, cycles: float, floor: float, start: float | None
) -> float:
    """Like `_cosine`, counted from 1, so that the first update is not taken at a rate of 0."""
    if step < warmup:
        if start is None:
            return (step + 1.0) / max(1.0, warmup)
        return start + (1.0 - start) * step / max(1, warmup - 1)
    share = (step - warmup + 1.0) / max(1.0, total - warmup)
    return max(0.0, _wave(cycles, share) * (1.0 - floor) + floor)


def _stable(
    step: int, *, warmup: int, stable: int, decay: int, rise: Ramp, fall: Ramp, floor: float, cycles: float
) -> float:
    if step < warmup:
        factor = _rise_along(rise, _rise(step, warmup))
    elif step < warmup + stable:
        return 1.0
    elif step < warmup + stable + decay:
        factor = _fall_along(fall, (step - warmup - stable) / max(1, decay), cycles)
    else:
        return floor
    return max(0.0, factor * (1.0 - floor) + floor)


def _rise_along(curve: Ramp, share: float) -> float:
    if curve == "cosine":
        return 0.5 * (1.0 - math.cos(math.pi * share))
    return share if curve == "linear" else 1.0 - math.sqrt(1.0 - share)


def _fall_along(curve: Ramp, share: float, cycles: float) -> float:
    if curve == "cosine":
        return _wave(cycles, share)
    return 1.0 - (share if curve == "linear" else math.sqrt(share))


def _build_linear(peak: float, warmup: int, total: int) -> Factor:
    return partial(_linear, warmup=warmup, total=total)


def _build_constant_with_warmup(peak: float, warmup: int, total: int) -> Factor:
    return partial(_constant_with_warmup, warmup=warmup)


def _build_cosine(peak: float, warmup: int, total: int, *, num_cycles: float = 0.5) -> Factor:
    return partial(_cosine, warmup=warmup, total=total, cycles=num_cycles, floor=0.0)


def _build_restarts(peak: float, warmup: int, total: int, *, num_cycles: int = 1) -> Factor:
    return partial(_restarts, warmup=warmup, total=total, cycles=num_cycles)


def _build_polynomial(peak: float, warmup: int, total: int, *, lr_end: float = 1e-7, power: float = 1.0) -> Factor:
    if not peak > lr_end:
        raise ValueError(
            f"lr_scheduler_kwargs of 'polynomial': lr_end is {lr_end}, not below learning_rate {peak}. Lower lr_end."
        )
    return partial(_polynomial, warmup=warmup, total=total, peak=peak, end=lr_end, power=power)


def _build_inverse_sqrt(peak: float, warmup: int, total: int, *, timescale: int | None = None) -> Factor:
    return partial(_inverse_sqrt, warmup=warmup, timescale=(warmup or 10_000) if timescale is None else timescale)


def _build_cosine_with_min_lr(
    peak: float,
    warmup: int,
    total: int,
    *,
    num_cycles: float = 0.5,
    min_lr: float | None = None,
    min_lr_rate: float | None = None,
) -> Factor:
    floor = _floor("cosine_with_min_lr", peak, min_lr, min_lr_rate)
    return partial(_cosine, warmup=warmup, total=total, cycles=num_cycles, floor=floor)


def _build_cosine_warmup_with_min_lr(
    peak: float,
    warmup: int,
    total: int,
    *,
    num_cycles: float = 0.5,
    min_lr: float | None = None,
    min_lr_rate: float | None = None,
    warmup_lr_rate: float | None = None,
) -> Factor:
    floor = _floor("cosine_warmup_with_min_lr", peak, min_lr, min_lr_rate)
    start = None if warmup_lr_rate is None else float(warmup_lr_rate)
    return partial(_cosine_from_first, warmup=warmup, total=total, cycles=num_cycles, floor=floor, start=start)


def _build_stable(  # noqa: PLR0913 - the keys that users write
    peak: float,
    warmup: int,
    total: int,
    *,
    num_decay_steps: int,
    num_stable_steps: int | None = None,
    warmup_type: Ramp = "linear",
    decay_type: Ramp = "cosine",
    min_lr_ratio: float = 0.0,
    num_cycles: float = 0.5,
) -> Factor:
    for key, curve in (("warmup_type", warmup_type), ("decay_type", decay_type)):
        if curve not in {"linear", "cosine", "1-sqrt"}:
            where = "lr_scheduler_kwargs of 'warmup_stable_decay'"
            raise ValueError(f"{where}: {key} is '{curve}'. Use 'linear', 'cosine' or '1-sqrt'.")
    stable = total - warmup - num_decay_steps if num_stable_steps is None else num_stable_steps
    return partial(
        _stable,
        warmup=warmup,
        stable=stable,
        decay=num_decay_steps,
        rise=warmup_type,
        fall=decay_type,
        floor=min_lr_ratio,
        cycles=num_cycles,
    )


def _floor(name: str, peak: float, lowest: float | None, rate: float | None) -> float:
    if lowest is not None and rate is None:
        return lowest / peak
    if rate is not None and lowest is None:
        return rate
    found = "both min_lr and min_lr_rate are" if rate is not None else "neither min_lr nor min_lr_rate is"
    raise ValueError(f"lr_scheduler_kwargs of '{name}': {found} given. Give one of them.")


_BUILDERS: dict[str, Callable[..., Factor]] = {
    "linear": _build_linear,
    "cosine": _build_cosine,
    "cosine_with_restarts": _build_restarts,
    "polynomial": _build_polynomial,
    "constant_with_warmup": _build_constant_with_warmup,
    "inverse_sqrt": _build_inverse_sqrt,
    "cosine_with_min_lr": _build_cosine_with_min_lr,
    "cosine_warmup_with_min_lr": _build_cosine_warmup_with_min_lr,
    "warmup_stable_decay": _build_stable,
}
SCHEDULES: dict[str, str] = {
    **dict.fromkeys(_BUILDERS, "update"),
    "constant": "update",
    "reduce_lr_on_plateau": "metric",
    "greedy": "metric",
}
"""Every name, and what a schedule takes a step at: an update or the metric of an evaluation."""
