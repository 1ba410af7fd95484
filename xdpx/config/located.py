"""Values with the file and line they were written in, and the merging of tables of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from xdpx.config.faults import Origin

MAX_VALUES = 100_000
"""Maximum number of values of one run, after aliases and references are expanded."""

MAX_LEVELS = 128
"""Maximum nesting after references are expanded."""


@dataclass(frozen=True, slots=True)
class Located:
    """One value: a scalar, a `Table`, or a list of `Located`.

    Attributes:
        value: see above.
        origin: where it was written.
        from_meta: whether x-prepro wrote it, not the user.
        from_machine: whether a built-in name such as `${apex}` gave it, which may differ on another machine.
    """

    value: Any
    origin: Origin
    from_meta: bool = False
    from_machine: bool = False


Table: TypeAlias = dict[str, Located]


class TooLarge(ValueError):
    """An expanded value is too large or nested too deeply."""


def merge(higher: Table, *lowers: Table) -> Table:
    """Return tables merged, highest priority first. Two dicts of one key are merged one level deep, others replaced."""
    merged = dict(higher)
    for lower in lowers:
        for key, located in lower.items():
            merged[key] = _join(merged[key], located) if key in merged else located
    return merged


def _join(higher: Located, lower: Located) -> Located:
    if not (isinstance(higher.value, dict) and isinstance(lower.value, dict)):
        return higher
    from_meta = higher.from_meta and lower.from_meta
    return replace(higher, value={**lower.value, **higher.value}, from_meta=from_meta)


def holds_meta(located: Located) -> bool:
    """Return whether a value, or anything in a dict, comes from a meta.hjson."""
    inner = located.value.values() if isinstance(located.value, dict) else ()
    return located.from_meta or any(map(holds_meta, inner))


def plain(located: Located, budget: Iterator[int] | None = None, level: int = 0) -> Any:
    """Return the plain Python value.

    Args:
        located: the value.
        budget: yields once per value that is still allowed; shared by all keys of a run.
        level: current nesting depth.

    Raises:
        TooLarge: the budget (by default `MAX_VALUES`) is used up, or the nesting exceeds `MAX_LEVELS`.
    """
    budget = iter(range(MAX_VALUES)) if budget is None else budget
    if next(budget, None) is None:
        raise TooLarge(f"gives the run more than {MAX_VALUES:,} values.")
    if level > MAX_LEVELS:
        raise TooLarge(f"is nested deeper than {MAX_LEVELS} levels.")
    value = located.value
    if isinstance(value, dict):
        return {key: plain(item, budget, level + 1) for key, item in value.items()}
    return [plain(item, budget, level + 1) for item in value] if isinstance(value, list) else value


def origins(table: Table, prefix: str = "") -> dict[str, Origin]:
    """Return the origins of all values, by path: `key`, `key.inner`, `key[0]`."""
    found: dict[str, Origin] = {}
    for key, located in table.items():
        _add_origins(prefix + key, located, found)
    return found


def _add_origins(path: str, located: Located, found: dict[str, Origin]) -> None:
    found[path] = located.origin
    if isinstance(located.value, dict):
        found.update(origins(located.value, f"{path}."))
    elif isinstance(located.value, list):
        for index, item in enumerate(located.value):
            _add_origins(f"{path}[{index}]", item, found)
