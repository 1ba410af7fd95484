"""Read from a class itself what it declares. It brings pydantic, which reading the catalogue does without."""

from __future__ import annotations

from typing import Any

from xdpx.config.declarations import Entry, Metric, declarations_of, metrics_of
from xdpx.config.parameters import Parameters


def entry_of(kind: str, name: str, thing: Any) -> Entry:
    """Read what a class declares. A class without `Parameters` declares nothing.

    Raises:
        TypeError: a field was not made with `param`, or its type is none that a config value can have.
    """
    doc = (getattr(thing, "__doc__", None) or "").strip().partition("\n")[0]
    declared = getattr(thing, "Parameters", None)
    metrics = _metrics_of(thing)
    if declared is None:
        return Entry(kind, name, doc, metrics=metrics)
    if not (isinstance(declared, type) and issubclass(declared, Parameters)):
        raise TypeError(f"{kind} '{name}': its Parameters must inherit xdpx.config.parameters.Parameters.")
    owner = next(one for one in declared.__mro__ if "conflicts" in vars(one))
    place = "" if owner is Parameters else f"{owner.__module__}:{owner.__qualname__}"
    return Entry(kind, name, doc, place, declarations_of(declared), metrics)


def _metrics_of(thing: Any) -> tuple[Metric, ...] | None:
    """Give the metrics a class says it has. A class that computes others than its parent must say so anew."""
    definers = [one for one in getattr(thing, "__mro__", ()) if {"metrics", "metric_names"} & vars(one).keys()]
    said = vars(definers[0]).get("metric_names") if definers else None
    return None if said is None else metrics_of(said)
