"""Check the raw values of one run, convert them to their types and add defaults. Faults are collected, not raised."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdpx.config import catalogue, data_keys
from xdpx.config.declarations import Declaration
from xdpx.config.faults import Fault, Origin
from xdpx.config.hints import IN_QUOTES, shown
from xdpx.config.metrics import unknown_metrics
from xdpx.config.overrides import ORIGIN
from xdpx.config.relative import is_relative, resolve
from xdpx.config.selection import Selected, Selection, condition_holds, select
from xdpx.config.synonyms import with_own_words
from xdpx.config.unknown_keys import OTHER_COMMAND, unknown_keys
from xdpx.config.value_types import Mismatch

if TYPE_CHECKING:
    from xdpx.config.parameters import Parameters

_IGNORED_KEYS = frozenset({"$schema", "__version__"})
"""Keys that are not parameters: `$schema` is for editors, `__version__` marks a meta.hjson."""


@dataclass
class Draft:
    """One run while it is checked.

    Attributes:
        selection: the classes that the run uses.
        raw: values as read from the config.
        origins: where each was written.
        meta_keys: keys that come from a meta.hjson.
        from_data: keys of which at least a part comes from a meta.hjson.
        from_machine: keys whose value a built-in name gave, such as `${apex}`.
        values: final values, in the end only of keys that are not switched off.
        changed: keys whose value is not the default.
        relative: key -> relative number, such as `@{batch_size:64}/50`.
        faults: found so far.
        faulty: keys with a fault.
    """

    selection: Selection
    raw: Mapping[str, Any]
    origins: Mapping[str, Origin]
    meta_keys: frozenset[str]
    from_data: frozenset[str] = frozenset()
    from_machine: frozenset[str] = frozenset()
    values: dict[str, Any] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    relative: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    faulty: set[str] = field(default_factory=set)

    def fault(self, key: str, problem: str, remedy: str = "", **more: Any) -> None:
        """Add a fault of a key, with the place where its value was written."""
        self.faulty.add(key)
        self.faults.append(Fault(key, problem, remedy, self.origins.get(key), **more))

    def including(self, faults: Iterable[Fault]) -> Draft:
        """Put the faults found while reading before the others, and return self.

        A key with such a fault, or with an unresolved reference in its text, may hold only a placeholder; so other
        faults of these keys are dropped.
        """
        earlier = list(faults)
        unread = {re.split(r"[.\[]", fault.key)[0] for fault in earlier}
        unread |= {key for key, value in self.raw.items() if earlier and isinstance(value, str) and "${" in value}
        unread &= {key for key, _, _ in self.selection.declared()}
        self.faults = [*earlier, *(fault for fault in self.faults if fault.key not in unread)]
        self.faulty.update(unread, (fault.key for fault in earlier))
        return self

    def declarations(self) -> dict[str, list[tuple[Selected, Declaration]]]:
        """Return key -> [(class, declaration), ...], those of the command first."""
        table: dict[str, list[tuple[Selected, Declaration]]] = {}
        for key, one, declaration in self.selection.declared():
            table.setdefault(key, []).append((one, declaration))
        return table


def check(
    command: str,
    raw: Mapping[str, Any],
    *,
    origins: Mapping[str, Origin],
    meta_keys: frozenset[str],
    from_data: frozenset[str] = frozenset(),
    from_machine: frozenset[str] = frozenset(),
    referred: frozenset[str] = frozenset(),
    strict: bool = True,
) -> Draft:
    """Check one run against the declarations of its classes: names, keys, types, bounds, switches, relative numbers.

    Args:
        command: the registered name of the command, e.g. `x-train`.
        raw: flat values as read from the config.
        origins: where each was written.
        meta_keys: keys that come from a meta.hjson; those that no class declares are dropped.
        from_data: keys of which at least a part comes from one.
        from_machine: keys whose value a built-in name gave: where they switch others off, these may still be written.
        referred: names used in `${name}`; an undeclared key among them is a macro in the wrong place.
        strict: whether undeclared keys are faults; otherwise they are dropped.

    Raises:
        ConfigError: there is no such command.
    """
    given = with_own_words({key: value for key, value in raw.items() if key not in _IGNORED_KEYS})
    selection = select(command, given, origins)
    draft = Draft(selection, given, origins, meta_keys, from_data, from_machine, faults=list(selection.faults))
    draft.faulty.update(fault.key for fault in selection.faults)
    table = draft.declarations()
    for key, declared in table.items():
        _settle(draft, key, declared)
    _resolve_relative(draft, table)
    _drop_switched_off(draft, table, strict=strict)
    for key, problem, remedy in unknown_metrics(selection, draft.values):
        draft.fault(key, problem, remedy)
    wanted = {key: value for key, value in given.items() if key not in meta_keys} if strict else {}
    unwanted = unknown_keys(selection, wanted, origins, referred)
    if not any(fault.code == OTHER_COMMAND for fault in unwanted):
        _report_missing(draft, table, suggested=" ".join(fault.remedy for fault in unwanted))
    draft.faults.extend(unwanted)
    return draft


def _settle(draft: Draft, key: str, declared: list[tuple[Selected, Declaration]]) -> None:
    """Set the value of one key: the given one, checked, or a default that all its declarations accept."""
    source = _source_of(draft, key, declared)
    if source is None:
        default = _default(declared)
        if default is not None:
            draft.values[key] = deepcopy(default[0])
        return
    value = draft.raw[source]
    if source in draft.from_data:
        problem = data_keys.refusal(declared, value)
        if problem:
            draft.fault(key, problem, data_keys.REMEDY)
            return
    if is_relative(value) and any(item.relative for _, item in declared):
        draft.relative[key] = value
        return
    accepted = _accept(draft, key, value, declared)
    if accepted is not None:
        draft.values[key] = accepted[0]
        _mark_changed(draft, key, declared)


def _mark_changed(draft: Draft, key: str, declared: list[tuple[Selected, Declaration]]) -> None:
    default = _default(declared)
    if default is None or not _same(draft.values[key], default[0]):
        draft.changed.add(key)


def _same(value: object, other: object) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _source_of(draft: Draft, key: str, declared: list[tuple[Selected, Declaration]]) -> str | None:
    """Return the key of the config that holds the value, None if not set. Keys from a meta.hjson match any prefix."""
    if key in draft.raw:
        return key
    plain = declared[0][1].key
    return plain if plain in draft.meta_keys and plain in draft.raw else None


def _default(declared: list[tuple[Selected, Declaration]]) -> tuple[Any] | None:
    """Return the first default that every declaration of a key accepts, in a 1-tuple; else None.

    If the first class (the command comes before the modules that it selects) requires the key, there is no default.
    """
    if declared[0][1].required:
        return None
    for _, declaration in declared:
        if not declaration.required and all(_accepts(other, declaration.default) for _, other in declared):
            return (declaration.default,)
    return None


def _accepts(declaration: Declaration, value: object) -> bool:
    if not declaration.required and declaration.default is value:
        return True
    try:
        return not declaration.out_of_bounds(declaration.value_type.accept(value))
    except Mismatch:
        return False


def _accept(draft: Draft, key: str, value: object, declared: list[tuple[Selected, Declaration]]) -> tuple[Any] | None:
    """Return the value converted by its first declaration, in a 1-tuple; None if any declaration refuses it."""
    results = []
    for one, declaration in declared:
        try:
            accepted = declaration.value_type.accept(value)
        except Mismatch as mismatch:
            _report_mismatch(draft, key, mismatch, declaration, one if len(declared) > 1 else None)
            return None
        problem = declaration.out_of_bounds(value)
        if problem:
            draft.fault(key, problem)
            return None
        results.append(accepted)
    return (results[0],)


def _report_mismatch(
    draft: Draft, key: str, mismatch: Mismatch, declaration: Declaration, one: Selected | None
) -> None:
    if key in draft.faulty:  # an unregistered name has been reported already
        return
    remedy = mismatch.remedy
    if declaration.registry:
        remedy = _names(declaration)
    if declaration.required:
        remedy = remedy.replace(", or remove the key to get its default", "")
    if draft.origins.get(key) == ORIGIN and IN_QUOTES in remedy:  # the shell takes one pair of quotes away
        before, _, text = remedy.partition(IN_QUOTES)
        remedy = f"""{before}put it in two pairs of quotes, "{text.removesuffix(".")}"."""
    if one is not None and one.kind != "command":
        remedy = f"{remedy} ({one} needs it.)"
    draft.fault(key, mismatch.problem, remedy)


def _names(declaration: Declaration) -> str:
    return f"Name one of: {', '.join(catalogue.names(str(declaration.registry)))}."


def _resolve_relative(draft: Draft, table: Mapping[str, list[tuple[Selected, Declaration]]]) -> None:
    """Convert each relative number, such as `@{batch_size:64}/50`, to a number, and check that like a written one."""
    if not draft.relative:
        return
    for key, text in draft.relative.items():
        direct = any(item.relative == "direct" for _, item in table[key])
        try:
            known = {**draft.relative, **draft.values}
            value = resolve(text, known, "direct" if direct else "inverse")
        except ValueError as error:
            named = [other for other in table if f"@{{{other}:" in text and other not in known]
            if named:  # the key referred to is missing or wrong, which is reported there
                draft.faulty.add(key)
            elif faults := getattr(error, "faults", ()):
                draft.fault(key, faults[0].problem, faults[0].remedy)
            else:
                draft.fault(key, str(error), "")
            continue
        accepted = _accept(draft, key, value, table[key])
        if accepted is not None:
            draft.values[key] = accepted[0]
            _mark_changed(draft, key, table[key])


def _drop_switched_off(draft: Draft, table: Mapping[str, list[tuple[Selected, Declaration]]], *, strict: bool) -> None:
    """Remove every key whose condition does not hold; if `strict` and the config sets it nevertheless, add a fault.

    A key that is off on this machine only is no fault: with `fp16: ${apex}`, the other keys of fp16 are for machines
    that have it.
    """
    for key, declared in table.items():
        if any(_in_force(draft, one, declaration, table) for one, declaration in declared):
            continue
        draft.values.pop(key, None)
        draft.changed.discard(key)
        if any(_off_here_alone(draft, one, declaration, table) for one, declaration in declared):
            continue
        if strict and key in draft.raw and key not in draft.meta_keys and key not in draft.faulty:
            draft.fault(key, *_switched_off(draft, *declared[0]), code="conflict")


def _in_force(
    draft: Draft,
    one: Selected,
    declaration: Declaration,
    table: Mapping[str, list[tuple[Selected, Declaration]]],
    depth: int = 0,
) -> bool:
    if declaration.when is None or depth > len(table):
        return True
    key = _own_or_shared(one, declaration.when[0], table)
    if key in draft.faulty or key not in table:
        return True  # the switch itself is wrong or unknown: report only that
    value = draft.values.get(key)
    return condition_holds(declaration.when, value) and any(
        _in_force(draft, owner, theirs, table, depth + 1) for owner, theirs in table[key]
    )


def _own_or_shared(one: Selected, key: str, known: Container[str]) -> str:
    """Return a key with the prefix of a class, such as `teacher_`, if it is known so; else the key itself."""
    return one.prefix + key if one.prefix + key in known else key


def _off_here_alone(
    draft: Draft,
    one: Selected,
    declaration: Declaration,
    table: Mapping[str, list[tuple[Selected, Declaration]]],
    depth: int = 0,
) -> bool:
    """Return whether all that switches a key off is a value that a built-in name gave on this machine."""
    if declaration.when is None or depth > len(table):
        return False
    key = _own_or_shared(one, declaration.when[0], table)
    if key in draft.from_machine or key not in table:
        return key in draft.from_machine
    default = _default(table[key])
    value = draft.raw.get(key, default[0] if default else None)  # no longer in `values` if it is off itself
    return condition_holds(declaration.when, value) and any(
        _off_here_alone(draft, owner, theirs, table, depth + 1) for owner, theirs in table[key]
    )


def _switched_off(draft: Draft, one: Selected, declaration: Declaration) -> tuple[str, str]:
    key, operator, wanted = declaration.when or ("", "is", None)
    key = _own_or_shared(one, key, draft.values)
    value = draft.values.get(key)
    problem = (
        f"is switched off, because {key} is {shown(value)}." if key in draft.values else f"is switched off with {key}."
    )
    return problem, f"Set {key} {_needed(operator, wanted)}, or remove this key (a parent's with __ignore__)."


def _needed(operator: str, wanted: object) -> str:
    words = {"is": "to", "is not": "to something other than", "in": "to one of", ">": "above", "<": "below"}
    return f"{words[operator]} {shown(wanted)}"


def _report_missing(draft: Draft, table: Mapping[str, list[tuple[Selected, Declaration]]], *, suggested: str) -> None:
    """Report each required key without a value, unless a remedy already suggests it for a misspelt key."""
    for key, declared in table.items():
        asking = [(one, item) for one, item in declared if item.required and _in_force(draft, one, item, table)]
        if not asking or key in draft.values or key in draft.faulty or f"'{key}'" in suggested:
            continue
        one, declaration = asking[0]
        meaning = declaration.doc.rstrip(".")
        wanted = _names(declaration) if declaration.registry else f"Use {declaration.value_type.describe()}."
        remedy = f"{one} needs it: {meaning}. {wanted}"
        draft.fault(key, "is missing.", remedy, code="missing_key")


def typed(parameters: type[Parameters], prefix: str, values: Mapping[str, Any]) -> Parameters:
    """Return the parameters of one class, taken from the flat values of a run.

    A parameter that is switched off has its default; a required one that is switched off is None, and then the class's
    validators do not run.

    Raises:
        pydantic.ValidationError: a validator of the class refuses the values.
        LookupError: a required value is missing, because the catalogue is older than the class.
    """
    from xdpx.config.declarations import declarations_of

    declarations = declarations_of(parameters)
    mine = {item.key: values[prefix + item.key] for item in declarations if prefix + item.key in values}
    absent = {item.key: None for item in declarations if item.required and item.key not in mine}
    unknown = [item.key for item in declarations if item.key in absent and not item.when]
    if unknown:
        raise LookupError(f"{parameters.__qualname__}: no value for {', '.join(unknown)}. Run `make catalogue`.")
    return parameters.model_construct(**mine, **absent) if absent else parameters.model_validate(mine)


def conflicts(draft: Draft, *, unruled: frozenset[str] = frozenset()) -> Iterator[Fault]:
    """Yield the conflicts between values that classes report; classes with missing or faulty keys are skipped.

    Args:
        draft: a run that was checked.
        unruled: kinds of classes to skip.
    """
    for one in draft.selection.classes:
        if one.kind in unruled:
            continue
        keys = {one.prefix + item.key: item for item in one.entry.parameters}
        missing = any(item.required and not item.when and key not in draft.values for key, item in keys.items())
        if one.entry.conflicts and not missing and not keys.keys() & draft.faulty:
            yield from _conflicts_of(draft, one)


def _conflicts_of(draft: Draft, one: Selected) -> Iterator[Fault]:
    from pydantic import ValidationError

    try:
        found = typed(catalogue.conflict_rules(one.entry), one.prefix, draft.values).conflicts()
    except ValidationError as error:
        found = [(str(item["loc"][0]) if item["loc"] else str(one), item["msg"]) for item in error.errors()]
    for key, problem in found:
        full = one.prefix + key
        yield Fault(full, problem, "", draft.origins.get(full), "conflict")
