"""The frozen table of parameters says what the classes say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from xdpx.config import catalogue
from xdpx.config.declarations import Declaration, Entry
from xdpx.config.parameters import entry_of
from xdpx.config.registry import registry_of

ENTRIES = [(kind, name) for kind, table in catalogue.shipped().items() for name in table]


def declarations() -> Iterator[tuple[Entry, Declaration]]:
    for kind, name in ENTRIES:
        entry = catalogue.entry(kind, name)
        for declaration in entry.parameters:
            yield entry, declaration


def test_the_catalogue_is_what_the_classes_declare() -> None:
    text, problems = catalogue.compile_catalogue()
    assert not problems
    assert json.loads(text) == catalogue.shipped(), "run `make catalogue`"


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_an_entry_read_back_equals_the_class(kind: str, name: str) -> None:
    assert catalogue.entry(kind, name) == entry_of(kind, name, registry_of(kind)[name])


def test_every_name_is_described_and_every_parameter_has_a_meaning() -> None:
    assert not [f"{kind} {name}" for kind, name in ENTRIES if not catalogue.entry(kind, name).doc]
    assert not [f"{entry.kind} {entry.name}.{item.key}" for entry, item in declarations() if not item.doc.strip()]


def test_every_meaning_is_written_in_one_style() -> None:
    """A capital letter, or the choices one by one (`a: add; w: replace`); a full stop."""
    style = re.compile(r"([A-Z[]|\w+: ).*\.", re.DOTALL)
    docs = {f"{entry.kind} {entry.name}.{item.key}": item.doc for entry, item in declarations()}
    docs |= {f"{kind} {name}": catalogue.entry(kind, name).doc for kind, name in ENTRIES}
    assert not {what: doc for what, doc in docs.items() if not style.fullmatch(doc)}


def test_every_default_is_a_value_its_own_declaration_accepts() -> None:
    wrong = []
    for entry, item in declarations():
        if not item.required:
            accepted = item.value_type.accept(item.default)
            if accepted != item.default or item.out_of_bounds(accepted):
                wrong.append(f"{entry.kind} {entry.name}.{item.key}")
    assert not wrong


def test_every_selector_names_a_kind_and_its_default_is_registered() -> None:
    for entry, item in declarations():
        if item.registry:
            names = catalogue.names(item.registry)
            assert item.required or item.default is None or item.default in names, f"{entry.name}.{item.key}"


def test_every_switch_names_a_key_of_the_same_class() -> None:
    for entry, item in declarations():
        if item.when:
            assert item.when[0] in {other.key for other in entry.parameters}, f"{entry.name}.{item.key}"


def test_conflicts_are_known_without_a_heavy_package() -> None:
    places = sorted({place for kind, name in ENTRIES if (place := catalogue.entry(kind, name).conflicts)})
    code = (
        "import sys; from importlib import import_module;"
        f"[import_module(place.partition(':')[0]) for place in {places!r}];"
        "print([m for m in ('torch', 'transformers', 'sklearn', 'matplotlib', 'pandas') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]", places


def test_to_read_the_catalogue_no_room_and_no_heavy_package_is_imported() -> None:
    code = (
        "import sys; from xdpx.config import catalogue; list(catalogue.entries('model'));"
        "print([m for m in sys.modules if m.split('.')[0] in {'torch', 'numpy', 'pydantic'} or m == 'xdpx.models'])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
