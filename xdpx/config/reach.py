"""Which classes a command can use at all: its own, and whatever its selectors can name, to a fixed point."""

from __future__ import annotations

from collections.abc import Iterator

from xdpx.config import catalogue
from xdpx.config.declarations import Declaration, Entry


def reachable_kinds(command: str) -> list[str]:
    """Give the kinds a command can pick from, in the order in which they are met."""
    return kinds_below([catalogue.entry("command", command)])


def kinds_below(entries: list[Entry]) -> list[str]:
    """Give the kinds that these classes, and the classes those can name, pick from."""
    found: list[str] = []
    pending = list(entries)
    while pending:
        for declaration in pending.pop(0).parameters:
            if declaration.registry and declaration.registry not in found:
                found.append(declaration.registry)
                pending.extend(catalogue.entries(declaration.registry))
    return found


def reachable_entries(command: str) -> Iterator[Entry]:
    """Give the command's own entry and every class it can use."""
    yield catalogue.entry("command", command)
    for kind in reachable_kinds(command):
        yield from catalogue.entries(kind)


def owner_of(entry: Entry) -> str:
    """Name a class for a message: `model re2`; a command by its name alone."""
    return entry.name if entry.kind == "command" else f"{entry.kind} {entry.name}"


def declarations_by_key(entries: Iterator[Entry]) -> dict[str, list[tuple[Entry, Declaration]]]:
    """Give every key of these classes, with each class that declares it."""
    table: dict[str, list[tuple[Entry, Declaration]]] = {}
    for entry in entries:
        for declaration in entry.parameters:
            table.setdefault(declaration.key, []).append((entry, declaration))
    return table
