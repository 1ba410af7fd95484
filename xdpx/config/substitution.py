"""Substitution of `${name}`: the typed value if it is the whole text, else the value as part of the text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from xdpx.config.builtin_names import BUILTIN_NAMES
from xdpx.config.config_files import kind_of
from xdpx.config.faults import Fault, Origin, nearest
from xdpx.config.located import Located, Table
from xdpx.config.source_text import short_path

DEFINITIONS = "__def__"
MAX_STEPS = 120
"""Maximum depth of nested values and references; Python's stack does not allow much more."""
MAX_NESTING = 16
"""Maximum nesting of `${a_${b}}`."""
MAX_TEXT = 10_000_000
"""Maximum total length of substituted texts of a run, in characters."""

MAX_SUGGESTIONS = 10
"""Number of unknown names with a suggestion; searching for the nearest name takes time."""

_MARK = re.compile(r"\$\$\{|\$\{|\}")


class _Reference(NamedTuple):
    """A `${...}`; its name is itself a template, as in `${lr_${task}}`."""

    name: list[str | _Reference]


Template: TypeAlias = "list[str | _Reference]"


class _Unresolved(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def macros_of(table: Table) -> Table:
    """Return what a table defines in `__def__`."""
    definitions = table.get(DEFINITIONS)
    return definitions.value if definitions and isinstance(definitions.value, dict) else {}


def references(text: str) -> bool:
    """Return whether a text contains a reference (or an escaped `$${`)."""
    return "${" in text


class Substitution:
    """Resolves names in `__def__`, then among the keys of `table`, then among the built-ins; collects `faults`.

    Attributes:
        names: all names used in `${name}` so far.
    """

    def __init__(self, table: Table) -> None:
        self._definitions = macros_of(table)
        self._keys = {key: located for key, located in table.items() if key != DEFINITIONS}
        self.names: set[str] = set()
        self._done: dict[str, Located] = {}
        self._steps = 0
        self._characters = 0
        self._faults: dict[Fault, None] = {}

    @property
    def faults(self) -> list[Fault]:
        """All faults so far, without duplicates."""
        return list(self._faults)

    def table(self) -> Table:
        """Return all keys with references resolved. A text that cannot be resolved is left unchanged."""
        for name in self._definitions:
            self._named(name, (), self._definitions[name].origin)
        return self._dict(self._keys, "", ())

    def text(self, located: Located, key: str) -> Located:
        """Return a value from outside of the table, with its references resolved."""
        return self._value(located, key, ())

    # ---------------------------------------------------------------- walking

    def _value(self, located: Located, path: str, chain: tuple[str, ...]) -> Located:
        value = located.value
        if located.from_meta:  # data, such as labels, are taken literally
            return located
        if isinstance(value, str):
            return self._string(located, path, chain) if references(value) else located
        if not isinstance(value, (dict, list)):
            return located
        if self._steps >= MAX_STEPS:
            return self._refuse(located, Fault(path, "is nested too deeply in references.", "", located.origin))
        self._steps += 1
        if isinstance(value, dict):
            result = replace(located, value=self._dict(value, f"{path}.", chain))
        else:
            items = [self._value(item, f"{path}[{index}]", chain) for index, item in enumerate(value)]
            result = replace(located, value=items)
        self._steps -= 1
        return result

    def _dict(self, table: Table, prefix: str, chain: tuple[str, ...]) -> Table:
        result: Table = {}
        for key, located in table.items():
            name = key if located.from_meta else self._key(key, prefix + key, located.origin, chain)
            if name in result:
                self._add(Fault(name, f"results from '{key}' and from another key.", "Rename one.", located.origin))
            if prefix or key in self._definitions:  # a macro of the same name hides a key of the run from references
                result[name] = self._value(located, prefix + key, chain)
            else:
                result[name] = self._named(key, (), located.origin)
        return result

    def _key(self, key: str, path: str, origin: Origin, chain: tuple[str, ...]) -> str:
        if not references(key):
            return key
        value = self._string(Located(key, origin), path, chain).value
        if isinstance(value, (dict, list)):
            self._add(Fault(path, f"the key becomes {kind_of(value)}.", "A key must be a text.", origin))
            return key
        return as_text(value)

    def _string(self, located: Located, path: str, chain: tuple[str, ...]) -> Located:
        if self._steps >= MAX_STEPS:
            return self._refuse(located, Fault(path, "goes through too many references.", "", located.origin))
        self._steps += 1
        try:
            template = parse(located.value)
            if len(template) == 1 and isinstance(template[0], _Reference):
                found = self._referred(self._spliced(template[0].name, chain, located), chain, located.origin)
                return replace(located, value=found.value, from_machine=found.from_machine)
            return replace(located, value=self._spliced(template, chain, located))
        except _Unresolved as error:
            fault = error.fault
            return self._refuse(
                located, replace(fault, key=short_path(fault.key or path), origin=fault.origin or located.origin)
            )
        finally:
            self._steps -= 1

    def _spliced(self, template: Template, chain: tuple[str, ...], located: Located) -> str:
        text = ""
        for index, part in enumerate(template):
            if isinstance(part, str):
                text += part
                continue
            name = self._spliced(part.name, chain, located)
            value = self._referred(name, chain, located.origin).value
            if isinstance(value, (dict, list)):
                problem = f"${{{name}}} is {kind_of(value)} and cannot be part of a text."
                raise _Unresolved(Fault("", problem, "Use it as the whole value."))
            follower = template[index + 1] if index + 1 < len(template) else ""
            text += _without_slash(as_text(value), follower)
            self._characters += len(text)
            if self._characters > MAX_TEXT:
                raise _Unresolved(Fault("", f"references expand to more than {MAX_TEXT:,} characters of text.", ""))
        return text

    # ---------------------------------------------------------------- looking up

    def _referred(self, name: str, chain: tuple[str, ...], origin: Origin) -> Located:
        self.names.add(name)
        return self._named(name, chain, origin)

    def _named(self, name: str, chain: tuple[str, ...], origin: Origin) -> Located:
        """Return the value of a name, with its own references resolved."""
        if name in self._done:
            return self._done[name]
        if name in chain:
            raise _Unresolved(_cycle(chain[chain.index(name) :], self._raw(name, origin, chain)))
        found = self._value(self._raw(name, origin, chain), name, (*chain, name))
        self._done[name] = found
        return found

    def _raw(self, name: str, origin: Origin, chain: tuple[str, ...]) -> Located:
        for table in (self._definitions, self._keys):
            found = _reach(table, name)
            if found:
                return found
        if name not in BUILTIN_NAMES:
            raise _Unresolved(self._unknown(name, chain))
        try:
            return Located(BUILTIN_NAMES[name](), origin, from_machine=True)
        except ValueError as error:
            raise _Unresolved(Fault("", f"${{{name}}} has no value here: {error}", "")) from None

    def _unknown(self, name: str, chain: tuple[str, ...]) -> Fault:
        few = len(self._faults) < MAX_SUGGESTIONS
        known = {*self._definitions, *self._keys, *BUILTIN_NAMES} - set(chain)  # names in the chain would make a cycle
        near = nearest(name, sorted(known)) if few else None
        define = "Define it in `__def__`; write $${ for a literal ${."
        remedy = f"Did you mean '${{{near}}}'? Else: {define[0].lower()}{define[1:]}" if near else define
        return Fault("", f"${{{name}}} is neither in `__def__`, nor a key, nor built in.", remedy)

    def _refuse(self, located: Located, fault: Fault) -> Located:
        self._add(fault)
        return located

    def _add(self, fault: Fault) -> None:
        self._faults[fault] = None


def parse(text: str) -> Template:
    """Return the literal parts and references of a text. `$${` is a literal `${`.

    Raises:
        _Unresolved: a `${` without `}`, or nesting beyond `MAX_NESTING`.
    """
    stack: list[Template] = [[]]
    position = 0
    for mark in _MARK.finditer(text):
        stack[-1].append(text[position : mark.start()])
        position = mark.end()
        if mark[0] == "${":
            stack.append([])
            if len(stack) > MAX_NESTING:
                raise _Unresolved(Fault("", f"nests '${{' more than {MAX_NESTING} deep.", ""))
        elif mark[0] == "}" and len(stack) > 1:
            name = stack.pop()
            stack[-1].append(_Reference(name))
        else:
            stack[-1].append(mark[0].removeprefix("$"))
    stack[-1].append(text[position:])
    if len(stack) > 1:
        raise _Unresolved(Fault("", "has a '${' without '}'.", "Close it, or write $${ for a literal ${."))
    return [part for part in stack[0] if part]


def as_text(value: object) -> str:
    """Return a scalar in config syntax: true, false, null, numbers as Python prints them, but 2 for 2.0."""
    if value is None:
        return "null"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e10:
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_slash(text: str, follower: str | _Reference) -> str:
    """Return a substituted path without trailing slashes, so that `${folder}/x` has one; `s3://` is kept.

    A lone `/` is dropped only before another one.
    """
    if text.endswith("://"):
        return text
    if text.strip("/"):
        return text.rstrip("/")
    return "" if isinstance(follower, str) and follower.startswith("/") else text


def _reach(table: Table, name: str) -> Located | None:
    """Return the value of `name`, or of `outer.inner` inside a dict; None if there is none."""
    if name in table:
        return table[name]
    outer, dot, inner = name.partition(".")
    if dot and outer in table and isinstance(table[outer].value, dict):
        return _reach(table[outer].value, inner)
    return None


def _cycle(names: tuple[str, ...], first: Located) -> Fault:
    """Return the fault for a cycle of references, always starting at its first name in the alphabet: reported once."""
    start = names.index(min(names))
    ring = [*names[start:], *names[: start + 1]]
    return Fault(ring[0], f"refers to itself: {' -> '.join(ring)}.", "Break the cycle.", first.origin)
