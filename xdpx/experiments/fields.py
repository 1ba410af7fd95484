"""The upper-case fields of experiment classes: declared by annotation, and checked for name and type when set."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.config.hparams_types import UNRESOLVED, fits, resolved, type_name
from xdpx.config.pax_names import of_pax
from xdpx.logger import log

C = TypeVar("C", bound=type)
_WORDS = {"true": True, "false": False, "null": None, "none": None}


@dataclass(frozen=True)
class Field:
    """One declared field.

    Attributes:
        name: upper case.
        type: the annotated type; `UNRESOLVED` accepts any value.
        owner: the class that declares it.
    """

    name: str
    type: Any
    owner: type

    @property
    def type_name(self) -> str:
        """The name of its type, for messages."""
        return "anything" if self.type in {UNRESOLVED, Any} else type_name(self.type)


def is_field_name(name: str) -> bool:
    """Return whether an attribute's name is that of a field: upper case, without a leading underscore."""
    return name.isupper() and not name.startswith("_")


def fields_of(cls: type) -> dict[str, Field]:
    """Return all declared fields by name, those of base classes first."""
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        for name in base.__dict__.get("__annotations__", {}):
            if is_field_name(name):
                found[name] = Field(name, resolved(cls, name), base)
    return found


def check_class(cls: type) -> None:
    """Raise an error if a class sets an undeclared field, or a field to a value of the wrong type.

    Warns of methods of Pax, which nothing calls here.

    Raises:
        AttributeError: the field is not declared; the message suggests the nearest name.
        TypeError: the value has the wrong type.
    """
    for name in vars(cls):
        if callable(vars(cls)[name]) and of_pax(name):
            log.warning(f"{cls.__qualname__}.{name}() is never called. {of_pax(name)}")
    fields = fields_of(cls)
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if is_field_name(name) and not isinstance(value, property):
                check_value(cls.__qualname__, fields, name, value)


def check_value(where: str, fields: Mapping[str, Field], name: str, value: object) -> None:
    """Raise AttributeError if a field is not declared, TypeError if the value has the wrong type."""
    if name not in fields:
        raise AttributeError(f"{where}.{name}: this field is not declared. {_advice(name, fields)}")
    field = fields[name]
    if not fits(value, field.type):
        raise TypeError(f"{where}.{name}: is {value!r}, declared by {field.owner.__qualname__} as {field.type_name}.")


def _advice(name: str, fields: Mapping[str, Field]) -> str:
    declared = f"Declare a new field by its annotation: `{name}: int = ...`."
    return of_pax(name) or did_you_mean(name, fields, rest=declared)


def values_of(thing: object) -> dict[str, Any]:
    """Return the values of all fields of an experiment or of its class; fields without a value are omitted."""
    cls = thing if isinstance(thing, type) else type(thing)
    return {name: getattr(thing, name) for name in fields_of(cls) if hasattr(thing, name)}


def values_by_class(cls: type) -> Iterator[tuple[type, dict[str, Any]]]:
    """Yield each class of the inheritance chain, base first, with the fields that it is the last to set."""
    last = {name: base for base in reversed(cls.__mro__) for name in vars(base) if is_field_name(name)}
    for base in reversed(cls.__mro__):
        mine = {name: getattr(cls, name) for name in vars(base) if last.get(name) is base}
        if mine:
            yield base, mine


def with_values(cls: C, texts: Mapping[str, str]) -> C:
    """Return a subclass of an experiment, with the same name, with fields set from texts (`--set NAME=value`).

    Raises:
        ConfigError: lists every unknown field and every value of the wrong type.
    """
    fields = fields_of(cls)
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, text in texts.items():
        try:
            values[name] = read_text(fields, name, text)
        except ConfigError as error:
            faults.extend(error.faults)
    if faults:
        raise ConfigError("command line", faults)
    if not values:
        return cls
    kept = {"__module__": "command_line", "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    made: C = type(cls)(cls.__name__, (cls,), {**kept, **values})
    return made


def read_text(fields: Mapping[str, Field], name: str, text: str) -> Any:
    """Return a value parsed as the type of its field. Raises ConfigError."""
    if name not in fields:
        remedy = of_pax(name) or did_you_mean(name, fields, f"It has {', '.join(fields)}.")
        raise ConfigError("command line", [Fault(f"--set {name}", "the experiment does not have this field.", remedy)])
    wanted = fields[name].type
    for value in _readings(text):
        if fits(value, wanted):
            return value
    example = ", e.g. [1,4,2]" if "Sequence" in fields[name].type_name else ""
    fault = Fault(f"--set {name}", f"is '{text}'.", f"Use {fields[name].type_name}{example}.")
    raise ConfigError("command line", [fault])


def _readings(text: str) -> Iterator[Any]:
    """Yield possible meanings of a text, likeliest first: a keyword, a Python literal, the text itself."""
    stripped = text.strip()
    if stripped.lower() in _WORDS:
        yield _WORDS[stripped.lower()]
    try:
        literal = ast.literal_eval(stripped)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        literal = None
    if literal is not None:
        yield literal
        if isinstance(literal, float) and literal.is_integer():
            yield int(literal)
    yield text
