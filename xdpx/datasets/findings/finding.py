"""A thing that looks wrong with data, and what becomes of all that were found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from xdpx.config.faults import ConfigError, Fault
from xdpx.logger import log
from xdpx.utils import commit, io

FILE = "findings.json"

Code = Literal[
    "header", "delimiter", "quotes", "columns", "no_labels", "many_labels", "one_label", "label_spelling", "imbalance",
    "leakage", "duplicates", "contradictions", "no_text", "unknown_tokens", "long_tokens", "cut_tokens",
    "untrained_unknown",
]  # fmt: skip
CODES: tuple[str, ...] = get_args(Code)
Severity = Literal["fault", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """A thing that looks wrong with data.

    Attributes:
        code: its name in `ignore_findings`.
        severity: a fault stops what is done with the data; a warning should be looked at; a note is good to know.
        place: the file, with its line where there is one, or the split.
        problem: what is there.
        remedy: what to do.
    """

    code: Code
    severity: Severity
    place: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem} {self.remedy}"


class Findings:
    """All that was found, but for the kinds that are to be ignored.

    Args:
        source: where the data are, for messages.
        ignored: codes of findings that are meant to be so.
    """

    def __init__(self, source: str, ignored: Iterable[str] = ()) -> None:
        self._source = source
        self._ignored = frozenset(ignored)
        self._found: list[Finding] = []

    def add(self, found: Iterable[Finding]) -> None:
        """Keep some more.

        Raises:
            ConfigError: with the faults among them.
        """
        kept = [each for each in found if each.code not in self._ignored]
        self._found += kept
        faults = [_fault(each) for each in kept if each.severity == "fault"]
        if faults:
            raise ConfigError(self._source, faults)

    def report(self) -> None:
        """Tell each in a line."""
        for each in self._found:
            (log.info if each.severity == "note" else log.warning)(f"{each} [{each.code}]")

    def write(self, folder: str, sizes: Mapping[str, int]) -> None:
        """Write all to `findings.json`, with the sizes of the splits that were looked at."""
        told = {"looked_at": dict(sizes), "findings": [asdict(each) for each in self._found]}
        commit.write_text(io.join(folder, FILE), json.dumps(told, indent=2, ensure_ascii=False) + "\n")


def _fault(found: Finding) -> Fault:
    return Fault(found.place, found.problem, f'{found.remedy} If it is meant: ignore_findings: ["{found.code}"].')


def some(things: Iterable[str], most: int = 3) -> str:
    """List the first few of some things in quotes."""
    listed = list(things)
    more = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return ", ".join(map(repr, listed[:most])) + more
