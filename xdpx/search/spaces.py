"""Search spaces: which values a parameter may take, and when. Read from hjson or built in Python.

{
    optimizer: {type: categorical, values: [adam, sgd]}
    learning_rate: {type: float, values: [1e-5, 2e-4], log: true}
    hidden_size: {type: int, values: [100, 300], step: 50}
    momentum: {type: float, values: [0.5, 0.99], when: {optimizer: sgd}}
}
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.config.hints import shown

Value = float | int | str | bool | None | list["Value"] | dict[str, "Value"]
Values = dict[str, Value]
"""One point of a space: the value of each parameter that exists at it."""

KEYS = ("type", "values", "log", "step", "when")
TYPES = ("float", "int", "categorical")
MOST_DIGITS = 6
"""Significant digits of a drawn float: `1.23457e-05` in a config instead of 17 digits."""


@dataclass(frozen=True)
class Dimension:
    """One parameter. `when` maps other parameters to the values with which this one exists; empty: always."""

    name: str
    when: Mapping[str, Sequence[Value]] = field(default_factory=dict, kw_only=True)

    @property
    def size(self) -> float:
        """Number of values; infinite for a float."""
        raise NotImplementedError

    def at(self, place: float) -> Value:
        """Return the value for a position in the unit interval [0, 1); a uniform position gives the prior."""
        raise NotImplementedError

    def place_of(self, value: Value) -> float:
        """Return the position of a value in the unit interval: the middle of those that `at` maps to it."""
        raise NotImplementedError

    def grid(self, float_samples: int) -> Sequence[Value]:
        """Return the grid in order: all values, or `float_samples` values of a float with both ends included."""
        raise NotImplementedError

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether the parameter exists, given the values of the others."""
        return all(
            name in values and any(same(values[name], each) for each in wanted) for name, wanted in self.when.items()
        )

    def fault_of(self, value: object) -> str:
        """Return what is wrong with a value; '' if the dimension contains it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Float(Dimension):
    """A number in [low, high]; with `log` log-uniform, so 1e-5 to 1e-4 is as likely as 1e-4 to 1e-3."""

    low: float
    high: float
    log: bool = False

    @property
    def size(self) -> float:
        """Infinity, or 1 if both ends are equal."""
        return math.inf if self.low < self.high else 1

    def at(self, place: float) -> float:
        """Return the number at a position, rounded to six significant digits and clipped to [low, high]."""
        if self.log:
            value = math.exp(math.log(self.low) + place * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + place * (self.high - self.low)
        return self.rounded(value)

    def rounded(self, value: float) -> float:
        """Return a number rounded to six significant digits and clipped to [low, high]."""
        return min(max(float(f"{value:.{MOST_DIGITS}g}"), float(self.low)), float(self.high))

    def place_of(self, value: Value) -> float:
        """Return the fraction of the way from low to high, on a log scale with `log`."""
        number, low, high = float(value), self.low, self.high  # type: ignore[arg-type]
        if self.log:
            number, low, high = math.log(number), math.log(low), math.log(high)
        return 0.5 if low == high else (number - low) / (high - low)  # 9 and its next float have the same logarithm

    def grid(self, float_samples: int) -> Sequence[Value]:
        """Return evenly spaced numbers (on a log scale with `log`), both ends included; for one sample the middle."""
        if float_samples == 1 or self.size == 1:
            return [self.at(0.5)]
        return [self.at(index / (float_samples - 1)) for index in range(float_samples)]

    def fault_of(self, value: object) -> str:
        """Return what is wrong with a value."""
        if not _is_number(value):
            return f"{shown(value)} is not a number"
        return "" if self.low <= value <= self.high else f"{shown(value)} is not in [{self.low}, {self.high}]"  # type: ignore[operator]


@dataclass(frozen=True)
class Int(Dimension):
    """An integer in [low, high], in steps of `step`; with `log` low, low·step, …, or without step log-uniform."""

    low: int
    high: int
    step: int | None = None
    log: bool = False

    @property
    def size(self) -> float:
        """Number of values; with `log` and no step, of all integers in the range."""
        if self.log and self.step is not None:
            return len(self._powers())
        return (self.high - self.low) // (self.step or 1) + 1

    def _powers(self) -> list[int]:
        powers = [self.low]
        while self.step is not None and powers[-1] * self.step <= self.high:
            powers.append(powers[-1] * self.step)
        return powers

    def _bounds(self) -> tuple[float, float]:
        """Return the log range to draw from: half a unit beyond both ends, as each integer covers ±1/2."""
        return math.log(self.low - 0.5), math.log(self.high + 0.5)

    def at(self, place: float) -> int:
        """Return the number at a position."""
        if self.log and self.step is None:
            low, high = self._bounds()
            return min(max(round(math.exp(low + place * (high - low))), self.low), self.high)
        index = min(int(place * self.size), int(self.size) - 1)
        return self._powers()[index] if self.log else self.low + index * (self.step or 1)

    def place_of(self, value: Value) -> float:
        """Return the position of a number: the middle of those that `at` maps to it."""
        number = int(value)  # type: ignore[arg-type]
        if self.log and self.step is None:
            low, high = self._bounds()
            return (math.log(number) - low) / (high - low)
        index = self._powers().index(number) if self.log else (number - self.low) // (self.step or 1)
        return (index + 0.5) / self.size

    def grid(self, float_samples: int) -> Sequence[Value]:
        """Return all values; a lazy range if possible, as there may be billions (seeds)."""
        if self.log and self.step is not None:
            return self._powers()
        return range(self.low, self.high + 1, self.step or 1)

    def fault_of(self, value: object) -> str:
        """Return what is wrong with a value."""
        if not isinstance(value, int) or isinstance(value, bool):
            return f"{shown(value)} is not an integer"
        if not self.low <= value <= self.high:
            return f"{shown(value)} is not in [{self.low}, {self.high}]"
        reached = value in self._powers() if self.log and self.step else (value - self.low) % (self.step or 1) == 0
        return (
            ""
            if reached or (self.log and not self.step)
            else f"{value} is not reached from {self.low} by step {self.step}"
        )


@dataclass(frozen=True)
class Categorical(Dimension):
    """One of a list of values, each equally likely."""

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        """Convert tuples within values to lists, as a journal reads them back."""
        values: object = self.values
        if not isinstance(values, str):  # a Space refuses text, which would be taken for its letters
            object.__setattr__(self, "values", tuple(_plain(value) for value in self.values))

    @property
    def size(self) -> float:
        """Number of values."""
        return len(self.values)

    def at(self, place: float) -> Value:
        """Return the value at a position."""
        return self.values[min(int(place * len(self.values)), len(self.values) - 1)]

    def place_of(self, value: Value) -> float:
        """Return the position of a value: the middle of those that `at` maps to it."""
        return (self.index_of(value) + 0.5) / len(self.values)

    def index_of(self, value: object) -> int:
        """Return the index of a value. Raises ValueError if it is not in the list; 1 and true are different."""
        for index, known in enumerate(self.values):
            if same(known, value):
                return index
        raise ValueError(f"{shown(value)} is not one of {shown(list(self.values))}")

    def grid(self, float_samples: int) -> Sequence[Value]:
        """Return every value."""
        return list(self.values)

    def fault_of(self, value: object) -> str:
        """Return what is wrong with a value."""
        try:
            self.index_of(value)
        except ValueError as error:
            return str(error)
        return ""


class Space:
    """A set of dimensions, each after those on which it depends.

    Args:
        dimensions: the parameters; those of our own classes are checked like those that `read` returns.
        source: where the space was written, for messages.

    Raises:
        ConfigError: a range or a list of values cannot be, two have one name, or a condition names a parameter or a
            value that does not exist, or a circle.
    """

    def __init__(self, dimensions: Sequence[Dimension], *, source: str = "space") -> None:
        faults: list[Fault] = []
        own = (Float, Int, Categorical)
        read = [_dimension(one.name, _written(one), faults) if type(one) in own else one for one in dimensions]
        if not faults:
            dimensions = [one for one in read if one is not None]
            faults = _condition_faults(dimensions)
        if not dimensions:
            faults.append(
                Fault("space", "contains no parameter.", "Name at least one: {type: float, values: [low, high]}.")
            )
        if faults:
            raise ConfigError(source, faults)
        self.dimensions = tuple(_ordered(dimensions))
        self.source = source

    @classmethod
    def read(cls, table: Mapping[str, object], *, source: str = "space") -> Space:
        """Return the space that a mapping (of hjson) describes.

        Raises:
            ConfigError: with all faults together.
        """
        faults: list[Fault] = []
        read = [_dimension(str(name), written, faults) for name, written in table.items()]
        dimensions = [one for one in read if one is not None]
        if len(dimensions) == len(read):
            faults += _condition_faults(dimensions)
        if faults:
            raise ConfigError(source, faults)
        return cls(dimensions, source=source)

    @property
    def names(self) -> list[str]:
        """The names of the parameters."""
        return [dimension.name for dimension in self.dimensions]

    @property
    def is_conditional(self) -> bool:
        """Whether some parameter exists only for certain values of others."""
        return any(dimension.when for dimension in self.dimensions)

    @property
    def size(self) -> float:
        """Number of different points; infinite with a float."""
        return _count(self.dimensions, {})

    def sample(self, rng: random.Random) -> Values:
        """Return a random point. Every dimension draws a number, so that a condition does not shift the others."""
        return self.at([rng.random() for _ in self.dimensions])

    def at(self, places: Sequence[float]) -> Values:
        """Return the point at a position in the unit cube, one coordinate in [0, 1) per dimension."""
        values: Values = {}
        for dimension, place in zip(self.dimensions, places, strict=True):
            if dimension.holds(values):
                values[dimension.name] = dimension.at(place)
        return values

    def places_of(self, values: Mapping[str, Value]) -> list[float]:
        """Return the position of a point in the unit cube; NaN for a parameter that does not exist at it."""
        return [
            dimension.place_of(values[dimension.name]) if dimension.name in values else math.nan
            for dimension in self.dimensions
        ]

    def grid(self, float_samples: int) -> Iterator[Values]:
        """Yield every point of the grid once; the last dimension varies fastest."""
        yield from _grid(self.dimensions, {}, float_samples)

    def describe(self) -> dict[str, dict[str, object]]:
        """Return the space as plain values that `read` accepts; equal for equal spaces."""
        return {dimension.name: _written(dimension) for dimension in self.dimensions}

    def point_of(self, proposed: object) -> Values:
        """Return what a tuner proposed, as plain values of its own. Raises ValueError with what is wrong with it."""
        if not isinstance(proposed, Mapping):
            raise ValueError(f"{shown(proposed)}, which is not a dict {{parameter: value}}")
        values = {name: _plain(value) for name, value in proposed.items()}
        if strange := sorted(map(str, values.keys() - set(self.names))):
            raise ValueError(f"{', '.join(strange)}, which are not parameters of the space")
        faults = [f"{fault.key}: {fault.problem.rstrip('.')}" for fault in self.faults_of(values)]
        faults += [
            f"{one.name}: does not exist beside these values (when)"
            for one in self.dimensions
            if one.name in values and not one.holds(values)
        ]
        if faults:
            raise ValueError(f"{shown(values)}, a point that is not in the space ({'; '.join(faults)})")
        return copy.deepcopy(values)

    def faults_of(self, values: Mapping[str, object]) -> list[Fault]:
        """Return what is wrong with a given point; keys that are not parameters are not checked."""
        found = []
        for dimension in self.dimensions:
            if dimension.name in values and (problem := dimension.fault_of(values[dimension.name])):
                found.append(Fault(dimension.name, f"{problem}."))
            if dimension.name not in values and dimension.holds(values):  # type: ignore[arg-type]
                found.append(Fault(dimension.name, "is missing."))
        return found


# ---- reading


def _dimension(name: str, written: object, faults: list[Fault]) -> Dimension | None:
    """Return the dimension that `written` describes; None, with faults added, if anything is wrong."""
    before = len(faults)
    if not isinstance(written, Mapping):
        faults.append(Fault(name, f"is {shown(written)}.", "Write {type: float, values: [low, high]}."))
        return None
    for key in written:
        if key not in KEYS:
            remedy = did_you_mean(str(key), KEYS, f"Use: {', '.join(KEYS)}.")
            faults.append(Fault(f"{name}.{key}", "is not known.", remedy))
    kind = written.get("type")
    if kind not in TYPES:
        remedy = did_you_mean(kind if isinstance(kind, str) else "", TYPES, f"Use one of: {', '.join(TYPES)}.")
        problem = f"is {shown(kind)}." if "type" in written else "is missing."
        faults.append(Fault(f"{name}.type", problem, remedy))
        return None
    when = _when(name, written.get("when", {}), faults)
    values = written.get("values")
    if not isinstance(values, list | tuple):
        problem = f"is {shown(values)}." if "values" in written else "is missing."
        faults.append(
            Fault(
                f"{name}.values",
                problem,
                f"Write {'the values to choose from' if kind == 'categorical' else '[low, high]'} in a list.",
            )
        )
        return None
    if kind == "categorical":
        made: Dimension | None = _categorical(name, written, values, when, faults)
    else:
        made = _range(name, written, values, when, faults)
    return made if len(faults) == before else None


def _when(name: str, written: object, faults: list[Fault]) -> dict[str, tuple[Value, ...]]:
    if not isinstance(written, Mapping):
        faults.append(
            Fault(
                f"{name}.when",
                f"is {shown(written)}.",
                "Write {other_parameter: value} or {other_parameter: [values]}.",
            )
        )
        return {}
    return {str(key): tuple(value) if isinstance(value, list | tuple) else (value,) for key, value in written.items()}


def _categorical(
    name: str,
    written: Mapping[str, object],
    values: Sequence[Value],
    when: Mapping[str, Sequence[Value]],
    faults: list[Fault],
) -> Categorical:
    if not values:
        faults.append(Fault(f"{name}.values", "is empty.", "List at least one value."))
    for index, value in enumerate(values):
        if any(same(value, other) for other in values[:index]):
            faults.append(Fault(f"{name}.values", f"holds {shown(value)} twice.", "List each value once."))
    for key in ("log", "step"):
        if written.get(key):
            faults.append(Fault(f"{name}.{key}", "means nothing for categorical values.", "Remove it."))
    return Categorical(name, tuple(values), when=when)


def _range(
    name: str,
    written: Mapping[str, object],
    values: Sequence[object],
    when: Mapping[str, Sequence[Value]],
    faults: list[Fault],
) -> Dimension | None:
    kind, log, step = written["type"], written.get("log", False), written.get("step")
    if kind == "int":
        values, step = [_whole(value) for value in values], _whole(step)
    fits = _is_number if kind == "float" else _is_integer
    wrong = [value for value in values if not fits(value)]
    if len(values) != 2 or wrong:
        said = "[low, high], two numbers" if kind == "float" else "[low, high], two integers"
        faults.append(
            Fault(
                f"{name}.values",
                f"is {shown(list(values))}.",
                f"Write {said}; for a list of choices, use type: categorical.",
            )
        )
        return None
    low, high = values
    if low > high:  # type: ignore[operator]
        faults.append(
            Fault(
                f"{name}.values",
                f"has a low end {shown(low)} above the high end {shown(high)}.",
                f"Write [{shown(high)}, {shown(low)}].",
            )
        )
    if not isinstance(log, bool):
        faults.append(Fault(f"{name}.log", f"is {shown(log)}.", "Use true or false."))
    elif log and low <= 0:  # type: ignore[operator]
        faults.append(
            Fault(
                f"{name}.log",
                f"is true, but {shown(low)} has no logarithm.",
                "Use a low end above 0, or remove log.",
            )
        )
    if kind == "float":
        if step is not None:
            faults.append(
                Fault(
                    f"{name}.step", "is only for type: int.", "Remove it, or list the numbers with type: categorical."
                )
            )
        return Float(name, float(low), float(high), bool(log), when=when)  # type: ignore[arg-type]
    least = 2 if log else 1
    if step is not None and not (_is_integer(step) and step >= least):  # type: ignore[operator]
        faults.append(
            Fault(
                f"{name}.step",
                f"is {shown(step)}.",
                f"Use an integer of at least {least}" + (": with log, it is a factor." if log else "."),
            )
        )
        return None
    found = Int(name, low, high, step, bool(log), when=when)  # type: ignore[arg-type]
    if low < high and step and found.size == 1:  # type: ignore[operator]
        problem = f"is {shown(step)}, which leads from {shown(low)} beyond {shown(high)}: there is one value only."
        faults.append(Fault(f"{name}.step", problem, "Use a smaller step, or a wider range."))
    return found


def _plain(value: Any) -> Any:
    """Return a value as a journal reads it back: numbers of NumPy become Python's, and tuples lists."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value.item() if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0 else value


