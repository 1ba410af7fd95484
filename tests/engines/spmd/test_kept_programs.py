"""A process that is not the first finds what the one before it in its place has compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from xdpx.engines.spmd import kept_programs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("xdpx.engines.spmd.world.process_index", lambda: 1)
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


def values() -> dict[str, jax.Array]:
    """Numbers that lie on all devices, as what an engine trains does."""
    everywhere = jax.sharding.NamedSharding(jax.make_mesh((jax.device_count(),), ("x",)), jax.sharding.PartitionSpec())
    return {"x": jax.device_put(jnp.arange(4.0), everywhere)}


def lowered(shift: float = 1.0) -> Any:
    return jax.jit(lambda given: {"sum": (given["x"] + shift).sum()}).lower(values())


def test_a_program_is_compiled_once_and_a_damaged_one_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kept_programs.compiled(lowered()).program
    (path,) = folder.glob("*.program")
    monkeypatch.setattr(kept_programs, "_compiled", lambda *_: "compiled")
    again = kept_programs.compiled(lowered()).program
    assert float(again(values())["sum"]) == float(first(values())["sum"]) == 10.0
    assert str(kept_programs.compiled(lowered(2.0))) == "compiled"
    path.write_bytes(path.read_bytes()[:-1])
    assert str(kept_programs.compiled(lowered())) == "compiled"


def test_a_program_that_calls_python_back_is_compiled_and_not_kept(folder: Path) -> None:
    def calling(given: jax.Array) -> jax.Array:
        jax.debug.callback(lambda value: None, given)
        return given + 1

    program = kept_programs.compiled(jax.jit(calling).lower(jnp.zeros(3))).program
    assert program(jnp.zeros(3)).tolist() == [1, 1, 1]
    assert not list(folder.glob("*.program"))


def test_a_program_that_jaxs_own_cache_has_is_compiled_anew_and_can_be_called(folder: Path) -> None:
    before = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    lowered(3.0).compile()
    jax.clear_caches()
    for _ in range(2):  # stored again, a program of that cache would load the second time, and fail when it is called
        assert float(kept_programs.compiled(lowered(3.0)).program(values())["sum"]) == 18.0
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before)
