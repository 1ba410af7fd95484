"""Check names of metrics in a config against the metrics that the selected classes declare."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from xdpx.config import catalogue
from xdpx.config.declarations import Declaration, Metric
from xdpx.config.faults import nearest
from xdpx.config.hints import shown
from xdpx.config.selection import Selected, Selection, condition_holds


def unknown_metrics(selection: Selection, values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (key, problem, remedy) for each `metric_of` parameter that names a metric which will not exist.

    Classes that do not declare their metrics are not checked.
    """
    for key, one, item in selection.declared():
        # The class whose metrics are meant has the same prefix, or else none.
        by_prefix = {each.prefix: each for each in selection.classes if each.kind == item.metric_of}
        giver = by_prefix.get(one.prefix, by_prefix.get(""))
        if giver is None or giver.entry.metrics is None:
            continue
        value = values.get(key)
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str):
                yield from _unknown(key, name, giver, giver.entry.metrics, values)


def _unknown(
    key: str, name: str, giver: Selected, metrics: tuple[Metric, ...], values: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    conditions = [when for known, when in metrics if _is_meant(name, known)]
    if not conditions:
        yield key, f"{giver} gives no '{name}'.", _instead(name, metrics)
    elif not any(_holds(when, giver, values) for when in conditions):
        yield key, *_without_ground(name, giver, conditions[0], values)


def _is_meant(name: str, known: str) -> bool:
    """Return whether a metric matches a name or pattern; `*` stands for a number, such as the k of `top*_acc`."""
    return re.fullmatch(re.escape(known).replace(r"\*", r"\d+"), name) is not None


def metrics_of(item: Declaration) -> dict[str, list[str]]:
    """Return class -> metrics that a parameter can name; empty without `metric_of`."""
    givers = catalogue.entries(item.metric_of) if item.metric_of else ()
    return {giver.name: [name for name, _ in giver.metrics] for giver in givers if giver.metrics}


def _holds(when: tuple[str, str, Any] | None, giver: Selected, values: Mapping[str, Any]) -> bool:
    """Return whether a condition holds, or may hold because its key has no value yet (null)."""
    value = values.get(giver.prefix + when[0]) if when else None
    return when is None or value is None or condition_holds(when, value)


def _instead(name: str, metrics: tuple[Metric, ...]) -> str:
    names = sorted(known for known, _ in metrics)
    # The metric of which `name` is a longer form (`accuracy`), or the name of a log column (`valid_acc`).
    longer = [known for known in names if name.lower().startswith(known) or name.endswith(f"_{known}")]
    near = nearest(name, names) or next(iter(longer), None)
    meant = f"Did you mean '{near}'? " if near else ""
    return f"{meant}There are (* is a number): {', '.join(names)}."


def _without_ground(
    name: str, giver: Selected, when: tuple[str, str, Any] | None, values: Mapping[str, Any]
) -> tuple[str, str]:
    key, operator, wanted = when or ("", "is", None)
    key = giver.prefix + key
    problem = f"{giver} gives '{name}' only when {key} {operator} {shown(wanted)}; it is {shown(values[key])}."
    metrics = tuple(one for one in giver.entry.metrics or () if _holds(one[1], giver, values))
    return problem, f"There are: {', '.join(sorted(known for known, _ in metrics))}."
