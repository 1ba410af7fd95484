"""A restart finds the programs of its launch without tracing their functions, unless code has changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from xdpx.engines.spmd import kept_programs
from xdpx.engines.spmd.launch_programs import LaunchPrograms
from xdpx.utils.distributed_utils import LAUNCH


@pytest.fixture(autouse=True)
def _launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(LAUNCH, "first")
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "own_layers.py"
    path.write_text("WIDTH = 4\n")
    module = ModuleType("own_layers")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "own_layers", module)
    return path


def everywhere(value: Any) -> Any:
    """Return a value on all devices, as what an engine trains is."""
    spread = jax.sharding.NamedSharding(jax.make_mesh((jax.device_count(),), ("x",)), jax.sharding.PartitionSpec())
    return jax.device_put(value, spread)


ARGS: tuple[Any, ...] = everywhere(({"weight": jnp.arange(4.0), "step": jnp.zeros((), jnp.int32)}, (jnp.ones(4),)))


def update(state: dict[str, jax.Array], group: tuple[jax.Array]) -> Any:
    new = {"weight": state["weight"] + group[0], "step": state["step"] + 1}
    return new, group[0].sum(), {"norm": (state["weight"] ** 2).sum(), "by layer": {"a": (group[0].max(),)}}


def store(identity: str = "a task") -> None:
    write(LaunchPrograms(identity, {"loss": 0, "count": 1}), "update", update, ARGS)


def write(programs: LaunchPrograms, name: str, function: Any, args: tuple[Any, ...]) -> None:
    jax.clear_caches()
    lowered = jax.jit(function).lower(*args)
    content = kept_programs.compiled(lowered).content
    assert content is not None
    programs.write(name, args, lowered.out_tree, content)


def found(identity: str = "a task", name: str = "update", args: tuple[Any, ...] = ARGS) -> Any:
    return LaunchPrograms(identity).read(name, args)


def test_a_restart_gets_the_program_and_what_tracing_it_wrote_down() -> None:
    store()
    programs = LaunchPrograms("a task")
    program = programs.read("update", ARGS)
    assert program is not None
    again, wanted = program(*ARGS), update(*ARGS)
    assert programs.noted == {"loss": 0, "count": 1}
    assert str(jax.tree.structure(again)) == str(jax.tree.structure(wanted))
    assert all(map(jnp.array_equal, jax.tree.leaves(again), jax.tree.leaves(wanted)))


def test_another_task_function_shape_launch_or_setting_traces_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    store()
    assert found() is not None
    assert found("another task") is None
    assert found(name="score") is None
    assert found(args=everywhere((ARGS[0], (jnp.ones(4, jnp.int32),)))) is None
    with monkeypatch.context() as changed:
        changed.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        assert found() is None
    with monkeypatch.context() as changed:
        changed.setenv(LAUNCH, "second")
        assert found() is None
    assert found() is not None


def test_code_that_changed_on_disk_is_traced_anew(own_code: Path) -> None:
    store()
    assert found() is not None
    own_code.write_text("WIDTH = 8 \n")
    assert found() is None


def test_a_damaged_file_is_traced_anew(tmp_path: Path) -> None:
    store()
    (path,) = tmp_path.glob("*.untraced")
    path.write_bytes(path.read_bytes()[:-1])
    assert found() is None


def test_nothing_is_stored_without_an_identity_a_launch_or_for_other_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store("")
    write(LaunchPrograms("a task"), "predict", lambda given: [given], ARGS[1])
    monkeypatch.delenv(LAUNCH)
    store()
    assert not list(tmp_path.glob("*.untraced"))
