"""Templates (HParams): typed, nested sets of fields that build a class; each value is checked when it is set."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from xdpx.config.faults import refusal
from xdpx.config.hparams_classes import (
    NoField,
    bind,
    check_class,
    check_value,
    cloned,
    label,
    no_field,
    signature_of,
)
from xdpx.config.hparams_text import diff, dtype_name, from_data, lines, name_of, names_of, printed, to_json
from xdpx.config.hparams_types import made_by

if TYPE_CHECKING:
    import fiddle as fdl

__all__ = [
    "BaseHParams",
    "Configurable",
    "build",
    "build_a",
    "diff",
    "from_fiddle",
    "from_json",
    "sub_config_field",
    "template_field",
    "to_fiddle",
    "to_json",
]

T = TypeVar("T")

_KNOWN: dict[str, type] = {}
"""All template classes and their owners, by `module.qualified_name`; JSON may name only these."""


@dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)
class BaseHParams:
    """A set of typed fields, mutable until `freeze()`. Subclasses become keyword-only dataclasses automatically.

    Setting an unknown field (AttributeError with the nearest name) or a value of a wrong type (TypeError) raises at
    once.
    """

    _owner: ClassVar[type[Any] | None] = None
    _types: ClassVar[dict[str, Any]] = {}
    _field_table: ClassVar[dict[str, dataclasses.Field[Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_class(cls, BaseHParams)
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        cls._types = {}
        cls._field_table = {field.name: field for field in dataclasses.fields(cls)}
        cls.__signature__ = signature_of(cls)  # type: ignore[attr-defined]
        _KNOWN[name_of(cls)] = cls

    def __init__(self, **values: Any) -> None:
        self.__dict__["_given"] = set()
        for name in values:
            if name not in self._field_table:
                raise TypeError(no_field(type(self), name))
        missing = []
        for name, field in self._field_table.items():
            if name in values:
                setattr(self, name, values[name])
            elif field.default_factory is not dataclasses.MISSING:
                self.__dict__[name] = field.default_factory()
            elif field.default is not dataclasses.MISSING:
                self.__dict__[name] = field.default
            else:
                missing.append(name)
        if missing:
            raise TypeError(f"{label(type(self))} needs {', '.join(missing)}: give every field without a default.")

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._field_table:
            raise NoField(type(self), name)
        if self.is_frozen:
            raise AttributeError(
                f"{label(type(self))}.{name}: the template is frozen, something was built from it. "
                "Change a copy: template.clone().set(...)."
            )
        check_value(type(self), name, value)
        self.__dict__[name] = value
        self.__dict__["_given"].add(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoField(type(self), name)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{label(type(self))}.{name}: a field cannot be removed. Set it to another value.")

    @property
    def is_frozen(self) -> bool:
        """Whether the template can no longer be changed."""
        return "_frozen" in self.__dict__

    def fields_and_values(self) -> Iterator[tuple[str, Any]]:
        """Return (name, value) of every field, in the order of declaration."""
        return ((name, self.__dict__[name]) for name in self._field_table)

    def given(self) -> frozenset[str]:
        """Return the names of the fields that were set; the others hold their defaults."""
        return frozenset(self.__dict__["_given"])

    def not_default(self) -> frozenset[str]:
        """Return the names of the fields whose values differ from the defaults."""
        return frozenset(name for name, value in self.fields_and_values() if not self._is_default(name, value))

    @classmethod
    def _is_default(cls, name: str, value: object) -> bool:
        field = cls._field_table[name]
        factory = field.default_factory
        return _same(value, field.default if factory is dataclasses.MISSING else factory())

    def mark_given(self, names: Iterable[str]) -> Self:
        """Replace the set of fields that count as set, e.g. after reading a file, and return the template."""
        self.__dict__["_given"] = set(names) & set(self._field_table)
        return self

    def set(self, **values: Any) -> Self:
        """Set several fields, and return the template."""
        for name, value in values.items():
            setattr(self, name, value)
        return self

    def clone(self) -> Self:
        """Return an unfrozen copy of the template, with nested templates copied and other values shared."""
        return cloned(self, {})  # type: ignore[no-any-return]

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return cloned(self, memo)  # type: ignore[no-any-return]

    def copy_fields_from(self, other: BaseHParams, missing_fields_in_self: Iterable[str] = ()) -> Self:
        """Set all fields to those of another template, which may be of another class, and return this template.

        Args:
            other: the template to copy from.
            missing_fields_in_self: fields of `other` to skip.

        Raises:
            AttributeError: `other` has further fields that this class lacks.
        """
        left_out = set(missing_fields_in_self)
        unknown = [n for n in other._field_table if n not in self._field_table and n not in left_out]
        if unknown:
            raise AttributeError(
                f"{label(type(self))} has no {', '.join(unknown)} of {label(type(other))}. "
                "Name what is left out in missing_fields_in_self."
            )
        copy = other.clone()
        return self.set(**{name: value for name, value in copy.fields_and_values() if name not in left_out})

    def freeze(self) -> Self:
        """Make this template and all templates inside it immutable, and return it."""
        for _, value in self.fields_and_values():
            for inner in _templates_in(value):
                inner.freeze()
        self.__dict__["_frozen"] = True
        return self

    def Instantiate(self, **overrides: Any) -> Any:
        """Return an object of the owner class, built from a frozen copy of this template with `overrides` set."""
        if self._owner is None:
            raise TypeError(f"{label(type(self))} holds values only: no class is built from it.")
        return self._owner.from_template(self.clone().set(**overrides).freeze())

    def build(self, **overrides: Any) -> Any:
        """Return the result of `Instantiate`."""
        return self.Instantiate(**overrides)

    def to_text(self) -> str:
        """Return one line `path.to.field : value` per value, sorted."""
        return "\n".join(f"{path} : {text}" for path, text in sorted(lines(self)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict, with nested templates converted to dicts."""
        return {name: _as_plain(value) for name, value in self.fields_and_values()}

    def diff(self, other: BaseHParams) -> str:
        """Return the lines in which this template and another one differ; '' if they are equal."""
        return diff(self, other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BaseHParams) or type(self) is not type(other):
            return NotImplemented
        return all(_same(value, other.__dict__[name]) for name, value in self.fields_and_values())

    def __hash__(self) -> int:
        if not self.is_frozen:
            raise TypeError(f"{label(type(self))} can still change: freeze() it before it is hashed.")
        return hash((type(self), tuple(printed(value) for _, value in self.fields_and_values())))

    def __repr__(self) -> str:
        shown = (f"{name}={printed(value)}" for name, value in self.fields_and_values() if name in self.given())
        return f"{label(type(self))}({', '.join(shown)})"

    @classmethod
    def config(cls, **values: Any) -> fdl.Config[Any]:
        """Return a Fiddle config of the owner; a misspelt field raises TypeError."""
        return to_fiddle(cls(**values))

    @classmethod
    def partial(cls, **values: Any) -> fdl.Partial[Any]:
        """Return a Fiddle partial of the owner, which builds a function that takes further fields."""
        from xdpx.config.hparams_fiddle import partial_of

        return partial_of(cls(**values))


