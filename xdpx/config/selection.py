"""Select the classes of a run: the command, and recursively the classes that `registry=` parameters name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from xdpx.config import catalogue, packages
from xdpx.config.declarations import Declaration, Entry
from xdpx.config.faults import Fault, Origin, unknown_name
from xdpx.config.hints import hint, swallowed_part

Pick = tuple[str, str]
"""(prefix, kind)"""


@dataclass(frozen=True)
class Selected:
    """One class that a run uses, and the prefix of its keys in the config."""

    prefix: str
    entry: Entry

    @property
    def kind(self) -> str:
        """The kind of the class, e.g. `model`."""
        return self.entry.kind

    def __str__(self) -> str:
        return self.entry.name if self.kind == "command" else f"{self.prefix}{self.kind} {self.entry.name}"


@dataclass
class Selection:
    """The classes of one run in the order of discovery, the command first."""

    classes: list[Selected] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    open_kinds: set[str] = field(default_factory=set)
    """Kinds without a selected class, because its name is missing or wrong."""

    def picks(self) -> dict[Pick, str]:
        """Return {(prefix, kind): name}."""
        return {(one.prefix, one.kind): one.entry.name for one in self.classes}

    def declared(self) -> Iterator[tuple[str, Selected, Declaration]]:
        """Yield (key in the config, class, declaration) for every parameter of every class."""
        for one in self.classes:
            for declaration in one.entry.parameters:
                yield one.prefix + declaration.key, one, declaration

    def new_folders(self) -> list[str]:
        """Return the keys that name the folders which the run writes."""
        return [key for key, _, declaration in self.declared() if declaration.path == "new_directory"]


def prefix_of(key: str, kind: str, inherited: str = "") -> str:
    """Return the prefix that the key of a selector implies: `teacher_` for `teacher_model` of kind `model`."""
    return key.removesuffix(kind) if key.endswith(kind) and key != kind else inherited


def select(command: str, values: Mapping[str, Any], origins: Mapping[str, Origin]) -> Selection:
    """Return the classes that a run of `command` with these values uses.

    Raises:
        ConfigError: there is no such command.
    """
    selection = Selection([Selected("", catalogue.entry("command", command))])
    for one in selection.classes:  # the list grows during the iteration, up to the fixed point
        for declaration in one.entry.parameters:
            if declaration.registry and holds_here(declaration, one, values):
                _follow(selection, one, declaration, values, origins)
    return selection


def _follow(
    selection: Selection,
    one: Selected,
    declaration: Declaration,
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
) -> None:
    key, kind = one.prefix + declaration.key, str(declaration.registry)
    name = values.get(key, declaration.default)
    if name is None and "None" in declaration.type:
        return
    if not isinstance(name, str):
        selection.open_kinds.add(kind)  # missing, or not text: reported when types are checked
        return
    if name not in catalogue.names(kind):
        selection.open_kinds.add(kind)
        selection.faults.append(_unknown(key, name, kind, origins.get(key)))
        return
    taken = packages.ambiguity(kind, name, shipped=name in catalogue.shipped().get(kind, ()))
    if taken:
        selection.open_kinds.add(kind)
        selection.faults.append(replace(taken, key=key, origin=origins.get(key)))
        return
    found = Selected(prefix_of(key, kind, one.prefix), catalogue.entry(kind, name))
    if found not in selection.classes:
        selection.classes.append(found)


def _unknown(key: str, name: str, kind: str, origin: Origin | None) -> Fault:
    swallowed = swallowed_part(name)
    if swallowed:
        return Fault(key, f"no '{name}' is registered.", f"{swallowed}.", origin)
    fault = unknown_name(key, name, catalogue.names(kind), origin)
    return Fault(key, fault.problem, fault.remedy + hint(name, "null" if name.lower() == "none" else "a name"), origin)


def holds_here(declaration: Declaration, one: Selected, values: Mapping[str, Any]) -> bool:
    """Return whether the `when` of a selector holds, judged only by its own class and the config."""
    if declaration.when is None:
        return True
    key = declaration.when[0]
    default = next((other.default for other in one.entry.parameters if other.key == key), None)
    return condition_holds(declaration.when, values.get(one.prefix + key, values.get(key, default)))


def condition_holds(when: tuple[str, str, Any], value: object) -> bool:
    """Return whether a condition (key, operator, wanted) holds for a value of the key."""
    _, operator, wanted = when
    try:
        if operator == "in":
            return value in wanted
        if operator in {">", "<"}:
            return bool(value > wanted if operator == ">" else value < wanted)
    except TypeError:
        return False
    same = value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
    return same if operator == "is" else not same
