"""A process that is not the first finds what the one before it in its place has compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from xdpx.engines.spmd import kept_programs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("xdpx.engines.spmd.world.process_index", lambda: 1)
    monkeypatch.setitem(jax.config.values, "jax_compilation_cache_dir", str(tmp_path))
    return tmp_path


def lowered(shift: float = 1.0) -> Any:
    return jax.jit(lambda values: {"sum": (values["x"] + shift).sum()}).lower({"x": jnp.arange(4.0)})


def test_a_program_is_compiled_once_and_a_damaged_one_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kept_programs.compiled(lowered())
    (path,) = folder.glob("*.program")
    monkeypatch.setattr(kept_programs, "_compile", lambda *_: "compiled")
    again = kept_programs.compiled(lowered())
    values = {"x": jnp.arange(4.0)}
    assert float(again(values)["sum"]) == float(first(values)["sum"]) == 10.0
    assert kept_programs.compiled(lowered(2.0)) == "compiled"
    path.write_bytes(path.read_bytes()[:-1])
    assert kept_programs.compiled(lowered()) == "compiled"
