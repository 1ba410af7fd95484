"""`__parent__`: inheritance of configs from other files, and loops that expand one config into several runs.

Priority: the child wins; a later parent overrides an earlier one; ancestors of a parent come right below it.
Loops: the one listed first varies fastest.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from xdpx.config.config_files import VERSION, ConfigFiles, kind_of, resolve_path, shown
from xdpx.config.faults import Fault, Origin, first_few
from xdpx.config.located import Located, Table, merge
from xdpx.config.source_text import excerpt
from xdpx.config.substitution import DEFINITIONS, Substitution, macros_of, references

PARENT = "__parent__"
IGNORE = "__ignore__"
MAX_RUNS = 10_000
"""Maximum number of runs of one config; more is probably a mistake in the loops."""
MAX_GENERATIONS = 64
"""Maximum depth of parents of parents."""

_PREFIXED = re.compile(r"(.*?)\s*>>\s*(.*)", re.DOTALL)
_WEB = re.compile(r"https?://[^/]*/", re.IGNORECASE)
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NAME_INSIDE = re.compile(r"(\$?)\$\{([^${}]+)\}|@\{\s*([^:{}]+?)\s*:")


class TooManyRuns(Exception):
    """The loops expand to more than `MAX_RUNS` runs."""


@dataclass(frozen=True)
class ParentPlace:
    """The place of a dict in the inheritance.

    Attributes:
        file: that contains it.
        chain: paths of the files from the run's config to this one.
        above: values that override it.
        below: values that references in paths of parents may also use, with the lowest priority.
    """

    file: str
    chain: tuple[str, ...]
    above: Table
    below: Table


class _Ancestor(NamedTuple):
    """One item of a `__parent__` list: the choices of a loop, or a single parent."""

    choices: list[Located]


class Family:
    """Expands dicts with parents into one merged table per run. Faults are added to its `ConfigFiles`."""

    def __init__(self, files: ConfigFiles) -> None:
        self.files = files

    def runs(self, table: Table, place: ParentPlace) -> list[Table]:
        """Return the merged tables that a dict expands to, in the order of the runs.

        Raises:
            TooManyRuns: there are more than `MAX_RUNS`.
        """
        own = {key: located for key, located in table.items() if key not in {PARENT, IGNORE}}
        ancestors = self._ancestors(table.get(PARENT), place)
        ignored = self._ignored(table.get(IGNORE))
        chosen: list[dict[int, Table]] = [{}]
        for _ in ancestors:
            chosen = [one for partial in chosen for one in self._extended(partial, ancestors, own, place)]
            if len(chosen) > MAX_RUNS:
                raise TooManyRuns(f"the loops make more than {MAX_RUNS:,} runs.")
        if ignored and ancestors and not self.files.fatal:
            self._tell_of_slips(ignored, {key for partial in chosen for parent in partial.values() for key in parent})
        return [_joined(own, partial, ignored) for partial in chosen]

    def _extended(
        self, partial: dict[int, Table], ancestors: list[_Ancestor], own: Table, place: ParentPlace
    ) -> list[dict[int, Table]]:
        """Add one more ancestor to those already chosen: the last listed whose path can be resolved by now."""
        waiting = [index for index in reversed(range(len(ancestors))) if index not in partial]
        higher = merge(place.above, own, *(partial[index] for index in sorted(partial, reverse=True)))
        scope = merge(higher, place.below)
        index = next((index for index in waiting if _can_be_told(ancestors[index], scope)), waiting[0])
        inner = replace(place, above=higher)
        tables = [found for choice in ancestors[index].choices for found in self._choice(choice, inner)]
        return [{**partial, index: found} for found in tables or [{}]]

    # ---------------------------------------------------------------- one parent

    def _choice(self, choice: Located, place: ParentPlace) -> list[Table]:
        if isinstance(choice.value, dict):
            return self.runs(choice.value, place)
        match = _PREFIXED.fullmatch(choice.value)
        path_text, prefix_text = match.groups() if match else (choice.value, "")
        path = self._text(replace(choice, value=path_text.rstrip() if match else path_text), place)
        prefix = self._text(replace(choice, value=prefix_text.strip()), place)
        if path is None or prefix is None:
            return []
        if match and not _PREFIX.fullmatch(prefix):
            self._fault(choice, f"{excerpt(prefix)} cannot be put before a key.", "Write `path >> name_`.")
            return []
        return self._file(path, choice.origin, prefix, place)

    def _text(self, located: Located, place: ParentPlace) -> str | None:
        """Resolve the references of a parent's path; None, with a fault, if one is unknown."""
        substitution = Substitution(merge(place.above, place.below))
        value = substitution.text(located, PARENT).value
        self.files.referred |= substitution.names
        self.files.fatal.extend(substitution.faults)
        if substitution.faults:
            return None
        if not isinstance(value, str):
            self._fault(located, f"the path becomes {kind_of(value)}.", "A path must be a text.")
            return None
        return value

    def _file(self, path: str, origin: Origin, prefix: str, place: ParentPlace) -> list[Table]:
        path = resolve_path(path, beside=place.file)
        if self._leads_elsewhere(path, origin, place):
            return []
        found = self.files.find(path, origin, PARENT)
        if found is None or self._closes_a_circle(found, origin, place):
            return []
        inner = ParentPlace(found, (*place.chain, found), place.above, place.below)
        if prefix:
            outside = merge(place.above, place.below)
            inner = replace(inner, above=_without_prefix(place.above, prefix), below=outside)
        tables = [run for table in self.files.tables(found) for run in self.runs(table, inner)]
        return [_with_prefix(table, prefix) for table in tables] if prefix else tables

    def _leads_elsewhere(self, path: str, origin: Origin, place: ParentPlace) -> bool:
        """Report a parent on a web server that is named by another parent (not by the run's config) elsewhere."""
        server = _WEB.match(path)
        if server is None or len(place.chain) < 2 or place.file.startswith(server[0]):
            return False
        remedy = f"If you trust it, name it in {shown(place.chain[0])} itself."
        self.files.fatal.append(Fault(PARENT, f"{excerpt(path)} is on the network.", remedy, origin))
        return True

    def _closes_a_circle(self, path: str, origin: Origin, place: ParentPlace) -> bool:
        if path in place.chain:
            ring = [*place.chain[place.chain.index(path) :], path]
            problem = f"is its own ancestor: {' -> '.join(map(shown, ring))}."
            self.files.fatal.append(Fault(PARENT, problem, "Break the cycle.", origin))
        elif len(place.chain) >= MAX_GENERATIONS:
            problem = f"is more than {MAX_GENERATIONS} generations away."
            self.files.fatal.append(Fault(PARENT, problem, "Shorten the chain.", origin))
        else:
            return False
        return True

    # ---------------------------------------------------------------- validation

    def _ancestors(self, written: Located | None, place: ParentPlace) -> list[_Ancestor]:
        """Return the ancestors in a `__parent__`, after checking its form."""
        if written is None or written.value is None:
            return []
        items = written.value if isinstance(written.value, list) else [written]
        self._tell_of_flat_loop([item for item in items if isinstance(item.value, dict)])
        return [_Ancestor(self._checked(item)) for item in items]

    def _tell_of_flat_loop(self, tables: Sequence[Located]) -> None:
        """Report a table among the parents that a later one overrides in all its keys: a loop without its brackets."""
        for table, later in pairwise(tables):
            if table.value and PARENT not in table.value and _overrides(later, table):
                problem = f"{first_few(table.value, 3)} of this table is overridden by that of the next one."
                fault = Fault(PARENT, problem, "For a run of each, put them into [ ]: a loop.", table.origin)
                if fault not in self.files.faults:  # parents are expanded once for each combination of loops
                    self.files.faults.append(fault)

    def _checked(self, item: Located) -> list[Located]:
        choices = item.value if isinstance(item.value, list) else [item]
        wrong = [choice for choice in choices if not isinstance(choice.value, (str, dict))]
        for choice in wrong:
            self._fault(choice, f"holds {kind_of(choice.value)}.", "Use paths, dicts, and lists of dicts (loops).")
        if not choices:
            self._fault(item, "has an empty loop, which makes no runs.", "Remove it or fill it.")
        return [choice for choice in choices if choice not in wrong]

    def _ignored(self, written: Located | None) -> dict[str, Origin]:
        """Return the keys to ignore, with the place of each, after checking their form."""
        if written is None:
            return {}
        items = written.value if isinstance(written.value, list) else [written]
        for item in items:
            if not isinstance(item.value, str):
                problem = f"holds {kind_of(item.value)}."
                self.files.fatal.append(Fault(IGNORE, problem, "Write a key, or a list of keys.", item.origin))
        return {item.value: item.origin for item in items if isinstance(item.value, str)}

    def _tell_of_slips(self, ignored: Mapping[str, Origin], inherited: Set[str]) -> None:
        """Report each ignored name that no parent has and that is no key: the key meant would stay inherited."""
        for key in (key for key in ignored if key not in inherited):
            from xdpx.config.unknown_keys import slip_of  # here: only after a slip, and slow to import

            slip = slip_of(key, inherited)
            fault = Fault(IGNORE, *slip, origin=ignored[key]) if slip else None
            if fault and fault not in self.files.faults:  # parents are expanded once for each combination of loops
                self.files.faults.append(fault)

    def _fault(self, located: Located, problem: str, remedy: str) -> None:
        self.files.fatal.append(Fault(PARENT, problem, remedy, located.origin))


