"""The generated reference says of every registered name what it is, what can be set, and whose idea it was."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from xdpx.config import catalogue
from xdpx.config.registry import ROOMS, registry_of

REPOSITORY = Path(__file__).parents[2]
OUR_OWN = {
    "model": {"cls_cnn_bce", "cnn_regression", "re2_regression", "rmr_bert", "xdp_cls_cnn", "xdp_cls_cnn_bce"},
    "task": {"default", "rmr", "slm"},
    "loss": {"bce", "causal_lm", "circle_siamese", "mse", "rmr"},
}
"""Names that no paper stands behind, or only that of the name they are another spelling of."""


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_reference", REPOSITORY / "docs/build_reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(builder: ModuleType) -> dict[str, str]:
    return builder.pages()


@pytest.fixture(scope="module")
def chapters(builder: ModuleType, pages: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return the text of every name, by kind, from the page that holds it."""
    found: dict[str, dict[str, str]] = {kind: {} for kind in builder.KINDS}
    for kind, table in found.items():
        names = [f"{command}.md" for command in builder.commands()] if kind == "command" else [f"{kind}.md"]
        text = "\n".join(pages[name] for name in names)
        for part in re.split(r"^##? (?=`)", text, flags=re.MULTILINE)[1:]:
            table[part.split("`")[1]] = part
        table |= {name.split("/")[1][:-3]: pages[name] for name in pages if name.startswith(f"{kind}/")}
    scripts = {
        name.removesuffix(".md").replace("/", " "): pages[name] for name in pages if name.startswith("x-script/")
    }
    del found["command"]["x-script"]  # a table of these
    found["command"] |= scripts
    return found


def test_every_registered_name_has_its_section(chapters: dict[str, dict[str, str]]) -> None:
    assert {kind: {*table} for kind, table in chapters.items()} == {
        kind: {*registry_of(kind).shipped} for kind in ROOMS
    }


def test_every_section_has_one_line_and_every_key_with_its_default(
    builder: ModuleType, chapters: dict[str, dict[str, str]]
) -> None:
    for kind, table in chapters.items():
        for name, text in table.items():
            entry = catalogue.entry(kind, name)
            assert builder.prose(entry.doc) in text
            assert [builder.row(item) for item in entry.parameters if builder.row(item) not in text] == []


def test_no_page_is_endless_and_types_are_words(pages: dict[str, str]) -> None:
    assert max(text.count("\n| ") for text in pages.values()) < 250
    assert [name for name, text in pages.items() if re.search(r"typing\.|Optional\[| \| None|<best>", text)] == []
    assert "&lt;best>" in pages["model/cls_cnn.md"]


@pytest.mark.parametrize("kind", ["model", "task", "loss", "optimizer"])
def test_a_method_says_whose_idea_it_was(chapters: dict[str, dict[str, str]], kind: str) -> None:
    without = {name for name, text in chapters[kind].items() if "\nSource" not in text}
    assert without <= OUR_OWN.get(kind, set())


def test_every_family_named_is_there(chapters: dict[str, dict[str, str]]) -> None:
    named = {
        path
        for table in chapters.values()
        for text in table.values()
        for path in re.findall(r"examples/\S+hjson", text)
    }
    assert len(named) > 9
    assert all((REPOSITORY / path).exists() for path in named)
