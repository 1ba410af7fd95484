"""Logs of several runs as curves over a shared x axis, on which one position means the same number of samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from xdpx.reports.run_logs import Floats, LogTable, RunLogs

FEW_TO_CALM = 80
"""Curves with fewer values than this are drawn unsmoothed."""
MOST_POINTS = 1500
"""The most points that are kept of one curve; a figure does not have more pixels to show."""


@dataclass(frozen=True)
class Axis:
    """How the steps of one run map to positions on the shared x axis."""

    label: str
    place: Callable[[Floats], Floats]


class Stroke(Enum):
    """Line styles; the values are matplotlib's."""

    SOLID = "-"
    DASHED = (0, (3.5, 1.6))
    DOTTED = (0, (1.1, 1.3))
    DASH_DOT = (0, (5, 1.4, 1.1, 1.4))
    LONG = (0, (8, 2.5))


@dataclass(frozen=True)
class Curve:
    """One line of a figure. Curves with the same label share a colour; colour 0 is that of the run itself."""

    x: Floats
    y: Floats
    label: str
    colour: int = 0
    stroke: Stroke = Stroke.SOLID
    faint: bool = False
    dots: bool = False


def step_axis(run: RunLogs, own: RunLogs) -> Axis:
    """Map the steps of `run` to those at which `own` had seen the same number of training samples."""
    ours = own.samples_per_step
    label = f"steps (of {ours:.0f} samples)" if ours and len({pace for _, pace in own.paces}) < 2 else "steps"
    if run is own or not (run.samples_per_step and ours):
        return Axis(label, lambda steps: steps)
    return Axis(label, lambda steps: own.steps_at(run.samples_at(steps)))


def walltime_axis(run: RunLogs) -> Axis:
    """Map the steps of `run` to its seconds of training, linearly interpolated between evaluations.

    Before the first evaluation, they are computed from the updates per second of the training log.
    """
    steps = np.concatenate([[0.0], run.valid["step"]])
    seconds = np.concatenate([[0.0], run.valid["train_wall"]])
    if np.isnan(seconds[1:]).all():
        logged = run.train["ups"] > 0
        steps = np.concatenate([[0.0], run.train["step"][logged]])
        seconds = np.concatenate([[0.0], np.cumsum(np.diff(steps) / run.train["ups"][logged])])
    known = ~np.isnan(seconds)
    return Axis("training time (seconds)", _interpolation(steps[known], seconds[known]))


def _interpolation(steps: Floats, seconds: Floats) -> Callable[[Floats], Floats]:
    speed = seconds[-1] / steps[-1] if len(steps) > 1 and steps[-1] else np.nan

    def place(wanted: Floats) -> Floats:
        beyond = seconds[-1] + (wanted - steps[-1]) * speed
        return np.where(wanted > steps[-1], beyond, np.interp(wanted, steps, seconds))

    return place


def epoch_borders(*tables: LogTable) -> Floats:
    """Return the steps at which a new epoch (with `lazy_load`: a new shard) begins, estimated from the logs.

    If epochs of equal length are consistent with every row, the borders are that far apart. Otherwise a border is put
    midway between the rows before and after it; several borders between two rows are spaced evenly.
    """
    steps = np.concatenate([[0.0], *(table["step"] for table in tables if len(table))])
    epochs = np.concatenate([[1.0], *(table["epoch"] for table in tables if len(table))])
    length = _epoch_length(steps, epochs)
    if length is not None:
        return np.arange(1.0, epochs.max()) * length
    order = np.argsort(steps, kind="stable")
    steps, epochs = steps[order], epochs[order]
    new = np.flatnonzero(np.diff(epochs) > 0)
    shares = [(np.arange(count) + 0.5) / count for count in np.diff(epochs)[new].astype(int)]
    return np.concatenate(
        [
            np.empty(0),
            *(steps[row] + share * (steps[row + 1] - steps[row]) for row, share in zip(new, shares, strict=True)),
        ]
    )


def _epoch_length(steps: Floats, epochs: Floats) -> float | None:
    """Return the updates per epoch if one number is consistent with every row: the smallest, an integer if possible."""
    later = epochs > 1
    lowest, limit = float((steps / epochs).max()), float((steps[later] / (epochs[later] - 1)).min(initial=np.inf))
    if not 0 < lowest < limit < np.inf:
        return None
    whole = float(np.ceil(lowest))
    return whole if whole < limit else lowest


def points(table: LogTable, column: str, axis: Axis) -> tuple[Floats, Floats]:
    """Return the positions and values of one column where it is finite, thinned to what a figure can show."""
    values = table[column]
    known = np.isfinite(values)
    return thin(axis.place(table["step"][known]), values[known])


def thin(x: Floats, y: Floats, most: int = MOST_POINTS) -> tuple[Floats, Floats]:
    """Keep the lowest and the highest point of each of `most` / 2 intervals, so that no spike is lost."""
    if len(x) <= most:
        return x, y
    borders = np.linspace(0, len(y), most // 2 + 1).astype(int)[:-1]
    lowest, highest = np.minimum.reduceat(y, borders), np.maximum.reduceat(y, borders)
    return np.repeat(x[borders], 2), np.column_stack([lowest, highest]).ravel()


def calm(x: Floats, y: Floats, *, mean: bool = False) -> tuple[Floats, Floats]:
    """Smooth noisy values: return the median (or mean) of each of 10 to 80 intervals, at the centre of the interval.

    An interval has at least eight values, so that a single spike does not move its median. Fewer than 80 values are
    returned unchanged.
    """
    if len(x) < FEW_TO_CALM:
        return x, y
    stretches = min(len(x) // 8, 80)
    parts = np.array_split(np.arange(len(y)), stretches)
    middle = np.array([x[part].mean() for part in parts])
    return middle, np.array([y[part].mean() if mean else np.median(y[part]) for part in parts])


def y_limits(values: Iterable[Floats]) -> tuple[float, float] | None:
    """Return y limits that show the bulk of the values; a few far outliers may be outside. None without any value."""
    everything = np.concatenate([*values, np.empty(0)])
    everything = everything[np.isfinite(everything)]
    if not len(everything):
        return None
    low, high = _inner_limits(everything)
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def _inner_limits(values: Floats) -> tuple[float, float]:
    if len(values) < 8:
        return float(values.min()), float(values.max())
    low, high = np.percentile(values, [3, 97])
    reach = 1.2 * (high - low)
    inside = values[(values >= low - reach) & (values <= high + reach)]
    return float(inside.min()), float(inside.max())


def group_names(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Group names that differ only in the digits at their end (`f1_0`, `f1_1`) under one title (`f1`)."""
    names = list(names)
    stems: dict[str, list[str]] = {}
    for name in names:
        stems.setdefault(re.sub(r"[_\-.@]?\d+$", "", name) or name, []).append(name)
    return {title: members for stem, members in stems.items() for title, members in _titles(stem, members, names)}


def _titles(stem: str, members: list[str], names: list[str]) -> Iterable[tuple[str, list[str]]]:
    if len(members) == 1:
        return [(members[0], members)]
    numbered = [name for name in members if name != stem]
    if len(numbered) == 1 or stem not in names:
        return [(name, [name]) for name in members] if len(numbered) == 1 else [(stem, members)]
    return [(stem, [stem]), (f"{stem}_each", numbered)]