def _overrides(higher: Located, lower: Located) -> bool:
    """Return whether nothing of a table is left beneath another; tables within them are merged."""
    if not (isinstance(higher.value, dict) and isinstance(lower.value, dict)):
        return True
    return all(key in higher.value and _overrides(higher.value[key], low) for key, low in lower.value.items())


def _joined(own: Table, chosen: dict[int, Table], ignored: Container[str]) -> Table:
    """Return the child merged with the chosen parents, later ones first, without the parents' keys to ignore."""
    parents = [chosen[index] for index in sorted(chosen, reverse=True)]
    return merge(own, *({key: value for key, value in parent.items() if key not in ignored} for parent in parents))


def _can_be_told(ancestor: _Ancestor, scope: Table) -> bool:
    """Return whether every path of an ancestor can be resolved with the values merged so far."""
    paths = [choice for choice in ancestor.choices if isinstance(choice.value, str) and references(choice.value)]
    if not paths:
        return True
    substitution = Substitution(scope)
    for path in paths:
        substitution.text(path, PARENT)
    return not substitution.faults


def _without_prefix(table: Table, prefix: str) -> Table:
    """Return the keys that override those of a prefixed parent, by their names inside it."""
    inner = {key.removeprefix(prefix): located for key, located in table.items() if key.startswith(prefix)}
    definitions = table.get(DEFINITIONS)
    if definitions and isinstance(definitions.value, dict):
        inner[DEFINITIONS] = replace(definitions, value=_without_prefix(definitions.value, prefix))
    return inner


