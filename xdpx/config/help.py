"""The texts of `--help` for a command, a key, or a registered name, generated from the declarations."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from xdpx.config import catalogue, synonyms
from xdpx.config.catalogue import declarations_by_key, owner_of, reachable_entries, reachable_kinds
from xdpx.config.declarations import Declaration, Entry
from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.config.grouping import heading
from xdpx.config.hints import shown
from xdpx.config.metrics import metrics_of

WIDTH = 110
"""Width in columns, at which long texts are wrapped."""


def command_help(command: str) -> str:
    """Return the help of a command: its keys under their headings, and the modules that add keys of their own."""
    entry = catalogue.entry("command", command)
    parts = [f"{command} <config> [key=value ...]   {entry.doc}", *_groups(entry)]
    kinds = reachable_kinds(command)
    if kinds:
        parts.append(f"\nmodules (their own keys: {command} --help <name>)")
        parts.extend(_listed(kind) for kind in kinds)
    return "\n".join(parts)


def _listed(kind: str) -> str:
    text = f"  {kind}: {', '.join(catalogue.names(kind))}"
    return textwrap.fill(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def _groups(entry: Entry) -> list[str]:
    groups: dict[str, list[Declaration]] = {}
    for declaration in entry.parameters:
        groups.setdefault(heading(entry, declaration), []).append(declaration)
    return [part for title, items in groups.items() for part in (f"\n({title})", _table(items))]


def _table(declarations: Sequence[Declaration]) -> str:
    rows = [(item.key, f"{item.type}{_default(item)}", _meaning(item)) for item in declarations]
    first = max(len(row[0]) for row in rows)
    second = min(34, max(len(row[1]) for row in rows))
    return "\n".join(_row(*row, first, second) for row in rows)


def _row(key: str, kind: str, meaning: str, first: int, second: int) -> str:
    lead = f"  {key.ljust(first)}  {kind.ljust(second)}  "
    indent = " " * (4 + first + second + 2)
    if len(lead) > len(indent):
        return f"{lead.rstrip()}\n{textwrap.fill(meaning, WIDTH, initial_indent=indent, subsequent_indent=indent)}"
    return textwrap.fill(meaning, WIDTH, initial_indent=lead, subsequent_indent=indent) if meaning else lead.rstrip()


def _default(item: Declaration) -> str:
    return ", required" if item.required else f" = {shown(item.default)}"


def _meaning(item: Declaration) -> str:
    """Return the description of a parameter with its registry, bounds, condition, and use of relative numbers."""
    notes = [item.doc.rstrip(".")]
    if item.registry:
        notes.append(f"names {'an' if item.registry[0] in 'aeiou' else 'a'} {item.registry}")
    if item.bounds():
        notes.append(item.bounds())
    if item.when:
        key, operator, value = item.when
        notes.append(f"only when {key} {operator} {shown(value)}")
    if item.relative:
        notes.append("relative numbers @{...} allowed")
    return "; ".join(note for note in notes if note) + "."


def topic_help(topic: str, commands: Iterable[str] = ()) -> str:
    """Return the help of one key or registered name that these commands (by default all) can use.

    Raises:
        ConfigError: there is no such key or name; the remedy suggests the nearest.
    """
    asked = list(commands) or [entry.name for entry in catalogue.entries("command")]
    entries = list({(one.kind, one.name): one for command in asked for one in reachable_entries(command)}.values())
    by_key = declarations_by_key(iter(entries))
    named = [entry for entry in entries if entry.name == topic or topic == f"{entry.kind} {entry.name}"]
    parts = [
        *(_explain_class(entry) for entry in named),
        *([_explain_key(topic, by_key[topic])] if topic in by_key else []),
    ]
    if not parts:
        where = f"{', '.join(commands)} knows" if commands else "there is"
        known = [*by_key, *(entry.name for entry in entries)]
        guess = did_you_mean(topic, known, "--help after a command lists its keys and modules.")
        remedy = synonyms.remedy(topic, by_key) or guess
        raise ConfigError("--help", [Fault(topic, f"{where} no such key or name.", remedy)])
    return "\n\n".join(parts)


def _explain_class(entry: Entry) -> str:
    if entry.kind == "command":
        return command_help(entry.name)
    table = _table(entry.parameters) if entry.parameters else "  no keys of its own"
    metrics = f"\n  metrics: {', '.join(name for name, _ in entry.metrics)}" if entry.metrics else ""
    return f"{entry.name} ({entry.kind})   {entry.doc}\n{table}{metrics}"


def _explain_key(key: str, declared: Sequence[tuple[Entry, Declaration]]) -> str:
    """Return each distinct declaration of a key once, with the classes that share it."""
    alike: dict[str, list[str]] = {}
    for entry, item in declared:
        meaning = textwrap.indent(textwrap.fill(_meaning(item), WIDTH - 2), "  ")
        text = f"{item.type}{_default(item)}\n{meaning}"
        text += f"\n{_listed(item.registry)}" if item.registry else ""
        text += "".join(f"\n  of {giver}: {', '.join(names)}" for giver, names in metrics_of(item).items())
        alike.setdefault(text, []).append(owner_of(entry))
    return "\n".join(f"{key}: {text}\n  used by {', '.join(owners)}" for text, owners in alike.items())
