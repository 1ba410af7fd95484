"""The files around the package: what they name exists, and they agree with one another."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| ([a-z][\w, ]*) \|.*\| (.+) \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)


def names_in(file: Path) -> set[str]:
    """Return what a module defines at its top: classes, functions, and names that are assigned."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_glossary_has_twenty_words() -> None:
    words = [word for word, _ in ROWS if word != "term"]
    assert len(words) == len(set(words)) == 20


@pytest.mark.parametrize(("word", "places"), ROWS[1:], ids=[word for word, _ in ROWS[1:]])
def test_what_the_glossary_points_at_is_there(word: str, places: str) -> None:
    for place in re.findall(r"`([^`]+)`", places):
        path, _, name = place.partition(":")
        assert (ROOT / path).is_file(), path
        assert not name or name in names_in(ROOT / path), place


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "README.zh.md"])
def test_every_file_that_a_page_links_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in link]
    assert links
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/releasing.md"])
def test_every_target_of_make_that_a_page_names_exists(page: str) -> None:
    targets = set(re.findall(r"\bmake ([a-z]+)\b", (ROOT / page).read_text()))
    assert {"test", "faults", "bench"} <= targets
    assert targets - set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) == set()


def test_the_citation_has_what_the_format_requires_and_agrees_with_the_project() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["license"] == project["license"]
    assert "version" not in citation
