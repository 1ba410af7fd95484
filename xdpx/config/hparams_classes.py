"""Operations on template classes: bind them to their owner, check definitions and values, name, describe, copy."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

from xdpx.config.faults import did_you_mean
from xdpx.config.hparams_text import printed
from xdpx.config.hparams_types import UNRESOLVED, fits, made_by, resolved, type_name
from xdpx.config.pax_names import of_pax


def is_template(value: object) -> bool:
    """Return whether a value is an instance of a template class."""
    return hasattr(type(value), "Instantiate")


def is_class_var(annotation: object) -> bool:
    """Return whether an annotation, resolved or still a string, is a ClassVar."""
    if isinstance(annotation, str):
        return annotation.split("[")[0].rsplit(".", maxsplit=1)[-1] == "ClassVar"
    return annotation is ClassVar or typing.get_origin(annotation) is ClassVar


def bare(cls: type[Any], name: str) -> str:
    """Return the error message for a field that is overridden without an annotation."""
    value = printed(cls.__dict__[name])
    return (
        f"{cls.__qualname__}.{name} = {value}: a field is overridden with an annotation only. "
        f"Write `{name}: {type(cls.__dict__[name]).__name__} = {value}`."
    )


def check_class(cls: type[Any], root: type[Any]) -> None:
    """Raise TypeError for mistakes in a class definition that would otherwise go unnoticed.

    These are values without an annotation, mutable defaults, and fields with the name of a template's method.
    """
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


def _kind(value: object) -> str:
    return "template" if is_template(value) or made_by(value) is not None else type(value).__name__


def _cure(value: object) -> str:
    if _kind(value) == "template":
        return f"Write sub_config_field({label(type(value))})."
    return f"Write dataclasses.field(default_factory=lambda: {printed(value)}), or a tuple."


def signature_of(cls: type[Any]) -> inspect.Signature:
    """Return the signature `(*, field=default, ...)`; fields with a default factory show no default."""
    parameters = []
    for name, field in cls._field_table.items():
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    return inspect.Signature(parameters)


def label(cls: type[Any]) -> str:
    """Return the name of a template class for messages: `Linear.HParams`."""
    owner = cls.__dict__.get("_owner")
    return f"{owner.__name__}.HParams" if owner else cls.__qualname__.split("<locals>.")[-1]


def no_field(cls: type[Any], name: str) -> str:
    """Return the message that a class has no such field, with the nearest name and the list of all."""
    names = list(cls._field_table)
    hint = of_pax(name) or did_you_mean(name, names)
    return f"{label(cls)} has no field '{name}'.{' ' if hint else ''}{hint} Its fields: {', '.join(names) or 'none'}."


class NoField(AttributeError):
    """A template has no such field; `hasattr` asks for many. The message, with the nearest name, is made when read."""

    def __init__(self, cls: type[Any], name: str) -> None:
        super().__init__(cls, name)

    def __str__(self) -> str:
        return no_field(*self.args)


def check_field(cls: type[Any], name: str, value: object) -> None:
    """Raise TypeError if a field does not exist, or its annotation does not allow the value."""
    if name not in cls._field_table:
        raise TypeError(no_field(cls, name))
    check_value(cls, name, value)


def check_value(cls: type[Any], name: str, value: object) -> None:
    """Raise TypeError if the annotation of a field does not allow a value."""
    wanted = cls._types.get(name, UNRESOLVED)
    if wanted is UNRESOLVED:
        wanted = resolved(cls, name)
        if wanted is not UNRESOLVED:
            cls._types[name] = wanted
    if not fits(value, wanted):
        raise TypeError(f"{label(cls)}.{name}: is {printed(value)} ({_kind(value)}). Use {type_name(wanted)}.")


def cloned(value: Any, memo: dict[int, Any]) -> Any:
    """Return a copy of nested templates and containers. Other values are shared; so is a template that occurs twice."""
    if id(value) in memo:
        return memo[id(value)]
    if is_template(value):
        copy = object.__new__(type(value))
        memo[id(value)] = copy
        copy.__dict__.update({name: cloned(item, memo) for name, item in value.fields_and_values()})
        copy.__dict__["_given"] = set(value.given())
        return copy
    if isinstance(value, list | tuple | dict) and not hasattr(value, "_fields"):
        if isinstance(value, dict):
            return type(value)({name: cloned(item, memo) for name, item in value.items()})
        return type(value)(cloned(item, memo) for item in value)
    if made_by(value) is not None:
        import copy as copying

        return copying.deepcopy(value, memo)
    return value


def bind(cls: Any) -> None:
    """Set `cls.HParams`, a subclass of the parents' HParams, from its nested class or from the fields in its body."""
    own: Any = cls.__dict__.get("HParams")
    parents = tuple(dict.fromkeys(base.HParams for base in cls.__bases__ if hasattr(base, "HParams")))
    parents = tuple(p for p in parents if not any(p is not other and issubclass(other, p) for other in parents))
    declared = _declared(cls) if own is None or cls._keeps_field_attributes else {}
    _refuse_bare_overrides(cls, parents, declared)
    whole = isinstance(own, type) and "_owner" not in own.__dict__ and all(issubclass(own, p) for p in parents)
    bound: Any
    if whole and not declared:
        bound = own
    else:
        bases = parents if own is None else (own, *(p for p in parents if not issubclass(own, p)))
        bound = _derived(cls, bases, declared)
    bound._owner = cls
    type.__setattr__(cls, "HParams", bound)
    if not cls._keeps_field_attributes:
        for name in declared:
            if name in cls.__dict__:
                delattr(cls, name)


def _derived(cls: type[Any], bases: tuple[type[Any], ...], declared: dict[str, Any]) -> Any:
    # `dataclass` modifies the Field objects it gets, and flax needs those of the class body unmodified.
    body = {name: copy.copy(cls.__dict__[name]) for name in declared if name in cls.__dict__}
    names = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.HParams"}
    doc = f"The fields of {cls.__name__}."
    return type("HParams", bases, {**body, **names, "__doc__": doc, "__annotations__": declared})


_NO_FIELDS = frozenset({"parent", "name", "scope", "HParams", "hparams"})


def _declared(cls: type[Any]) -> dict[str, Any]:
    """Return the annotations of a class body that declare fields."""
    annotations = cls.__dict__.get("__annotations__", {})
    return {n: a for n, a in annotations.items() if n[:1] != "_" and n not in _NO_FIELDS and not is_class_var(a)}


def _refuse_bare_overrides(cls: type[Any], parents: tuple[type[Any], ...], declared: Mapping[str, Any]) -> None:
    known = {name for parent in parents for name in parent._field_table} - _NO_FIELDS
    for name in cls.__dict__:
        if name in known and name not in declared:
            raise TypeError(bare(cls, name))
