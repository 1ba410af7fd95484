"""What was decided by looking, how sure it is, and the key that overrides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xdpx.config.faults import ConfigError, Fault

Sureness = Literal["given", "certain", "likely", "a guess"]


@dataclass(frozen=True)
class Decision:
    """One thing that was decided.

    Attributes:
        what: the thing: encoding, header, label, ...
        value: what it was taken for, in words.
        sure: `given` by the user, `certain` by the data, `likely`, or `a guess` that should be looked at.
        override: the `key=value` that decides otherwise; '' where nothing does.
    """

    what: str
    value: str
    sure: Sureness
    override: str = ""


@dataclass(frozen=True)
class Wishes:
    """What the user says of a file; None leaves it to be found out.

    Attributes:
        encoding, delimiter, sheet: how the file is read.
        header: whether its first row names columns.
        text, label: names of columns, or their numbers from 1; several texts with commas between.
        task: class, number, several or tags.
        label_separator: what stands between the labels of a row that has several.
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
    """Return the error that asks for what a file does not tell."""
    return ConfigError(path, [Fault(key, problem, remedy)])
