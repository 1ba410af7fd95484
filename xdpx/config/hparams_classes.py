"""What every template class does with its own definition and values: check, name, describe, copy."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from typing import Any, ClassVar

from xdpx.config.faults import nearest
from xdpx.config.hparams_text import printed
from xdpx.config.hparams_types import UNRESOLVED, fits, made_by, resolved, type_name


def is_template(value: Any) -> bool:
    """Tell whether a value is an instance of a template class."""
    return hasattr(type(value), "Instantiate")


def is_class_var(annotation: Any) -> bool:
    """Tell whether an annotation, read or not, is a ClassVar."""
    if isinstance(annotation, str):
        return annotation.split("[")[0].rsplit(".", maxsplit=1)[-1] == "ClassVar"
    return annotation is ClassVar or typing.get_origin(annotation) is ClassVar


def bare(cls: type[Any], name: str) -> str:
    """Say how a field is overridden, after it was written without an annotation."""
    value = printed(cls.__dict__[name])
    return (
        f"{cls.__qualname__}.{name} = {value}: a field is overridden with an annotation only. "
        f"Write `{name}: {type(cls.__dict__[name]).__name__} = {value}`."
    )


def check_class(cls: type[Any], root: type[Any]) -> None:
    """Refuse, at the class definition, what would go wrong silently later."""
    annotations = cls.__dict__.get("__annotations__", {})
    for name, value in cls.__dict__.items():
        if name.startswith("_") or callable(value) or isinstance(value, property | classmethod | staticmethod):
            continue
        if name not in annotations:
            raise TypeError(bare(cls, name))
        if isinstance(value, list | dict | set) or _kind(value) == "template":
            raise TypeError(f"{cls.__qualname__}.{name}: all instances would share one {_kind(value)}. {_cure(value)}")
    for name in annotations:
        if hasattr(root, name) and not is_class_var(annotations[name]) and name[:1] != "_":
            raise TypeError(f"{cls.__qualname__}.{name}: '{name}' is a method of every template. Take another name.")


def _kind(value: Any) -> str:
    return "template" if is_template(value) or made_by(value) is not None else type(value).__name__


def _cure(value: Any) -> str:
    if _kind(value) == "template":
        return f"Write sub_config_field({label(type(value))})."
    return f"Write dataclasses.field(default_factory=lambda: {printed(value)}), or a tuple."


def signature_of(cls: type[Any]) -> inspect.Signature:
    """Give the signature `(*, field=default, ...)`; a field with a factory shows no default."""
    parameters = []
    for name, field in cls._field_table.items():
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    return inspect.Signature(parameters)


def label(cls: type[Any]) -> str:
    """Name a template class for a message: `Linear.HParams`."""
    owner = cls.__dict__.get("_owner")
    return f"{owner.__name__}.HParams" if owner else cls.__qualname__.split("<locals>.")[-1]


def no_field(cls: type[Any], name: str) -> str:
    """Say that a class has no such field, which is nearest, and which there are."""
    names = list(cls._field_table)
    near = nearest(name, names)
    hint = f" Did you mean '{near}'?" if near else ""
    return f"{label(cls)} has no field '{name}'.{hint} Its fields: {', '.join(names) or 'none'}."


def check_field(cls: type[Any], name: str, value: Any) -> None:
    """Refuse, with a TypeError, a field that does not exist or a value that it does not allow."""
    if name not in cls._field_table:
        raise TypeError(no_field(cls, name))
    check_value(cls, name, value)


def check_value(cls: type[Any], name: str, value: Any) -> None:
    """Refuse, with a TypeError, a value that its field's annotation does not allow."""
    wanted = cls._types.get(name, UNRESOLVED)
    if wanted is UNRESOLVED:
        wanted = resolved(cls, name)
        if wanted is not UNRESOLVED:
            cls._types[name] = wanted
    if not fits(value, wanted):
        raise TypeError(f"{label(cls)}.{name}: is {printed(value)} ({_kind(value)}). Use {type_name(wanted)}.")


def cloned(value: Any, memo: dict[int, Any]) -> Any:
    """Copy templates and containers; one object used twice stays one; other values are shared."""
    if id(value) in memo:
        return memo[id(value)]
    if is_template(value):
        copy = object.__new__(type(value))
        memo[id(value)] = copy
        copy.__dict__.update({name: cloned(item, memo) for name, item in value.fields_and_values()})
        copy.__dict__["_given"] = set(value.given())
        return copy
    if isinstance(value, list | tuple | dict) and not hasattr(value, "_fields"):
        return _cloned_container(value, memo)
    if made_by(value) is not None:
        import copy as copying

        return copying.deepcopy(value, memo)
    return value


def _cloned_container(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, dict):
        return type(value)({name: cloned(item, memo) for name, item in value.items()})
    return type(value)(cloned(item, memo) for item in value)
