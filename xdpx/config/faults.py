"""Faults of a config, collected into one ConfigError so that the user sees all of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal

FaultCode = Literal["", "missing_path", "missing_key", "foreign_key", "conflict", "other_command", "occupied"]
"""The kind of a fault, if code must distinguish it: an earlier command of the same command line may fix it, or
(occupied) it only prevents the start, so that `--dry` can still show the run."""


THIS_RUN = "this run"
"""Source of faults found during a run, where the config is not known; `ConfigError.placed` fills it in."""


@dataclass(frozen=True)
class Origin:
    """Where a value was written: a file (or `command line`), line and column counted from 1, 0 if unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number]
        return ":".join([self.file, *numbers])


@dataclass(frozen=True)
class Fault:
    """One fault of a config: the key, the problem, and the remedy."""

    key: str
    problem: str
    remedy: str = ""
    origin: Origin | None = None
    code: FaultCode = ""
    stands_for: int = 1
    """Number of faults that it represents; above 1 for a summary of faults that are not shown."""

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.key}{where}: {self.problem} {self.remedy}".rstrip()


class ConfigError(ValueError):
    """The user's request is invalid. `faults` holds every reason; commands end with exit code 2."""

    def __init__(self, source: str, faults: Iterable[Fault]) -> None:
        self.source = source
        self.faults = tuple(faults)
        count = sum(fault.stands_for for fault in self.faults)
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        super().__init__(f"{source}: {count} fault{'' if count == 1 else 's'}\n{lines}")

    def placed(self, source: str, origins: Mapping[str, Origin]) -> ConfigError:
        """Return the error with the config of the run as its source and the places of its keys, if it has none yet."""
        if self.source != THIS_RUN:
            return self
        found = [fault if fault.origin else replace(fault, origin=origins.get(fault.key)) for fault in self.faults]
        return ConfigError(source, found)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, tuple[Fault, ...]]]:
        return type(self), (self.source, self.faults)


@contextmanager
def found_in(source: str) -> Generator[None]:
    """Name the source of the faults that are found in the block where it is not known."""
    try:
        yield
    except ConfigError as error:
        raise error.placed(source, {}) from error.__cause__


def refusal(key: str, problem: str, remedy: str = "") -> ConfigError:
    """Return the error for a single fault that is found where the source of the value is not known."""
    return ConfigError(THIS_RUN, [Fault(key, problem, remedy)])


def wrong_return(key: str, owner: object, method: str, found: str, remedy: str) -> ConfigError:
    """Return the error for a method of a user's class that returns something else than its base class asks for.

    Args:
        key: that selects the class.
        owner: an object of the class.
        method: its name.
        found: what it returns, and for what.
        remedy: what to return instead.
    """
    return refusal(key, f"'{type(owner).__name__}.{method}' returns {found}.", remedy)


def merge_faults(faults_of_runs: Iterable[Iterable[Fault]]) -> list[Fault]:
    """Return the faults of all runs of one config without duplicates, each with a note about the runs it occurs in."""
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
    """Return the known name most similar to `name`, or None if nothing is similar.

    Similar names differ by few edits for their length (a swap of neighbours counts as one), one contains the other as
    whole words (`vocab` and `vocab_file`), or they share most letters. Case and `-` versus `_` are ignored.
    """
    found = _all_nearest(name, known)
    return found[-1] if found else None


def _all_nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are equally and most similar to `name`, sorted; [] if nothing is similar."""
    candidates = [(_likeness(_plain(name), _plain(other)), other) for other in known]
    best = max((likeness for likeness, _ in candidates), default=0.0)
    return sorted(other for likeness, other in candidates if likeness == best) if best >= 0.6 else []


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _likeness(name: str, other: str) -> float:
    """Return a similarity from 0 (nothing in common) to 1 (equal); 0.6 or more is worth suggesting."""
    if not name or not other:
        return 0.0
    shortest, longest = sorted((len(name), len(other)))
    shared = (Counter(name) & Counter(other)).total()  # letters, wherever they are: an edit brings in one at most
    allowed = max(1, longest // 4)
    if shared and longest - shortest <= 2 and longest - shared <= allowed:  # '2' is not like '1'
        distance = edit_distance(name, other)
        if distance <= allowed:
            return 1.0 - distance / (longest + 4)
    if shortest >= 4 and (f"_{other}_".find(f"_{name}_") >= 0 or f"_{name}_".find(f"_{other}_") >= 0):
        return 0.7
    may_be_alike = 2 * shared / (shortest + longest) >= 0.8
    return 0.75 * SequenceMatcher(None, name, other).ratio() if may_be_alike else 0.0


def edit_distance(name: str, other: str) -> int:
    """Return the number of insertions, deletions, replacements and swaps of neighbours that turn `name` into `other`.

    Source: restricted Damerau-Levenshtein distance (optimal string alignment).
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


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", *, rest: str = "") -> str:
    """Return "Did you mean '…'?" with the nearest known name, `otherwise` if none is similar; then `rest`."""
    near = nearest(name, known)
    guess = f"Did you mean '{near}'?" if near else otherwise
    return f"{guess} {rest}".strip()


def first_few(names: Iterable[str], most: int) -> str:
    """Return the first names with commas between, and how many more there are: `a, b, c and 5 more`."""
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def shortened(text: str, most: int = 60) -> str:
    """Return a text cut to `most` characters, of which the last three are then dots."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or its class if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def named(error: BaseException) -> str:
    """Return the class of an error and the first line of its message, if it has one: `KeyError: 'name'`."""
    name, line = type(error).__name__, first_line(error)
    return name if line == name else f"{name}: {line}"


def unknown_name(key: str, value: str, known: Iterable[str], origin: Origin | None = None) -> Fault:
    """Return a fault for a name that is not registered, with the nearest registered ones as remedy."""
    names = sorted(known)
    near = _all_nearest(value, names)
    if len(near) > 1:
        remedy = f"Did you mean one of these: {', '.join(near)}?"
    else:
        remedy = did_you_mean(value, names, f"Choose one of: {', '.join(names)}." if names else "None is registered.")
    return Fault(key, f"no '{value}' is registered.", remedy, origin)
