"""Check the value of a template's field against the field's annotation."""

from __future__ import annotations

import collections.abc
import sys
import types
import typing
from typing import Any

import numpy as np

UNRESOLVED: Any = object()
"""Marks an annotation that cannot be resolved (a name local to a function, a later class); any value is accepted."""


def resolved(cls: type, name: str) -> Any:
    """Return the annotated type of a field, or UNRESOLVED."""
    for base in cls.__mro__:
        annotations = base.__dict__.get("__annotations__", {})
        if name in annotations:
            return _resolved_in(base, annotations[name])
    return UNRESOLVED


def _resolved_in(cls: type, annotation: object) -> Any:
    if not isinstance(annotation, str):
        return annotation
    module = sys.modules.get(cls.__module__)
    holder = types.SimpleNamespace(__annotations__={"field": annotation})
    try:
        return typing.get_type_hints(holder, vars(module) if module else {}, dict(vars(cls)))["field"]
    except Exception:  # any name, attribute or operator may fail to resolve; then the value is not checked
        return UNRESOLVED


def fits(value: object, wanted: object) -> bool:
    """Return whether a value has a type. An int fits float, a list fits tuple, and undecidable cases fit."""
    if wanted is UNRESOLVED or wanted is Any or isinstance(wanted, str | typing.TypeVar | typing.ForwardRef):
        return True
    if wanted is None or wanted is type(None):
        return value is None
    origin = typing.get_origin(wanted)
    if origin is None:
        return _fits_class(value, wanted)
    return _fits_generic(value, origin, typing.get_args(wanted))


def _fits_generic(value: object, origin: object, arguments: tuple[Any, ...]) -> bool:
    if origin in {typing.Union, types.UnionType}:
        return any(fits(value, choice) for choice in arguments)
    if origin is typing.Literal:
        return any(value == choice and type(value) is type(choice) for choice in arguments)
    if origin in {typing.Annotated, typing.Required, typing.Final}:
        return fits(value, arguments[0])
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is type:
        return isinstance(value, type) and all(not isinstance(a, type) or issubclass(value, a) for a in arguments)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        return isinstance(value, collections.abc.Mapping) and _fits_mapping(value, arguments)
    if isinstance(origin, type) and issubclass(origin, list | tuple | collections.abc.Sequence):
        return isinstance(value, list | tuple) and _fits_items(value, origin, arguments)
    return _fits_class(value, origin)


def _fits_mapping(value: collections.abc.Mapping[Any, Any], arguments: tuple[Any, ...]) -> bool:
    if len(arguments) != 2:
        return True
    return all(fits(key, arguments[0]) and fits(item, arguments[1]) for key, item in value.items())


def _fits_items(value: list[Any] | tuple[Any, ...], origin: object, arguments: tuple[Any, ...]) -> bool:
    if origin is tuple and Ellipsis not in arguments:
        return len(value) == len(arguments) and all(fits(v, a) for v, a in zip(value, arguments, strict=True))
    return all(fits(item, arguments[0]) for item in value) if arguments else True


def _fits_class(value: object, wanted: object) -> bool:
    if wanted is bool:
        return isinstance(value, bool | np.bool_)
    if wanted in {int, float}:
        number = (int, np.integer) if wanted is int else (int, float, np.integer, np.floating)
        return isinstance(value, number) and not isinstance(value, bool)
    if not isinstance(wanted, type):
        return True
    if wanted in {list, tuple, collections.abc.Sequence}:
        return isinstance(value, list | tuple)
    try:
        return isinstance(value, wanted) or _stands_for(value, wanted)
    except TypeError:  # a protocol that cannot be checked at run time
        return True


def _stands_for(value: object, wanted: type) -> bool:
    """Return whether a value can replace an object of a template class `wanted`, or of a class with templates.

    It can if it is a Fiddle node of the owner, an object of the owner, or a template of the class wanted.
    """
    made = made_by(value)
    owner = getattr(wanted, "_owner", None)
    candidates = [made] if isinstance(made, type) else [type(value)]
    targets = tuple(target for target in (owner, wanted) if isinstance(target, type))
    if any(issubclass(candidate, targets) for candidate in candidates):
        return True
    templates = getattr(made, "HParams", None) if isinstance(made, type) else getattr(type(value), "HParams", None)
    if isinstance(templates, type) and issubclass(templates, wanted):
        return True
    value_owner = getattr(value, "_owner", None)
    return isinstance(value_owner, type) and hasattr(wanted, "HParams") and issubclass(value_owner, wanted)


def made_by(value: object) -> Any:
    """Return the class or function that a Fiddle node calls; None for other values. Does not import Fiddle."""
    fiddle = sys.modules.get("fiddle")
    buildable = getattr(fiddle, "Buildable", None)
    return value.__fn_or_cls__ if buildable is not None and isinstance(value, buildable) else None


def type_name(wanted: object) -> str:
    """Return the name of a type for messages: `int`, `float | None`, `Linear.HParams`."""
    if wanted is None or wanted is type(None):
        return "None"
    if isinstance(wanted, type) and typing.get_origin(wanted) is None:
        return wanted.__name__ if wanted.__module__ == "builtins" else wanted.__qualname__.split("<locals>.")[-1]
    return str(wanted).replace("typing.", "").replace("collections.abc.", "")
