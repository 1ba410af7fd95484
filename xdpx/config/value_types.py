"""Types of parameters: written as text (`int | None`, `Literal['a', 'b']`), parsed without eval, and checked."""

from __future__ import annotations

import ast
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from xdpx.config.faults import did_you_mean
from xdpx.config.hints import hint, shown


class Mismatch(ValueError):
    """A value does not have the required type: `problem` describes the value, `remedy` what to write instead."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem} {remedy}")


class ValueType(ABC):
    """The type of a parameter. Strict: only int to float, 2.0 to 2, list to tuple, and digits as dict keys to int."""

    def accept(self, value: object) -> Any:
        """Return the value converted to this type. Raises Mismatch if that is not possible."""
        return self._accept(value)

    def describe(self) -> str:
        """Return a description of the type for messages, e.g. `an integer`."""
        return self._describe()

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of this type."""
        return self._json_schema()

    @abstractmethod
    def _accept(self, value: object) -> Any: ...

    @abstractmethod
    def _describe(self) -> str: ...

    @abstractmethod
    def _json_schema(self) -> dict[str, Any]: ...

    def _refuse(self, value: object) -> Mismatch:
        return Mismatch(f"is {shown(value)}.", f"Use {self.describe()}{hint(value, self.describe())}.")


ATOMS: dict[str, tuple[type | None, str, dict[str, Any]]] = {
    "int": (int, "an integer", {"type": "integer"}),
    "float": (float, "a number", {"type": "number"}),
    "str": (str, "text", {"type": "string"}),
    "bool": (bool, "true or false", {"type": "boolean"}),
    "None": (type(None), "null", {"type": "null"}),
    "Any": (None, "any value", {}),
}


@dataclass(frozen=True)
class Atom(ValueType):
    """One plain type: int, float, str, bool, None or Any."""

    name: str

    def _accept(self, value: Any) -> Any:
        wanted = ATOMS[self.name][0]
        if wanted is float and type(value) in {int, float}:
            return self._finite(value)
        if wanted is int and type(value) is float and value.is_integer() and abs(value) < 1e10:
            return int(value)  # a larger float may have been rounded
        if wanted is not None and type(value) is not wanted:
            raise self._refuse(value)
        return value

    def _finite(self, value: float) -> float:
        try:
            number = float(value)
        except OverflowError:
            raise Mismatch("is too large for a float.", "Use a smaller number.") from None
        if not math.isfinite(number):
            raise Mismatch(f"is {value}.", "Use a finite number.")
        return number

    def _describe(self) -> str:
        return ATOMS[self.name][1]

    def _json_schema(self) -> dict[str, Any]:
        return dict(ATOMS[self.name][2])


@dataclass(frozen=True)
class Choice(ValueType):
    """One of a few fixed values."""

    options: tuple[Any, ...]

    def _accept(self, value: object) -> Any:
        for option in self.options:
            same_kind = type(option) is type(value) or (type(option) is int and type(value) is float)
            if same_kind and option == value:
                return option
        words = [option for option in self.options if isinstance(option, str)] if isinstance(value, str) else []
        remedy = f"Use {self.describe()}{hint(value, self.describe())}."
        raise Mismatch(f"is {shown(value)}.", did_you_mean(str(value), words, rest=remedy))

    def _describe(self) -> str:
        words = [shown(option) for option in self.options]
        return words[0] if len(words) == 1 else f"one of {', '.join(words)}"

    def _json_schema(self) -> dict[str, Any]:
        return {"enum": list(self.options)}


@dataclass(frozen=True)
class ListOf(ValueType):
    """A list whose items are all of one type."""

    item: ValueType

    def _accept(self, value: object) -> Any:
        if not isinstance(value, list | tuple):
            raise self._refuse(value)
        return [_accept_part(self.item, item, f"item {index}") for index, item in enumerate(value, start=1)]

    def _describe(self) -> str:
        return f"a list, each item {self.item.describe()}"

    def _json_schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.json_schema()}


@dataclass(frozen=True)
class TupleOf(ValueType):
    """A list of a fixed length, each place with its own type."""

    items: tuple[ValueType, ...]

    def _accept(self, value: object) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(self.items):
            raise self._refuse(value)
        return tuple(
            _accept_part(kind, item, f"item {index}")
            for index, (kind, item) in enumerate(zip(self.items, value, strict=True), start=1)
        )

    def _describe(self) -> str:
        return f"a list of {len(self.items)}: [{', '.join(item.describe() for item in self.items)}]"

    def _json_schema(self) -> dict[str, Any]:
        size = len(self.items)
        return {
            "type": "array",
            "prefixItems": [i.json_schema() for i in self.items],
            "minItems": size,
            "maxItems": size,
        }


