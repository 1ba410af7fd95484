"""What pyproject.toml asks for is what the package imports, no more and no less; and there is one version."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import xdpx
from xdpx.tasks.parameters import ClusterTaskParameters

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTION = {"odps": "pyodps", "orbax": "orbax-checkpoint", "sklearn": "scikit-learn", "yaml": "pyyaml"}
"""The name under which a module is installed, where it is another than its own."""
IMPORTING = {"import_module", "find_spec"}


def modules_named(tree: ast.Module) -> list[str]:
    """Return the modules that a file imports, by a statement or by a name in a string."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found += [str(node.args[0].value)] if called in IMPORTING else []
    return found


@cache
def imported() -> set[str]:
    """Return the distributions that the package imports anywhere, at the top of a file or within a function."""
    files = (ROOT / "xdpx").rglob("*.py")
    names = {name.partition(".")[0] for file in files for name in modules_named(ast.parse(file.read_text()))}
    foreign = names - set(sys.stdlib_module_names) - {"xdpx"}
    return {canonicalize_name(DISTRIBUTION.get(name, name)) for name in foreign}


def asked_for(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


def test_everything_that_is_always_installed_is_imported_somewhere() -> None:
    assert asked_for(PROJECT["dependencies"]) - imported() == set()


def test_everything_that_is_imported_is_declared_or_a_message_says_how_to_install_it() -> None:
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    text = "\n".join(file.read_text() for file in (ROOT / "xdpx").rglob("*.py"))
    advised = {canonicalize_name(name) for name in re.findall(r"(?:pip install '?|needs the package )([\w-]+)", text)}
    assert imported() - asked_for(PROJECT["dependencies"] + extras) - advised == set()


def test_every_extra_that_a_message_names_exists() -> None:
    pages = [*(ROOT / "xdpx").rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    named = {
        name
        for page in pages
        for group in re.findall(r"xdpx\[([\w,]+)\]", page.read_text())
        for name in group.split(",")
    }
    assert len(named) >= 8
    assert named - set(PROJECT["optional-dependencies"]) == set()


def test_prototypes_without_scikit_learn_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"model": "simcse", "loss": "bert_cl", "num_cluster": [64]}
    assert ClusterTaskParameters(**wanted).conflicts() == []
    monkeypatch.setitem(sys.modules, "sklearn", None)
    [(key, problem)] = ClusterTaskParameters(**wanted).conflicts()
    assert key == "num_cluster"
    assert "pip install 'xdpx[sklearn]'" in problem
    assert ClusterTaskParameters(**wanted, supervised=True, num_classes=2).conflicts() == []


def test_the_version_stands_in_one_place_and_the_changelog_knows_those_before_it() -> None:
    told = re.findall(r"^## \[(.+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert told[0] == "Unreleased"
    assert all(Version(older) < Version(newer) for newer, older in pairwise([xdpx.__version__, *told[1:]]))
    assert "version" in PROJECT["dynamic"]
    pages = [*ROOT.glob("*.*"), *(ROOT / "docs").glob("*.md"), *(ROOT / "requirements").glob("*.txt")]
    assert [page.name for page in pages if page.is_file() and xdpx.__version__ in page.read_text()] == []
