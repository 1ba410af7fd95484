"""The parameters that registered classes declare; those of shipped classes are read from `catalogue.json`.

So a config can be checked without importing these classes. `python -m xdpx.config.catalogue` regenerates the file from
the classes; `--check` only compares. Users' own classes are always read from the class; with `XDPX_LIVE_CATALOGUE=1`
shipped ones are, too, which is useful during development.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module, resources
from typing import TYPE_CHECKING, Any, cast

from xdpx.config import packages
from xdpx.config.declarations import Declaration, Entry
from xdpx.config.faults import ConfigError, refusal
from xdpx.config.registry import REGISTRIES, ROOMS, registry_of

if TYPE_CHECKING:
    from xdpx.config.parameters import Parameters

FILE_NAME = "catalogue.json"


@cache
def shipped() -> dict[str, dict[str, Any]]:
    """Return the stored catalogue as {kind: {name: stored entry}}; empty if the file is missing."""
    file = resources.files("xdpx.config").joinpath(FILE_NAME)
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def names(kind: str) -> list[str]:
    """Return all names registered under `kind`: shipped ones, the user's own, and those of installed packages."""
    if _is_live(kind):
        return list(registry_of(kind))
    return sorted({*shipped()[kind], *REGISTRIES.get(kind, ()), *packages.offered(kind)})


def entry(kind: str, name: str) -> Entry:
    """Return the declarations of the class registered as `name`.

    Raises:
        ConfigError: the name is not registered, or the package that offers it cannot be imported.
    """
    if not _is_live(kind) and name in shipped()[kind]:
        return _stored_entry(kind, name)
    from xdpx.config.parameters import entry_of  # here: it brings pydantic

    thing = registry_of(kind)[name]
    try:
        return entry_of(kind, name, thing)
    except TypeError as error:
        raise refusal(kind, f"'{name}' cannot be read: {error}", "Correct its class.") from error


def entries(kind: str) -> Iterator[Entry]:
    """Yield the entries of a kind, sorted by name, for searching or listing.

    Classes that cannot be imported are skipped; so are classes of installed packages that are not selected yet, to
    avoid their import.
    """
    shipping = registry_of(kind).shipped if _is_live(kind) else shipped()[kind]
    for name in sorted({*shipping, *(REGISTRIES[kind].own() if kind in REGISTRIES else ())}):
        try:
            found = entry(kind, name)
        except (ImportError, AttributeError, ConfigError):
            continue
        yield found


def kinds() -> list[str]:
    """Return all kinds of registered classes, such as `model` or `loss`."""
    return sorted({*ROOMS, *REGISTRIES, *shipped()})


def reachable_kinds(command: str) -> list[str]:
    """Return the kinds that a command selects classes from, in the order of discovery."""
    return kinds_below([entry("command", command)])


def kinds_below(owners: list[Entry]) -> list[str]:
    """Return the kinds that these classes, and in turn all classes of those kinds, select from."""
    found: list[str] = []
    pending = list(owners)
    while pending:
        for declaration in pending.pop(0).parameters:
            if declaration.registry and declaration.registry not in found:
                found.append(declaration.registry)
                pending.extend(entries(declaration.registry))
    return found


def reachable_entries(command: str) -> Iterator[Entry]:
    """Yield the entry of a command, and those of all classes that it can use."""
    yield entry("command", command)
    for kind in reachable_kinds(command):
        yield from entries(kind)


def owner_of(entry: Entry) -> str:
    """Return the name of a class for messages, such as `model re2`; for a command only its name."""
    return entry.name if entry.kind == "command" else f"{entry.kind} {entry.name}"


def declarations_by_key(owners: Iterator[Entry]) -> dict[str, list[tuple[Entry, Declaration]]]:
    """Return key -> [(class, declaration), ...] for all keys of these classes."""
    table: dict[str, list[tuple[Entry, Declaration]]] = {}
    for owner in owners:
        for declaration in owner.parameters:
            table.setdefault(declaration.key, []).append((owner, declaration))
    return table


def conflict_rules(entry: Entry) -> type[Parameters]:
    """Return the Parameters class that defines the conflicts of an entry; for shipped ones, imports only its module."""
    if entry.kind in REGISTRIES and entry.name in REGISTRIES[entry.kind].own():
        rules: type[Parameters] = REGISTRIES[entry.kind][entry.name].Parameters
        return rules
    module, _, path = entry.conflicts.partition(":")
    found: Any = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return cast("type[Parameters]", found)


@cache
def _stored_entry(kind: str, name: str) -> Entry:
    return Entry.from_json(kind, name, shipped()[kind][name])


def _is_live(kind: str) -> bool:
    return kind not in shipped() or bool(os.environ.get("XDPX_LIVE_CATALOGUE"))


def compile_catalogue() -> tuple[str, list[str]]:
    """Return the text of the catalogue, read from all shipped classes, and a problem for each that cannot be read.

    Such a class keeps its current entry, so that unfinished work in one room does not affect others.
    """
    from xdpx.config.parameters import entry_of

    problems: list[str] = []
    compiled: dict[str, dict[str, Any]] = {}
    for kind in sorted(ROOMS):
        table = compiled.setdefault(kind, {})
        for name, target in sorted(_shipped_names(kind, problems).items()):
            try:
                table[name] = entry_of(kind, name, registry_of(kind)[name]).to_json()
            except Exception as error:  # an import may raise anything, and must not stop the others
                problems.append(f"{kind} '{name}' ({target}): {type(error).__name__}: {error}")
                table.update({name: old} if (old := shipped().get(kind, {}).get(name)) else {})
    return json.dumps(compiled, indent=1, ensure_ascii=False) + "\n", problems


def _shipped_names(kind: str, problems: list[str]) -> dict[str, str]:
    try:
        return registry_of(kind).shipped
    except (ImportError, KeyError) as error:
        problems.append(f"{kind}: no table in {ROOMS[kind]}: {type(error).__name__}: {error}")
        return {}


def main(arguments: list[str]) -> int:
    """Write the catalogue, or compare it with `--check`; return exit code 1 if it differs or a class is unreadable."""
    from xdpx.utils import commit  # here: only writing needs it

    text, problems = compile_catalogue()
    for problem in problems:
        sys.stderr.write(f"catalogue: {problem}\n")
    file = resources.files("xdpx.config").joinpath(FILE_NAME)
    fresh = file.is_file() and file.read_text(encoding="utf-8") == text
    if fresh:
        sys.stderr.write("catalogue: up to date\n")
    elif "--check" in arguments:
        sys.stderr.write(f"catalogue: {FILE_NAME} is out of date. Run: python -m xdpx.config.catalogue\n")
    else:
        commit.write_text(str(file), text)
        sys.stderr.write(f"catalogue: wrote {file}\n")
    return 1 if problems or ("--check" in arguments and not fresh) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
