"""Decisions of guessing, with their certainty and the key that overrides them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xdpx.config.faults import ConfigError, Fault

Sureness = Literal["given", "certain", "likely", "a guess"]


@dataclass(frozen=True)
class Decision:
    """One decision.

    Attributes:
        what: its subject: encoding, header, label, ...
        value: the choice, in words.
        sure: `given` by the user, `certain` from the data, `likely`, or `a guess` that should be checked.
        override: the `key=value` that overrides it; '' if none does.
    """

    what: str
    value: str
    sure: Sureness
    override: str = ""


@dataclass(frozen=True)
class Wishes:
    """The user's settings for a file; None means to guess.

    Attributes:
        encoding, delimiter, sheet: how the file is read.
        header: whether its first row names the columns.
        text, label: names of columns, or their numbers from 1; several texts separated by commas.
        task: class, number or several.
        label_separator: separator of several labels in a cell.
    """

    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None
    header: bool | None = None
    text: str | None = None
    label: str | None = None
    task: str | None = None
    label_separator: str | None = None


def question(path: str, key: str, problem: str, remedy: str) -> ConfigError:
    """Return the error that asks the user for something that cannot be guessed from a file."""
    return ConfigError(path, [Fault(key, problem, remedy)])
