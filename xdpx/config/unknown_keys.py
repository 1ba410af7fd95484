"""Faults for keys that no class of the run declares, with the nearest key or the module that they belong to."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from typing import Any

from xdpx.config import catalogue, synonyms
from xdpx.config.catalogue import declarations_by_key, kinds_below, owner_of, reachable_entries, reachable_kinds
from xdpx.config.faults import Fault, FaultCode, Origin, did_you_mean, first_few, nearest
from xdpx.config.selection import Selection

SPECIAL_KEYS = ("__parent__", "__def__", "__ignore__")
OTHER_COMMAND: FaultCode = "other_command"


def unknown_keys(
    selection: Selection,
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    referred: Container[str] = frozenset(),
) -> list[Fault]:
    """Return a fault for every key that no class of the run declares.

    For a key used in `${key}` the remedy is to make it a macro. Keys of a kind whose class could not be
    selected are skipped, since they may be correct. A config for another command gets a single fault that says so.
    """
    known = {key for key, _, _ in selection.declared()}
    unknown = [key for key in values if key not in known]
    if not unknown:
        return []
    mistaken = _other_command(selection, unknown, len(values) - len(unknown))
    if mistaken:
        return [mistaken]
    faults = []
    direct = [entry for kind in selection.open_kinds for entry in catalogue.entries(kind)]
    may_be_right = _owners([*selection.open_kinds, *kinds_below(direct)])
    for key in unknown:
        if key not in may_be_right:
            problem, remedy, foreign = _describe(key, known, selection)
            if key in referred and not foreign:
                remedy = f"${{{key}}} refers to it: write it in `__def__`, or __def__.{key}=... on the command line."
            faults.append(Fault(key, problem, remedy, origins.get(key), "foreign_key" if foreign else ""))
    return faults


def _other_command(selection: Selection, unknown: list[str], num_known: int) -> Fault | None:
    """Return a fault if at least half of the keys are unknown, and another command knows 80 % of these; else None."""
    here = selection.classes[0].entry.name
    if len(unknown) < max(4, num_known):
        return None
    taken = {
        command: [key for key in unknown if key in declarations_by_key(reachable_entries(command))]
        for command in (entry.name for entry in catalogue.entries("command"))
        if command != here
    }
    best = max(taken, key=lambda command: len(taken[command]))
    if len(taken[best]) < 0.8 * len(unknown):
        return None
    examples = ", ".join(taken[best][:3])
    problem = f"looks like one for {best}: {len(taken[best])} of its keys belong there ({examples}, ...)."
    return Fault("config", problem, f"Did you mean {best} instead of {here}?", code=OTHER_COMMAND)


def _owners(kinds: list[str]) -> dict[str, list[str]]:
    """Return {key: ["model re2", ...]} for all classes of these kinds."""
    owners: dict[str, list[str]] = {}
    for kind in kinds:
        for entry in catalogue.entries(kind):
            for declaration in entry.parameters:
                owners.setdefault(declaration.key, []).append(owner_of(entry))
    return owners


def _describe(key: str, known: set[str], selection: Selection) -> tuple[str, str, bool]:
    """Return (problem, remedy, whether another module declares the key)."""
    command = selection.classes[0].entry.name
    if key.startswith("__"):
        remedy = did_you_mean(key, SPECIAL_KEYS, f"There are {', '.join(SPECIAL_KEYS)}.")
        return "no such special key.", remedy, False
    used = list(dict.fromkeys(one.kind for one in selection.classes if one.kind != "command"))
    owners = _owners(used)
    if key in owners:
        kinds = {owner.partition(" ")[0] for owner in owners[key]}
        here = ", ".join(str(one) for one in selection.classes if one.kind in kinds)
        return f"belongs to {first_few(owners[key], 3)};", f"this run uses {here}. Remove it or change that.", True
    others = _owners(catalogue.kinds())
    if key in others:
        of_the_run = f"To override the run's own, write extra_config: {{ {key}: ... }}; or remove it."
        remedy = of_the_run if "extra_config" in known else "Remove it."
        return f"belongs to {first_few(others[key], 3)};", f"{command} does not use it. {remedy}", True
    called = synonyms.remedy(key, known)
    if called:
        return f"no such key in {command}.", called, False
    usable = _owners(reachable_kinds(command))
    called = synonyms.name_here(key, usable)
    # The guide's samples use vocab: and target_map:; by spelling alone, vocab_size would be nearer.
    near = "" if called else f"{key}_file" if f"{key}_file" in known else nearest(key, known)
    if near:
        return f"no such key in {command}.", f"Did you mean '{near}'?", False
    if called:
        return f"no such key in {command}.", f"{synonyms.remedy(key, usable)} ({first_few(usable[called], 3)})", False
    near = nearest(key, usable)
    if near:
        return f"no such key in {command}.", f"Did you mean '{near}' (of {first_few(usable[near], 3)})?", False
    return f"no such key in {command}.", f"Remove it; `{command} --help` lists the keys.", False


def slip_of(key: str, inherited: Collection[str]) -> tuple[str, str] | None:
    """Return (problem, remedy) for a name in `__ignore__` that no parent has; None if it is that of a key.

    A key behind a prefix, as parents have with `path >> prefix`, is one, too.
    """
    owners = _owners(catalogue.kinds())
    words = key.split("_")
    if any("_".join(words[start:]) in owners for start in range(len(words))):
        return None
    called = synonyms.remedy(key, inherited)
    return f"'{key}' is neither inherited nor a key.", called or did_you_mean(key, inherited, "Remove it.")


def unlisted(key: str, known: Collection[str], command: str) -> Fault:
    """Return a fault for a key that a command which writes configs does not know."""
    guess = did_you_mean(key, known, f"`x-train --help` lists the keys; {command} takes the keys of all commands.")
    return Fault(key, f"no such key in {command}.", synonyms.remedy(key, known) or guess)
