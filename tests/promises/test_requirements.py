"""The lock files of a release: complete, and what the package asks for."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
KINDS = {"cpu": "jaxlib", "cuda13": "jax-cuda13-plugin", "tpu": "libtpu"}


FILES: dict[str, list[str]] = {
    "torch": [],
    "dev": ["dev"],
    **{f"jax-{kind}": ["jax", "gcs", "sentencepiece"] for kind in KINDS},
}
"""Which extras each lock file is for."""


def pinned(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_lock_file_is_known() -> None:
    assert {file.stem for file in (ROOT / "requirements").iterdir()} == set(FILES)


def asked_for(extras: list[str]) -> Iterator[Requirement]:
    """Return what the package asks for with these extras, of which one may be made of others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [line for extra in extras for line in project["optional-dependencies"][extra]]
    for wanted in map(Requirement, [*project["dependencies"], *named]):
        yield from asked_for(sorted(wanted.extras)) if wanted.name == "xdpx" else [wanted]


@pytest.mark.parametrize("name", FILES)
def test_a_lock_file_has_what_the_package_and_its_extras_ask_for(name: str) -> None:
    found = pinned(name)
    for wanted in asked_for(FILES[name]):
        version = found.get(canonicalize_name(wanted.name))
        assert version is not None, f"{wanted} is missing"
        assert wanted.specifier.contains(version), f"{wanted}: {version}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_file_of_jax_has_what_its_device_needs(kind: str) -> None:
    assert KINDS[kind] in pinned(f"jax-{kind}")


def test_all_machines_have_the_same_jax_and_libraries_on_it() -> None:
    for name in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "fiddle", "torch", "numpy"):
        assert len({pinned(f"jax-{kind}")[name] for kind in KINDS}) == 1, name


def test_the_document_tells_of_each_file_whether_it_was_run() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text()
    for kind in KINDS:
        told = "all tests run with them" if kind == "cpu" else "the versions resolve, but were not run"
        assert f"`requirements/jax-{kind}.txt`: {told}" in text
        assert ("not run" in (ROOT / "requirements" / f"jax-{kind}.txt").read_text()) is (kind != "cpu")
