"""Gather every fault of a config before raising, so that one run shows them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal

FaultCode = Literal["", "missing_path", "missing_key", "foreign_key", "conflict", "other_command", "occupied"]
"""What kind of fault it is, where somebody must know: whether an earlier command of the same line could cure it, or
(occupied) whether it hinders the start alone, so that `--dry` can show the run nevertheless."""


THIS_RUN = "the config"
"""The source of a fault that a part finds while a run is at work: `ConfigError.placed` says which config that is."""


@dataclass(frozen=True)
class Origin:
    """Where a value was written: a file (or `command line`), 1-based line and column, 0 when unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number]
        return ":".join([self.file, *numbers])


@dataclass(frozen=True)
class Fault:
    """One thing wrong: which key, what is there, and what to do about it."""

    key: str
    problem: str
    remedy: str = ""
    origin: Origin | None = None
    code: FaultCode = ""
    stands_for: int = 1
    """How many faults it is: more for one that says how many are not shown."""

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.key}{where}: {self.problem} {self.remedy}".rstrip()


class ConfigError(ValueError):
    """What the user asked for cannot be done as written. `faults` holds every reason; exit code 2."""

    def __init__(self, source: str, faults: Iterable[Fault]) -> None:
        self.source = source
        self.faults = tuple(faults)
        count = sum(fault.stands_for for fault in self.faults)
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        super().__init__(f"{source}: {count} fault{'' if count == 1 else 's'}\n{lines}")

    def placed(self, source: str, origins: Mapping[str, Origin]) -> ConfigError:
        """Return the same error with the config that was at work as its source, and where each key stands in it."""
        if self.source != THIS_RUN:
            return self
        found = [fault if fault.origin else replace(fault, origin=origins.get(fault.key)) for fault in self.faults]
        return ConfigError(source, found)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, tuple[Fault, ...]]]:
        return type(self), (self.source, self.faults)


def merge_faults(faults_of_runs: Iterable[Iterable[Fault]]) -> list[Fault]:
    """Join the faults of all runs of one config: the same fault appears once and says in how many runs it is."""
    runs = [list(dict.fromkeys(faults)) for faults in faults_of_runs]
    where: dict[Fault, list[int]] = {}
    for index, faults in enumerate(runs):
        for fault in faults:
            where.setdefault(fault, []).append(index)
    return [_with_runs(fault, indices, len(runs)) for fault, indices in where.items()]


def _with_runs(fault: Fault, indices: list[int], total: int) -> Fault:
    if total == 1:
        return fault
    if len(indices) == 1:
        note = f"(in run {indices[0] + 1} of {total})"
    else:
        note = f"(in all {total} runs)" if len(indices) == total else f"(in {len(indices)} runs)"
    return Fault(fault.key, fault.problem, f"{fault.remedy} {note}".lstrip(), fault.origin, fault.code)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`, or None when nothing is close.

    Close means: few edits for its length (a swap of neighbours counts as one), one begins or ends with the other
    (`vocab` and `vocab_file`), or most letters in common. Case and `-` against `_` do not count.
    """
    candidates = [(_likeness(_plain(name), _plain(other)), other) for other in known]
    best = max(candidates, default=(0.0, ""), key=lambda pair: (pair[0], pair[1]))
    return best[1] if best[0] >= 0.6 else None


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _likeness(name: str, other: str) -> float:
    """Score from 0 (nothing in common) to 1 (equal); at least 0.6 is worth offering."""
    if not name or not other:
        return 0.0
    shortest, longest = sorted((len(name), len(other)))
    shared = (Counter(name) & Counter(other)).total()  # letters, wherever they are: an edit brings in one at most
    allowed = max(1, longest // 4)
    if longest - shortest <= 2 and longest - shared <= allowed:
        distance = edit_distance(name, other)
        if distance <= allowed:
            return 1.0 - distance / (longest + 4)
    if shortest >= 4 and (f"_{other}_".find(f"_{name}_") >= 0 or f"_{name}_".find(f"_{other}_") >= 0):
        return 0.7
    may_be_alike = 2 * shared / (shortest + longest) >= 0.8
    return 0.75 * SequenceMatcher(None, name, other).ratio() if may_be_alike else 0.0


def edit_distance(name: str, other: str) -> int:
    """Count the insertions, deletions, replacements and swaps of neighbours that turn `name` into `other`.

    Source: Damerau-Levenshtein in its restricted form (optimal string alignment).
    """
    before_last: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(name, start=1):
        current = [row]
        for column, other_letter in enumerate(other, start=1):
            cost = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != other_letter))
            swapped = row > 1 and column > 1 and letter == other[column - 2] and name[row - 2] == other_letter
            current.append(min(cost, before_last[column - 2] + 1) if swapped else cost)
        before_last, last = last, current
    return last[-1]


def unknown_name(key: str, value: str, known: Iterable[str], origin: Origin | None = None) -> Fault:
    """Describe a name that is not registered, and offer the nearest one that is."""
    names = sorted(known)
    near = nearest(value, names)
    listed = f"Choose one of: {', '.join(names)}." if names else "None is registered."
    return Fault(key, f"no '{value}' is registered.", f"Did you mean '{near}'?" if near else listed, origin)
