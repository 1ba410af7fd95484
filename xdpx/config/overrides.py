"""`key=value` overrides from the command line, which take precedence over all files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdpx.config.config_files import kind_of
from xdpx.config.faults import Fault, Origin
from xdpx.config.hjson_reader import read_value
from xdpx.config.located import Located, Table
from xdpx.config.source_text import MAX_BYTES, MAX_DEPTH, Unreadable, excerpt

COMMAND_LINE = "command line"
ORIGIN = Origin(COMMAND_LINE)
_FIXED = ("__parent__", "__ignore__")


@dataclass(frozen=True)
class Override:
    """One value and its path of keys, such as `("extra_config", "batch_size")`."""

    keys: tuple[str, ...]
    value: Located

    def applied(self, table: Table) -> tuple[Table, Fault | None]:
        """Return (a copy of `table` with the value set, None), or (`table`, a fault)."""
        name = ".".join(self.keys)
        if name in table or len(self.keys) == 1:
            return {**table, name: self.value}, None
        return _set(table, self.keys, self.value, name)


def _set(table: Table, keys: tuple[str, ...], value: Located, name: str) -> tuple[Table, Fault | None]:
    first, *rest = keys
    if not rest:
        return {**table, first: value}, None
    inner = table.get(first, Located({}, ORIGIN))
    if not isinstance(inner.value, dict):
        problem = f"'{first}' is {kind_of(inner.value)}, so nothing can be set inside it."
        return table, Fault(name, problem, "Set the whole value.", ORIGIN)
    changed, fault = _set(inner.value, tuple(rest), value, name)
    return {**table, first: replace(inner, value=changed, from_meta=False)}, fault


def read_overrides(texts: Sequence[str]) -> tuple[list[Override], list[Fault]]:
    """Return the parsed overrides, and faults. Values are typed as in hjson: 1e-4, true, [a, b], {a: 1}; else text."""
    overrides: list[Override] = []
    faults: list[Fault] = []
    for text in texts:
        try:
            overrides.append(_read(text))
        except Unreadable as error:
            faults.append(replace(error.fault, origin=ORIGIN))
    return overrides, faults


def apply_overrides(overrides: Sequence[Override], table: Table) -> tuple[Table, list[Fault]]:
    """Return `table` with all overrides applied in order, so that the last one for a key wins, and faults."""
    faults = []
    for override in overrides:
        table, fault = override.applied(table)
        faults += [fault] if fault else []
    return table, faults


def _read(text: str) -> Override:
    key, equals, value = text.partition("=")
    keys = tuple(part.strip() for part in key.split("."))
    if not equals or not all(keys):
        raise _refused(
            excerpt(text), "is not a `key=value`.", "Write e.g. learning_rate=1e-4; `key=` gives an empty text."
        )
    if keys[0] in _FIXED:
        raise _refused(key, "cannot be set on the command line.", "Write it in a config.")
    if len(keys) > MAX_DEPTH or len(text) > MAX_BYTES:
        raise _refused(excerpt(key), "is too long.", "")
    return Override(keys, _typed(key, value))


def _typed(key: str, text: str) -> Located:
    """Return a typed value. Only text that starts with a bracket or quote is parsed; other text is never cut."""
    stripped = text.strip()
    try:
        located = read_value(stripped, COMMAND_LINE)
    except Unreadable as error:
        raise _refused(key, error.fault.problem, f"The value is {excerpt(stripped)}.") from None
    if located.value != stripped:
        return _here(located)
    if len(stripped) > 1 and stripped.endswith((",", "，")):  # one comma alone may be a delimiter
        raise _refused(key, f"the value {excerpt(stripped)} ends with a comma.", "Remove it, or quote the text.")
    return Located(text, ORIGIN)


def _here(located: Located) -> Located:
    """Return a value with the command line as origin of all inner values, without line numbers."""
    value = located.value
    if isinstance(value, dict):
        value = {key: _here(item) for key, item in value.items()}
    elif isinstance(value, list):
        value = [_here(item) for item in value]
    return Located(value, ORIGIN)


def _refused(key: str, problem: str, remedy: str) -> Unreadable:
    return Unreadable(Fault(key, problem, remedy, ORIGIN))
