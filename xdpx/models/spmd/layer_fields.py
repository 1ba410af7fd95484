"""Turn the fields of a layer's template into fields of its flax module, and refuse unknown ones."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from xdpx.config.hparams import BaseHParams
from xdpx.config.hparams_classes import check_field


def checking_fields(function: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that refuses the same fields as `Cls.HParams(**fields)`."""

    @functools.wraps(function)
    def __init__(self: Any, *args: Any, **fields: Any) -> None:
        for name in fields:
            if name not in {"parent", "name"}:
                check_field(type(self).HParams, name, fields[name])
        function(self, *args, **fields)

    return __init__


def declare_nested_fields(cls: type[Any]) -> None:
    """Add the fields of a nested HParams to the fields of the flax module."""
    own = cls.__dict__.get("HParams")
    if not isinstance(own, type) or not issubclass(own, BaseHParams):
        return
    inherited = {name: f for base in cls.__mro__[1:] for name, f in _table_of(base).items()}
    annotations = dict(cls.__dict__.get("__annotations__", {}))
    for name, field in own._field_table.items():
        if inherited.get(name) is not field and name != "name":
            annotations[name] = field.type
            setattr(cls, name, _copied(field))
    cls.__annotations__ = annotations


def _table_of(base: type[Any]) -> Mapping[str, Any]:
    templates = base.__dict__.get("HParams")
    return templates._field_table if isinstance(templates, type) and issubclass(templates, BaseHParams) else {}


def _copied(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory)
    return dataclasses.field() if field.default is dataclasses.MISSING else field.default
