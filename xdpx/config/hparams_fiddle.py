"""Conversion between templates and Fiddle configs and partials, with shared nodes and helpful errors."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import fiddle as fdl

from xdpx.config.faults import did_you_mean
from xdpx.config.hparams_classes import is_template
from xdpx.config.hparams_types import made_by

SHARED_ID = "shared_weight_layer_id"
"""The field of a layer's template that ties weights: layers with equal ids share them."""


class _Named:
    """Mixin that adds the nearest field to Fiddle's error for an unknown name."""

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except AttributeError as error:
            names = getattr(_template_class(made_by(self)), "_field_table", ())
            raise AttributeError(f"{error} {did_you_mean(name, names)}".rstrip()) from None


class TemplateConfig(_Named, fdl.Config[Any]):  # type: ignore[misc]
    """A Fiddle config of a class with templates."""


class TemplatePartial(_Named, fdl.Partial[Any]):  # type: ignore[misc]
    """A Fiddle partial of a class with templates."""


def config_of(hparams: object) -> Any:
    """Return a template as a Fiddle config of its owner; templates with equal shared ids become one node."""
    return _node(hparams, {}, TemplateConfig)


def partial_of(hparams: object) -> Any:
    """Return a template as a Fiddle partial of its owner; nested templates become configs."""
    return _node(hparams, {}, TemplatePartial)


def _node(hparams: Any, memo: dict[Any, Any], kind: type[Any]) -> Any:
    key = getattr(hparams, SHARED_ID) if SHARED_ID in hparams._field_table else None
    key = (type(hparams), key) if key else id(hparams)
    if key not in memo:
        shown = {name: value for name, value in hparams.fields_and_values() if name in hparams.given()}
        inner = {name: value for name, value in hparams.fields_and_values() if _holds_template(value)}
        values = {name: _value(value, memo) for name, value in {**shown, **inner}.items()}
        memo[key] = kind(hparams._owner or type(hparams), **values)
    return memo[key]


def _holds_template(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(_holds_template(item) for item in value)
    if isinstance(value, dict):
        return any(_holds_template(item) for item in value.values())
    return is_template(value)


def _value(value: object, memo: dict[Any, Any]) -> Any:
    if is_template(value):
        return _node(value, memo, TemplateConfig)
    return _inside(value, lambda item: _value(item, memo))


def _inside(value: object, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(function(item) for item in value)
    if isinstance(value, dict):
        return {name: function(item) for name, item in value.items()}
    return value


def template_of(config: fdl.Buildable[Any]) -> Any:
    """Return a Fiddle config or partial, including nested nodes, as a template.

    A node that is used in several places gets a shared id, so that its users share one set of weights.

    Raises:
        TypeError: the class or function of the node has no templates.
    """
    if _template_class(made_by(config)) is None:
        raise TypeError(f"{made_by(config)!r} has no HParams: fdl.build builds it, no template can be made of it.")
    uses: Counter[int] = Counter()
    _count(config, uses)
    return _template(config, uses, {})


def _template_class(made: object) -> Any:
    """Return `made` if it is a template class, else its HParams; None if it has none."""
    found = made if hasattr(made, "Instantiate") else getattr(made, "HParams", None)
    return found if isinstance(found, type) and hasattr(found, "Instantiate") else None


def _count(value: Any, uses: Counter[int]) -> None:
    if made_by(value) is not None:
        uses[id(value)] += 1
        if uses[id(value)] == 1:
            for item in value.__arguments__.values():
                _count(item, uses)
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, Mapping) else value:
            _count(item, uses)


def _template(value: Any, uses: Counter[int], memo: dict[int, Any]) -> Any:
    cls = _template_class(made_by(value))
    if cls is None:
        return _inside(value, lambda item: _template(item, uses, memo))
    if id(value) not in memo:
        fields = {str(name): _template(item, uses, memo) for name, item in value.__arguments__.items()}
        template = cls(**fields)
        if uses[id(value)] > 1 and SHARED_ID in cls._field_table and not getattr(template, SHARED_ID):
            setattr(template, SHARED_ID, f"shared_{made_by(value).__name__.lower()}_{len(memo)}")
        memo[id(value)] = template
    return memo[id(value)]


def build_fiddle(node: object, overrides: dict[str, Any]) -> Any:
    """Return what a Fiddle config builds; for a partial of a class with templates, a function of further fields."""
    if _template_class(made_by(node)) is None:
        for name, value in overrides.items():
            setattr(node, name, value)
        return fdl.build(node)
    template = template_of(node)
    if isinstance(node, fdl.Partial):
        return functools.partial(template.Instantiate, **overrides)
    return template.Instantiate(**overrides)
