"""Each process keeps its own share in memory: all go on from one step, or from none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xdpx.checkpoints import spmd_shares
from xdpx.checkpoints.folders import ALONE, Ranks
from xdpx.checkpoints.memory_shares import MemoryShares, Part

PARTS = [Part("weight", ((0, 4),), "float32"), Part("step", (), "int32"), Part("none", ((0, 0),), "float32")]


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr("xdpx.checkpoints.memory_copies.SHARED_MEMORY", str(tmp_path / "memory"))


def of_run(tmp_path: Path, ranks: Ranks = ALONE, *, anew: bool = False, **more: Any) -> MemoryShares:
    (tmp_path / "run").mkdir(exist_ok=True)
    found = MemoryShares(str(tmp_path / "run"), ranks, interval=5, **more)
    found.begin(anew=anew)
    return found


def share(step: int) -> list[tuple[Part, np.ndarray]]:
    values = [np.full(4, step, np.float32), np.array(step, np.int32), np.zeros(0, np.float32)]
    return list(zip(PARTS, values, strict=True))


def test_the_newest_share_comes_back_with_its_facts(tmp_path: Path) -> None:
    shares = of_run(tmp_path, anew=True)
    for step in (5, 10):
        shares.save(step, share(step), {"place": step})
    again = of_run(tmp_path)
    assert again.newest(PARTS, before=100) == 10
    found, facts = again.load(10)
    assert {part: values.tolist() for part, values in found.items()} == {
        part: values.tolist() for part, values in share(10)
    }
    assert facts == {"place": 10}


def test_all_restore_the_newest_step_that_all_have(tmp_path: Path) -> None:
    told = {"other": 5}  # the step that another process has
    two = Ranks(0, 2, 0, gather=lambda value: [value, [told["other"]] if isinstance(value, list) else value])
    shares = of_run(tmp_path, two, anew=True, report=lambda step: [step, told["other"]])
    for step in (5, 10):
        shares.save(step, share(step), {})
    assert shares.newest(PARTS, before=100) == 5
    told["other"] = 10
    assert shares.newest(PARTS, before=100) == 10


@pytest.mark.parametrize(
    ("others", "kept"),
    [
        ([5, 10, 15, 20], [20]),
        ([None, 5, 10, 15], [15, 20]),
        ([None, None, 5, 10], [10, 15, 20]),
        ([5, 5, 5, 5], [5, 15, 20]),  # it cannot write any more
        ([None, None, None, None], [15, 20]),
    ],
    ids=["prompt", "one behind", "two behind", "failing", "silent"],
)
def test_the_step_that_all_have_stays_and_the_newest_two(
    tmp_path: Path, others: list[int | None], kept: list[int]
) -> None:
    two = Ranks(0, 2, 0, gather=lambda value: [value, value])
    reported = iter(others)
    shares = of_run(tmp_path, two, anew=True, report=lambda step: [step, next(reported)])
    for step in (5, 10, 15, 20):
        shares.save(step, share(step), {})
    assert shares._steps() == kept


def test_shares_of_steps_that_are_taken_again_do_not_count_as_the_newest(tmp_path: Path) -> None:
    two = Ranks(0, 2, 0, gather=lambda value: [value, [5]])
    for step in (5, 10):
        before = of_run(tmp_path, two, anew=step == 5, report=lambda step: [step, 5])
        before.save(step, share(step), {})
    again = of_run(tmp_path, two, report=lambda step: [step, None])
    assert again.newest(PARTS, before=100) == 5
    again.save(7, share(7), {})
    assert again._steps() == [5, 7]


def test_a_share_of_another_run_another_mesh_or_with_a_wrong_bit_is_not_taken(tmp_path: Path) -> None:
    shares = of_run(tmp_path, anew=True)
    shares.save(5, share(5), {})
    assert shares.newest([Part("weight", ((0, 8),), "float32")], before=100) == 0
    assert shares.newest(PARTS, before=5) == 0
    path = next((tmp_path / "memory").rglob("share-5.bin"))
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    assert of_run(tmp_path).newest(PARTS, before=100) == 0
    path.write_bytes(bytes([*data[:3], data[3] ^ 1, *data[4:]]))
    assert of_run(tmp_path).newest(PARTS, before=100) == 5
    assert of_run(tmp_path, anew=True).newest(PARTS, before=100) == 0


def test_parts_of_a_sharded_state_come_back_to_the_bit_though_it_was_donated(tmp_path: Path) -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    state = {
        "split": jax.device_put(jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3), split),
        "whole": jax.device_put(jnp.float32(3.5), whole),
    }
    target = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state)
    before = {name: np.array(leaf) for name, leaf in state.items()}
    shares = of_run(tmp_path, anew=True)
    assert spmd_shares.bytes_here(state) == 6 * 2 + 4
    taken = spmd_shares.shards_of(jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))(state))
    state = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)(state)
    shares.save(7, spmd_shares.on_host(taken).items(), {})
    assert shares.newest(spmd_shares.parts_of(target), before=100) == 7
    again = spmd_shares.joined(shares.load(7)[0], target)
    assert all(np.array_equal(np.array(again[name]), before[name]) for name in before)
    assert again["split"].sharding == split
