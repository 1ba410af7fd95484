"""JSON schemas of the configs of a command, generated from the declarations, so that editors can complete keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from xdpx.config import catalogue
from xdpx.config.catalogue import declarations_by_key, owner_of, reachable_entries
from xdpx.config.declarations import Declaration, Entry
from xdpx.config.metrics import metrics_of
from xdpx.config.reading import PLATFORM_KEYS

REFERENCE = {"type": "string", "pattern": r"\$\{[^}]+\}"}
_NUMBERS = frozenset({"integer", "number"})
RELATIVE = {"type": "string", "pattern": r"^@\{[^:{}]+:[^{}]+\}\s*/"}

SPECIAL: dict[str, Any] = {
    "__parent__": {
        "description": "Configs to inherit from: a path, a dict, or a list of paths, dicts and loops (lists of dicts).",
        "anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}],
    },
    "__def__": {"description": "Names for ${...} that are not parameters.", "type": "object"},
    "__ignore__": {
        "description": "Keys of parents to leave out.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    },
    "$schema": {"type": "string"},
    **{key: {"description": "What the run needs of the machine it is submitted to."} for key in PLATFORM_KEYS},
}


def schema(command: str) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of one run of a command; a file may also hold a list of runs."""
    table = declarations_by_key(reachable_entries(command))
    # Selectors such as `teacher_model` introduce a prefix for keys.
    selectors = {(key, item.registry) for key, declared in table.items() for _, item in declared if item.registry}
    prefixes = sorted(f"^{key.removesuffix(kind)}." for key, kind in selectors if key.endswith(f"_{kind}"))
    run = {
        "type": "object",
        "properties": {**SPECIAL, **{key: _property(declared) for key, declared in sorted(table.items())}},
        "additionalProperties": False,
        "patternProperties": {prefix: {} for prefix in prefixes},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"xdpx {command}",
        "description": catalogue.entry("command", command).doc,
        "if": {"type": "array"},
        "then": {"items": {"$ref": "#/$defs/run"}},
        "else": {"$ref": "#/$defs/run"},
        "$defs": {"run": run},
    }


def schema_text(command: str) -> str:
    """Return the schema of a command as JSON."""
    return json.dumps(schema(command), indent=2, ensure_ascii=False)


def _property(declared: Sequence[tuple[Entry, Declaration]]) -> dict[str, Any]:
    """Return the schema of one key: anything that one of its classes accepts, or a reference."""
    kinds: list[dict[str, Any]] = []
    for _, item in declared:
        kinds.extend(one for one in [*_kinds(item), *([RELATIVE] if item.relative else [])] if one not in kinds)
    first = declared[0][1]
    owners = ", ".join(dict.fromkeys(owner_of(entry) for entry, _ in declared))
    described: dict[str, Any] = {"description": f"{first.doc} ({owners})", "anyOf": [*kinds, REFERENCE]}
    if not first.required:
        described["default"] = first.default
    return described


def _kinds(item: Declaration) -> list[dict[str, Any]]:
    if item.registry:
        names: list[dict[str, Any]] = [{"enum": catalogue.names(item.registry)}]
        return [*names, {"type": "null"}] if "None" in item.type else names
    if item.metric_of:  # for completion only; a user's own class may have other metrics
        known = {name for names in metrics_of(item).values() for name in names}
        kind = item.value_type.json_schema()
        if "items" in kind:
            return [{**kind, "items": {"anyOf": [{"enum": sorted(known)}, kind["items"], REFERENCE]}}]
        return [{"enum": sorted(known)}, kind]
    kind = item.value_type.json_schema()
    parts = kind.get("anyOf", [kind])
    return [_with_references({**part, **_bounds(item)} if part.get("type") in _NUMBERS else part) for part in parts]


def _with_references(part: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which the items of a list may also be references."""
    return {**part, "items": {"anyOf": [part["items"], REFERENCE]}} if "items" in part else part


def _bounds(item: Declaration) -> dict[str, Any]:
    names = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
    return {word: getattr(item, name) for name, word in names.items() if getattr(item, name) is not None}
