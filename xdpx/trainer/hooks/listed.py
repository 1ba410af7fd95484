"""The `callbacks` in a config of x-train: found by name, checked before training, and constructed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xdpx.config.faults import Fault, did_you_mean
from xdpx.config.spmd_keys import SPMD
from xdpx.config.user_modules import named
from xdpx.reports.trackers.choosing import troubles_of
from xdpx.trainer.hooks import callbacks

Entry = str | Mapping[str, Mapping[str, Any]]
"""A name, or {name: {argument: value}}."""

KEY = "callbacks"


def faults_of(entries: Sequence[Entry], *, engine: str) -> Iterator[Fault]:
    """Yield the faults of each entry: an unknown name, or arguments or an engine that it does not support."""
    for entry in entries:
        if not isinstance(entry, str) and len(entry) != 1:
            yield Fault(KEY, f"has {dict(entry)!r}.", "Write one name per entry: {name: {argument: value}}.")
            continue
        name, arguments = _read(entry)
        try:
            thing = _find(name)
        except ValueError as error:
            yield Fault(KEY, str(error), _remedy(name))
            continue
        if not any(event.startswith("on_") for event in dir(thing)):
            remedy = "List a class with such methods, or an object of one."
            yield Fault(KEY, f"{name} has no event, such as on_step_end, so it is not a callback.", remedy)
        elif problem := _misfit(thing, arguments):
            yield Fault(KEY, f"{name} {problem}", "Correct its arguments.")
        if engine == SPMD and getattr(thing, "changes_model", False):
            problem = f"{name} changes the model that PyTorch computes, which the engine spmd does not train."
            yield Fault(KEY, problem, "Leave it out. Or use engine: pytorch.")


def faults_of_trackers(report_to: object) -> Iterator[Fault]:
    """Yield the faults of `report_to`; a callback of the user that is named there belongs under `callbacks`."""
    for name in report_to if isinstance(report_to, list | tuple) else [report_to]:
        for trouble in troubles_of([name]):
            there = isinstance(name, str) and name in callbacks.own()
            yield Fault("report_to", trouble, f"List {name} under {KEY}, where it is registered." * there)


def build(entries: Sequence[Entry]) -> list[Any]:
    """Return all callbacks; an object listed by its name is returned unchanged."""
    made = []
    for name, arguments in map(_read, entries):
        thing = _find(name)
        made.append(thing(**arguments) if callable(thing) else thing)
    return made


def _read(entry: Entry) -> tuple[str, Mapping[str, Any]]:
    return (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))


def _find(name: str) -> Any:
    """Return the object of a name. Raises ValueError with the reason if there is none."""
    if name in callbacks:
        return callbacks[name]
    if ":" in name:
        return named(name)
    raise ValueError(f"no '{name}' is registered.")


def _remedy(name: str) -> str:
    if ":" in name:
        return "Write module:Class, of a module in user/modules or of a package's entry points xdpx.callback."
    listed = f'There are {", ".join(callbacks)}; register your own by @register("{name}"), or write module:Class.'
    return did_you_mean(name, callbacks, rest=listed)


def _misfit(thing: object, arguments: Mapping[str, Any]) -> str:
    """Return why a callback cannot be constructed with these arguments, "" if it can."""
    if not callable(thing):
        return "is an object already, so it takes no arguments." if arguments else ""
    try:
        inspect.signature(thing).bind(**arguments)
    except TypeError as error:
        return f"cannot be created: {error}."
    return ""