def same(one: object, other: object) -> bool:
    """Return whether two values are the same; 1 and true are different, also within lists and tables."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: object) -> object:
    """Return 2 for 2.0, as a config may write an integer; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# ---- conditions


def _condition_faults(dimensions: Sequence[Dimension]) -> list[Fault]:
    """Return the faults between dimensions: duplicate names, conditions that can never hold, cycles."""
    by_name = {dimension.name: dimension for dimension in dimensions}
    names = [dimension.name for dimension in dimensions]
    faults = [Fault(name, "occurs twice.", "Name each parameter once.") for name in by_name if names.count(name) > 1]
    for dimension in dimensions:
        for other, wanted in dimension.when.items():
            key = f"{dimension.name}.when.{other}"
            if other not in by_name:
                others = [name for name in by_name if name != dimension.name]
                remedy = did_you_mean(other, others, f"There are: {', '.join(by_name)}.")
                faults.append(Fault(key, "is not a parameter of the space.", remedy))
                continue
            if not wanted:
                faults.append(Fault(key, "is empty.", "List at least one value."))
            if by_name[other].size == math.inf:
                problem = f"names a value of a range of floats: {other} will almost never be exactly that value."
                faults.append(Fault(key, problem, f"Make {other} categorical, or depend on another parameter."))
                continue
            for value in wanted:
                if problem := by_name[other].fault_of(value):
                    faults.append(Fault(key, f"can never hold: {problem}.", f"Use a value of {other}."))
    if not faults and len(_ordered(dimensions)) < len(dimensions):
        circle = sorted(set(names) - {dimension.name for dimension in _ordered(dimensions)})
        faults.append(
            Fault(
                f"{circle[0]}.when",
                f"has a circular dependency: {', '.join(circle)} depend on each other.",
                "Break it.",
            )
        )
    return faults