class Configurable:
    """Base of classes built from a template: `Cls(**fields)` or `Cls(hparams)`, then `self.hparams`.

    A subclass defines a nested `class HParams(...)`, or annotated fields in its body, from which `Cls.HParams` is
    derived. Names with a leading underscore and ClassVars are not fields.
    """

    class HParams(BaseHParams):
        """The fields."""

    _keeps_field_attributes: ClassVar[bool] = False
    """Whether fields also stay in the class body, for another transform that reads them there (flax modules)."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        bind(cls)
        _KNOWN[name_of(cls)] = cls
        super().__init_subclass__(**kwargs)
        if not cls._keeps_field_attributes:
            if "__init__" in cls.__dict__:
                cls.__init__ = _taking_fields(cls.__init__)  # type: ignore[method-assign]
            cls.__signature__ = signature_of(cls.HParams)  # type: ignore[attr-defined]

    def __init__(self, hparams: BaseHParams | None = None, /, **fields: Any) -> None:
        self.__dict__["_hparams"] = _template_for(type(self), hparams, fields)

    @classmethod
    def from_template(cls, hparams: BaseHParams) -> Any:
        """Return an object built from a frozen template."""
        return cls(hparams)

    @property
    def hparams(self) -> Any:
        """The frozen template."""
        return self.__dict__["_hparams"]

    def __getattr__(self, name: str) -> Any:
        template = self.__dict__.get("_hparams")
        if template is not None and name in template._field_table:
            return template.__dict__[name]
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'.")


def sub_config_field(template: type[Any] | None, **values: Any) -> Any:
    """Return a dataclass field that holds a template, with a new one for every instance.

    Args:
        template: `SomeClass.HParams`, `SomeClass`, or None for the default None.
        values: fields of the template that differ from its defaults.
    """
    if template is None:
        return dataclasses.field(default=None)
    cls: Callable[..., Any] = getattr(template, "HParams", template)
    return dataclasses.field(default_factory=functools.partial(cls, **values))


template_field = sub_config_field


def build(thing: object, **overrides: Any) -> Any:
    """Return what a template, a Fiddle config or a Fiddle partial builds; return other objects unchanged."""
    if isinstance(thing, BaseHParams):
        return thing.Instantiate(**overrides)
    if made_by(thing) is not None:
        from xdpx.config.hparams_fiddle import build_fiddle

        return build_fiddle(thing, overrides)
    return thing


def build_a(kind: type[T], thing: object, where: str, remedy: str) -> T:
    """Return what a template, a Fiddle config or a Fiddle partial builds.

    Args:
        kind: base class of what must come out.
        thing: the template, or the object itself.
        where: name of the field, for messages.
        remedy: what to give instead of something else.

    Raises:
        ConfigError: it is of another kind; often the class itself instead of its template.
    """
    built = build(thing)
    if not isinstance(built, kind):
        what = f"the class {built.__name__}" if isinstance(built, type) else f"a {type(built).__name__}"
        raise refusal(where, f"is {what}.", remedy)
    return built


def to_fiddle(hparams: BaseHParams) -> fdl.Config[Any]:
    """Return a template, including nested ones, as a Fiddle config of its owner."""
    from xdpx.config.hparams_fiddle import config_of

    return config_of(hparams)


def from_fiddle(config: fdl.Buildable[Any]) -> Any:
    """Return a Fiddle config as a template; a node used in several places becomes one shared layer."""
    from xdpx.config.hparams_fiddle import template_of

    return template_of(config)


def from_json(text: str, known: Iterable[Any] = ()) -> Any:
    """Return the template that `to_json` wrote.

    Args:
        text: the JSON.
        known: classes, enums and functions that it may name, besides all template classes imported so far.

    Raises:
        ValueError: a name is unknown; nothing is imported by names in a file.
    """
    import json

    return from_data(json.loads(text), {**_KNOWN, **names_of(known)})


def _template_for(cls: type[Any], hparams: BaseHParams | None, fields: dict[str, Any]) -> BaseHParams:
    if hparams is None:
        hparams = cls.HParams(**fields)
    elif not isinstance(hparams, BaseHParams):
        raise TypeError(f"{cls.__name__} is built from a {cls.__name__}.HParams, or by fields: {cls.__name__}(a=1).")
    elif fields:
        hparams = hparams.clone().set(**fields)
    return hparams if hparams.is_frozen else hparams.clone().freeze()


def _taking_fields(function: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__(self, hparams)` that can also be called with fields."""

    @functools.wraps(function)
    def __init__(self: Any, hparams: BaseHParams | None = None, /, **fields: Any) -> None:
        template = _template_for(type(self), hparams, fields)
        self.__dict__["_hparams"] = template
        function(self, template)

    return __init__


def _templates_in(value: object) -> Iterator[BaseHParams]:
    if isinstance(value, BaseHParams):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _templates_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _templates_in(item)


def _as_plain(value: object) -> Any:
    if isinstance(value, BaseHParams):
        return value.to_dict()
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_as_plain(item) for item in value)
    if isinstance(value, dict):
        return {name: _as_plain(item) for name, item in value.items()}
    return value


def _same(left: object, right: object) -> bool:
    name = dtype_name(left)
    if name:
        return name == dtype_name(right)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)
