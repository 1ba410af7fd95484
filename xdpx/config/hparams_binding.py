"""Give every class that is built from a template a template class of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from xdpx.config.hparams_classes import bare, is_class_var


def bind(cls: Any) -> None:
    """Give a class its own HParams, a subclass of its parents' ones, made of a nested class or of its fields."""
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
    # A dataclass writes into the Field objects it is given: flax needs those of the class body for itself.
    body = {name: copy.copy(cls.__dict__[name]) for name in declared if name in cls.__dict__}
    names = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.HParams"}
    doc = f"The fields of {cls.__name__}."
    return type("HParams", bases, {**body, **names, "__doc__": doc, "__annotations__": declared})


_NO_FIELDS = frozenset({"parent", "name", "scope", "HParams", "hparams"})


def _declared(cls: type[Any]) -> dict[str, Any]:
    """Give the annotations of a class body that declare fields."""
    annotations = cls.__dict__.get("__annotations__", {})
    return {n: a for n, a in annotations.items() if n[:1] != "_" and n not in _NO_FIELDS and not is_class_var(a)}


def _refuse_bare_overrides(cls: type[Any], parents: tuple[type[Any], ...], declared: Mapping[str, Any]) -> None:
    known = {name for parent in parents for name in parent._field_table} - _NO_FIELDS
    for name in cls.__dict__:
        if name in known and name not in declared:
            raise TypeError(bare(cls, name))
