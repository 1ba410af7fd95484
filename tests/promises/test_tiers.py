"""No behaviour is guarded by the long form of the tests alone: each of its tests names one that `make test` runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiers
from tests.processes import ROOT

MARKS = ("nightly", "tiers.nightly", "pytest.mark.nightly")


def is_mark(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in MARKS


def named(file: Path) -> Iterator[tuple[Path, str]]:
    """Yield the file and name of each test that a mark in `file` says runs instead."""
    for mark in ast.walk(ast.parse(file.read_text())):
        if isinstance(mark, ast.Call) and is_mark(mark):
            (short,) = [*mark.args, *(keyword.value for keyword in mark.keywords)]
            assert isinstance(short, ast.Constant), f"{file}:{mark.lineno}: name the test literally"
            place, _, name = str(short.value).rpartition("::")
            yield (ROOT / place if place else file), name


def in_short_form(file: Path) -> set[str]:
    """Return the tests of a file that the short form runs, or some cases of them."""
    body = ast.parse(file.read_text()).body
    of_file = [
        node.value for node in body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0])
    ]
    if any(is_mark(node) for value in of_file for node in ast.walk(value)):
        return set()
    tests = [node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {test.name for test in tests if not any(is_mark(decorator) for decorator in test.decorator_list)}


def test_every_test_of_the_long_form_names_one_of_the_short_form() -> None:
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if "nightly(" in file.read_text() and file != Path(__file__):
            for place, name in named(file):
                assert place.exists(), f"{file}: there is no {place}"
                assert name in in_short_form(place), f"{file}: `make test` runs no {name} of {place}"


def test_the_short_form_runs_some_of_a_table_and_the_long_form_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "LONG", False)
    assert tiers.some(["a", "b", "c"], ["c", "a"]) == ["a", "c"]
    monkeypatch.setattr(tiers, "LONG", True)
    assert tiers.some({"a": 1, "b": 2}, ["b"]) == ["a", "b"]


@pytest.mark.parametrize("short", [["d"], []])
def test_a_table_must_have_what_stands_for_it(short: list[str]) -> None:
    with pytest.raises(ValueError, match="table has no|is left"):
        tiers.some(["a", "b"], short)
