"""Group the values of a run under the headings of their declarations, for the printed tree and for args.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdpx.config import catalogue
from xdpx.config.declarations import Declaration, Entry

if TYPE_CHECKING:
    from xdpx.config.loading import Run


@dataclass
class Group:
    """The values under one heading, and its subgroups."""

    values: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)

    def at(self, path: str) -> Group:
        """Return the subgroup at a path such as `trainer/log`, created if missing."""
        group = self
        for name in path.split("/"):
            group = group.groups.setdefault(name, Group())
        return group


def grouped(run: Run) -> Group:
    """Return all values of a run by heading; a key that several classes declare is under the first one's."""
    root = Group()
    placed: set[str] = set()
    for (prefix, kind), name in run.picks.items():
        entry = catalogue.entry(kind, name)
        for declaration in entry.parameters:
            key = prefix + declaration.key
            if key in run.values and key not in placed:
                root.at(prefix + heading(entry, declaration)).values[key] = run.values[key]
                placed.add(key)
    return root


def heading(entry: Entry, declaration: Declaration) -> str:
    """Return the heading of one parameter: its own, or else the kind of its class (for a command, its name)."""
    return declaration.group or (entry.name.removeprefix("x-") if entry.kind == "command" else entry.kind)
