"""Two forms of the tests: a short one, which `make test` runs before each change lands, and a long one, `make nightly`.

The long form runs whole tables (each door, strategy, mesh and moment of a kill with each other) and programs of many
processes. The short form runs, of each behaviour, the case that is most likely to break. A test that only the long form
runs names the one that guards its behaviour in the short form; tests/promises/test_tiers.py checks that there is one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import TypeVar

import pytest

Name = TypeVar("Name")
LONG = os.environ.get("XDPX_NIGHTLY", "0") != "0"
"""Whether the long form runs."""


def nightly(short: str) -> pytest.MarkDecorator:
    """Return the mark of a test, or of a case, that only the long form runs.

    Args:
        short: the test of the short form that guards the same behaviour, as `tests/room/test_file.py::test_name`, or
            `test_name` if it is in the same file.
    """
    return pytest.mark.nightly(short)


def some(table: Iterable[Name], short: Collection[Name]) -> list[Name]:
    """Return the entries of a table that run: all in the long form, in the short form those that stand for them.

    Raises:
        ValueError: if `short` names an entry that the table lacks, or none.
    """
    entries = list(table)
    if missing := [entry for entry in short if entry not in entries]:
        raise ValueError(f"The table has no {missing}; it has {entries}.")
    if not short:
        raise ValueError(f"No entry of {entries} is left for the short form.")
    return entries if LONG else [entry for entry in entries if entry in short]
