"""Declarations of parameters as plain data, the same whether read from a class or from the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from xdpx.config.value_types import Mismatch, ValueType, read_type, text_of

if TYPE_CHECKING:
    from pydantic import BaseModel


class Required:
    """The type of `REQUIRED`, which marks a parameter without a default."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = Required()

_BOUNDS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))


@dataclass(frozen=True)
class Declaration:
    """One parameter of one class; see `xdpx.config.parameters.param` for what each field means."""

    key: str
    type: str
    default: Any = REQUIRED
    doc: str = ""
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    when: tuple[str, str, Any] | None = None
    registry: str | None = None
    metric_of: str | None = None
    relative: str | None = None
    path: str | None = None
    unique: bool | tuple[str, str, Any] = False
    alters: str | None = None
    group: str | None = None

    @property
    def value_type(self) -> ValueType:
        """The parsed type."""
        return read_type(self.type)

    @property
    def required(self) -> bool:
        """Whether a config must set it."""
        return self.default is REQUIRED

    def out_of_bounds(self, value: object) -> str:
        """Return a message if a number, or one in a list, violates the bounds; else ''."""
        for number in _numbers_in(value):
            if not self._within(number):
                return f"is {number}. Use a number {self.bounds()}."
        return ""

    def _within(self, number: float) -> bool:
        return (
            (self.gt is None or number > self.gt)
            and (self.ge is None or number >= self.ge)
            and (self.lt is None or number < self.lt)
            and (self.le is None or number <= self.le)
        )

    def bounds(self) -> str:
        """Return the bounds as text, e.g. `> 0 and <= 1`; '' without bounds."""
        parts = [f"{sign} {getattr(self, name):g}" for name, sign in _BOUNDS if getattr(self, name) is not None]
        return " and ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the type and the fields that are not at their default, for JSON; no `default` means required."""
        blank = Declaration(self.key, self.type)
        pairs = [(item.name, getattr(self, item.name)) for item in fields(self) if item.name != "key"]
        return {name: value for name, value in pairs if name == "type" or value != getattr(blank, name)}

    @classmethod
    def from_json(cls, key: str, stored: Mapping[str, Any]) -> Declaration:
        """Return the declaration that `to_json` wrote. Tuples and int keys, which JSON lacks, are restored by type."""
        values = dict(stored)
        for name in ("when", "unique"):
            if isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        declaration = cls(key, **values)
        if isinstance(declaration.default, list | dict):
            return cls(key, **{**values, "default": declaration.value_type.accept(declaration.default)})
        return declaration


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts in a value: itself, or those of a list or of a dict's values at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from texts_in(item)


def _numbers_in(value: object) -> Iterator[float]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _numbers_in(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


Metric = tuple[str, tuple[str, str, Any] | None]
"""A metric's name, or a pattern such as `recall@*`, and the condition (key, operator, value) under which it exists."""


@dataclass(frozen=True)
class Entry:
    """One registered class: its kind, its name, the first line of its docstring, and its declarations."""

    kind: str
    name: str
    doc: str = ""
    conflicts: str = ""
    """`module:class` of the Parameters that define `conflicts`; '' if none do."""
    parameters: tuple[Declaration, ...] = field(default=())
    metrics: tuple[Metric, ...] | None = None
    """The metrics that it reports, each with a condition or None; None if it does not declare them."""

    def to_json(self) -> dict[str, Any]:
        """Return the entry for JSON, without its kind and name."""
        facts: dict[str, Any] = {"doc": self.doc}
        if self.conflicts:
            facts["conflicts"] = self.conflicts
        if self.metrics is not None:
            facts["metrics"] = dict(self.metrics)
        return {**facts, "parameters": {item.key: item.to_json() for item in self.parameters}}

    @classmethod
    def from_json(cls, kind: str, name: str, stored: Mapping[str, Any]) -> Entry:
        """Return the entry that `to_json` wrote."""
        parameters = tuple(Declaration.from_json(key, item) for key, item in stored["parameters"].items())
        metrics = metrics_of(stored["metrics"]) if "metrics" in stored else None
        return cls(kind, name, stored["doc"], stored.get("conflicts", ""), parameters, metrics)


def metrics_of(names: Mapping[str, Sequence[Any] | None]) -> tuple[Metric, ...]:
    """Return the metrics of a dict `{name: condition or None}`."""
    return tuple((name, (str(when[0]), str(when[1]), when[2]) if when else None) for name, when in names.items())


_DECLARED: dict[type, tuple[Declaration, ...]] = {}


def declarations_of(parameters: type[BaseModel]) -> tuple[Declaration, ...]:
    """Return the declarations of a `Parameters` class in source order, inherited ones first."""
    if parameters not in _DECLARED:
        _DECLARED[parameters] = tuple(_declaration(parameters, key) for key in parameters.model_fields)
    return _DECLARED[parameters]


def sound_default(parameters: type[BaseModel], key: str) -> Any:
    """Return the default of a parameter, converted to its type: 128.0 for an int is 128.

    Raises:
        TypeError: the default does not fit the type.
    """
    info = parameters.model_fields[key]
    default = info.default
    try:
        kind = read_type(text_of(info.annotation))
    except TypeError:  # not a type of config values: reported when the declarations are read
        return default
    try:
        accepted = kind.accept(default)
    except Mismatch:
        problem = f"{parameters.__qualname__}.{key}: its default is {default!r}."
        raise TypeError(f"{problem} Use {kind.describe()}.") from None
    return type(default)(accepted) if isinstance(default, list | tuple) else accepted


def _declaration(parameters: type[BaseModel], key: str) -> Declaration:
    info = parameters.model_fields[key]
    extra = info.json_schema_extra
    if not isinstance(extra, dict) or not isinstance(extra.get("xdpx"), dict):
        raise TypeError(f"{parameters.__qualname__}.{key} must be made with param(default, doc=...).")
    facts: dict[str, Any] = dict(extra["xdpx"])  # type: ignore[arg-type]
    if "when" in facts:
        facts["when"] = tuple(facts["when"])
    default = REQUIRED if info.is_required() else info.get_default(call_default_factory=True, validated_data={})
    return Declaration(key, text_of(info.annotation), default, info.description or "", **facts)
