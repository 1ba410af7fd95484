"""Gather every fault of a config before raising, so that one run shows them all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True)
class Origin:
    """Where a value was written: a file (or `command line`) and a 1-based line, 0 when unknown."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Fault:
    """One thing wrong: which key, what is there, and what to do about it."""

    key: str
    problem: str
    remedy: str = ""
    origin: Origin | None = None

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.key}{where}: {self.problem} {self.remedy}".rstrip()


class ConfigError(ValueError):
    """What the user asked for cannot be done as written. `faults` holds every reason; exit code 2."""

    def __init__(self, source: str, faults: Iterable[Fault]) -> None:
        self.source = source
        self.faults = tuple(faults)
        plural = "" if len(self.faults) == 1 else "s"
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        super().__init__(f"{source}: {len(self.faults)} fault{plural}\n{lines}")

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, tuple[Fault, ...]]]:
        return type(self), (self.source, self.faults)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Give the known name most like `name`, or None when nothing is close."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return near[0] if near else None


def unknown_name(key: str, value: str, known: Iterable[str], origin: Origin | None = None) -> Fault:
    """Describe a name that is not registered, and offer the nearest one that is."""
    names = sorted(known)
    near = nearest(value, names)
    remedy = f"Did you mean '{near}'?" if near else f"Choose one of: {', '.join(names)}."
    return Fault(key, f"no '{value}' is registered.", remedy, origin)