def _with_prefix(table: Table, prefix: str) -> Table:
    """Return a parent's table with `prefix` before every key and every reference to one of them."""
    definitions, macros = table.get(DEFINITIONS), macros_of(table)
    names = {*macros, *(key for key in table if not key.startswith("__"))}
    prefixed: Table = {}
    for key, located in table.items():
        if key not in {DEFINITIONS, VERSION}:
            name = prefix + key if key in names else key
            prefixed[name] = _renamed(located, names, prefix)
    if definitions and macros:
        inner = {prefix + key: _renamed(located, names, prefix) for key, located in macros.items()}
        prefixed[DEFINITIONS] = replace(definitions, value=inner)
    return prefixed


def _renamed(located: Located, names: set[str], prefix: str) -> Located:
    value = located.value
    if located.from_meta:
        return located
    if isinstance(value, str):
        return replace(located, value=_with_renamed_references(value, names, prefix))
    if isinstance(value, list):
        return replace(located, value=[_renamed(item, names, prefix) for item in value])
    if isinstance(value, dict):
        inner = {
            _with_renamed_references(key, names, prefix): _renamed(item, names, prefix) for key, item in value.items()
        }
        return replace(located, value=inner)
    return located


def _with_renamed_references(text: str, names: set[str], prefix: str) -> str:
    def rename(match: re.Match[str]) -> str:
        escaped, name, relative = match.groups()
        root = (name or relative).split(".")[0]
        if escaped or root not in names:
            return match[0]
        return f"${{{prefix}{name}}}" if name else f"@{{{prefix}{relative}:"

    return _NAME_INSIDE.sub(rename, text)