def _ordered(dimensions: Sequence[Dimension]) -> list[Dimension]:
    """Return the dimensions, each after those it depends on; without those of a cycle and their dependents."""
    left, done = list(dimensions), list[Dimension]()
    while ready := next((one for one in left if set(one.when) <= {other.name for other in done}), None):
        left.remove(ready)
        done.append(ready)
    return done


def _count(dimensions: Sequence[Dimension], values: Values) -> float:
    if not dimensions:
        return 1
    first, rest = dimensions[0], dimensions[1:]
    if not first.holds(values):
        return _count(rest, values)
    if first.size == math.inf or not any(first.name in later.when for later in rest):
        return first.size * _count(rest, {**values, first.name: first.at(0.5)})
    return sum(_count(rest, {**values, first.name: value}) for value in first.grid(1))


def _grid(dimensions: Sequence[Dimension], values: Values, float_samples: int) -> Iterator[Values]:
    if not dimensions:
        yield dict(values)
        return
    first, rest = dimensions[0], dimensions[1:]
    choices: Sequence[Value | None] = first.grid(float_samples) if first.holds(values) else (None,)
    for value in choices:
        beside = {**values, first.name: value} if first.holds(values) else values
        yield from _grid(rest, beside, float_samples)


def _written(dimension: Dimension) -> dict[str, object]:
    wanted = {name: list(each) if isinstance(each, list | tuple) else each for name, each in dimension.when.items()}
    when = {"when": wanted} if wanted else {}
    if isinstance(dimension, Categorical):
        values: object = dimension.values
        return {"type": "categorical", "values": values if isinstance(values, str) else list(dimension.values), **when}
    if isinstance(dimension, Int):
        step = {"step": dimension.step} if dimension.step is not None else {}
        return {"type": "int", "values": [dimension.low, dimension.high], **step, "log": dimension.log, **when}
    if isinstance(dimension, Float):
        return {"type": "float", "values": [dimension.low, dimension.high], "log": dimension.log, **when}
    raise TypeError(f"{dimension.name}: {type(dimension).__name__} cannot be written.")