@dataclass(frozen=True)
class DictOf(ValueType):
    """A mapping. Keys of a config are text; digits are converted if the type of keys is int."""

    key: ValueType
    value: ValueType

    def _accept(self, value: object) -> Any:
        if not isinstance(value, dict):
            raise self._refuse(value)
        return {self._key(key): _accept_part(self.value, item, f"'{key}'") for key, item in value.items()}

    def _key(self, key: object) -> Any:
        if self.key == Atom("int") and isinstance(key, str) and key.removeprefix("-").isdecimal():
            return int(key)
        return _accept_part(self.key, key, "a key")

    def _describe(self) -> str:
        return f"a mapping {{key: value}}, each value {self.value.describe()}"

    def _json_schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.value.json_schema()}


@dataclass(frozen=True)
class OneOf(ValueType):
    """A union: the first type that accepts the value wins; int and float are converted only if no other type does."""

    options: tuple[ValueType, ...]

    def _accept(self, value: object) -> Any:
        other = {int: Atom("float"), float: Atom("int")}.get(type(value))
        exact = [option for option in self.options if option != other]
        inside: list[Mismatch] = []
        for option in (*exact, *self.options):
            try:
                return option.accept(value)
            except Mismatch as mismatch:
                inside.extend([mismatch] if _same_shape(option, value) else [])
        raise inside[0] if inside else self._refuse(value)

    def _describe(self) -> str:
        return " or ".join(option.describe() for option in self.options)

    def _json_schema(self) -> dict[str, Any]:
        return {"anyOf": [option.json_schema() for option in self.options]}


def _same_shape(option: ValueType, value: object) -> bool:
    """Return whether a list was given for a list type, or a mapping for a mapping: then an item is wrong."""
    if isinstance(value, dict):
        return isinstance(option, DictOf)
    return isinstance(value, list | tuple) and isinstance(option, ListOf | TupleOf)


def _accept_part(kind: ValueType, value: object, place: str) -> Any:
    try:
        return kind.accept(value)
    except Mismatch as mismatch:
        raise Mismatch(f"{place} {mismatch.problem}", mismatch.remedy) from None


def text_of(annotation: object) -> str:
    """Return an annotation as text.

    Raises:
        TypeError: the annotation is not a type of config values.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in {int, float, str, bool}:
        return str(annotation.__name__)
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is Any:
        return "Any"
    if annotation in {list, dict}:
        return "list[Any]" if annotation is list else "dict[str, Any]"
    if origin is Literal:
        return f"Literal[{', '.join(repr(argument) for argument in arguments)}]"
    if origin in {typing.Union, types.UnionType}:
        return " | ".join(text_of(argument) for argument in arguments)
    if origin in {list, dict, tuple} and Ellipsis not in arguments:
        return f"{origin.__name__}[{', '.join(text_of(argument) for argument in arguments)}]"
    raise TypeError(
        f"a parameter cannot be of type {annotation}; use int, float, str, bool, None, Any, Literal, list, dict, tuple."
    )


@cache
def read_type(text: str) -> ValueType:
    """Return the type for a text that `text_of` wrote.

    Raises:
        ValueError: the text is not in the grammar of `text_of`.
    """
    return _from_node(ast.parse(text, mode="eval").body)


def _from_node(node: ast.expr) -> ValueType:
    match node:
        case ast.Name(id=name) if name in ATOMS:
            return Atom(name)
        case ast.Constant(value=None):
            return Atom("None")
        case ast.BinOp(op=ast.BitOr()):
            return OneOf(tuple(_from_node(part) for part in _parts_of_union(node)))
        case ast.Subscript(value=ast.Name(id=name), slice=inner):
            return _from_subscript(name, list(inner.elts) if isinstance(inner, ast.Tuple) else [inner])
    raise ValueError(f"'{ast.unparse(node)}' is not a type of the catalogue.")


def _parts_of_union(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp):
        yield from _parts_of_union(node.left)
        yield from _parts_of_union(node.right)
    else:
        yield node


def _from_subscript(name: str, inner: list[ast.expr]) -> ValueType:
    if name == "Literal":
        return Choice(tuple(ast.literal_eval(part) for part in inner))
    parts = [_from_node(part) for part in inner]
    if name == "list":
        return ListOf(parts[0])
    if name == "tuple":
        return TupleOf(tuple(parts))
    if name == "dict":
        return DictOf(parts[0], parts[1])
    raise ValueError(f"'{name}' is not a type of the catalogue.")
