"""Sharded states on disk: whole or not at all, verified, and restored onto any mesh bit for bit."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from xdpx.checkpoints import folders, spmd_files, spmd_folders
from xdpx.config.faults import ConfigError

REPOSITORY = Path(__file__).parents[2]


class Moments(NamedTuple):
    mu: object
    nu: object


def mesh_of(*shape: int) -> Mesh:
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return Mesh(devices, ("replica", "data", "mdl"), axis_types=(AxisType.Auto,) * 3)


PLACES = {"w": PartitionSpec("data", "mdl"), "b": PartitionSpec("mdl"), "e": PartitionSpec(None, "data")}


def values(seed: int = 0, rows: int = 8):
    dice = np.random.default_rng(seed)
    params = {"w": dice.normal(size=(rows, 16)), "b": dice.normal(size=16).astype(jnp.bfloat16)}
    params = {"w": params["w"].astype(np.float32), "b": params["b"]}
    moments = Moments({"e": dice.normal(size=(2, 8)).astype(np.float32)}, ())
    return {"step": np.int32(seed), "params": params, "opt_state": (moments, {"none": np.zeros((0, 3), np.float32)})}


def place_of(path, mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PLACES.get(path[-1].key, PartitionSpec()))


def on(mesh: Mesh, tree):
    return jax.tree_util.tree_map_with_path(lambda path, leaf: jax.device_put(leaf, place_of(path, mesh)), tree)


def target(mesh: Mesh, tree):
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place_of(path, mesh)), tree
    )


def assert_same_bits(found, expected) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()
        assert mine.dtype == theirs.dtype


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 1, 1), (1, 8, 1), (1, 2, 4)], ids=str)
def test_what_one_mesh_saves_another_restores_bit_for_bit(tmp_path, shape):
    tree = values()
    path = spmd_files.save(on(mesh_of(2, 2, 2), tree), tmp_path, step=5)
    assert path == str(tmp_path / "checkpoint_00000005")
    found = spmd_files.restore(path, target(mesh_of(*shape), tree))
    assert_same_bits(found, tree)
    assert found["params"]["w"].sharding == NamedSharding(mesh_of(*shape), PLACES["w"])


def test_a_single_process_compiles_nothing_to_save(tmp_path: Path) -> None:
    state, compiled = on(mesh_of(2, 2, 2), values(1, rows=40)), list[str]()

    def note(event: str, seconds: float, **_: object) -> None:
        if "compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        spmd_files.save(state, tmp_path, step=1)
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert compiled == []


def test_random_keys_and_arrays_of_numpy_come_back_as_they_are(tmp_path: Path) -> None:
    key, rows = jax.random.key(3, impl="rbg"), np.arange(6, dtype=np.float32).reshape(3, 2)
    folder = spmd_files.save({"key": key, "rows": rows}, tmp_path, step=1)
    place = key.sharding
    found = spmd_files.read(folder, {
        "key": jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=place),
        "rows": jax.ShapeDtypeStruct(rows.shape, rows.dtype, sharding=place),
    })  # fmt: skip
    assert found["key"].dtype == key.dtype
    assert np.array_equal(jax.random.key_data(found["key"]), jax.random.key_data(key))
    assert np.array_equal(found["rows"], rows)


def test_the_folder_has_state_metadata_and_where_each_process_was_in_its_input(tmp_path):
    path = spmd_files.save(
        on(mesh_of(1, 2, 1), values()), tmp_path, step=7, train_input={"next": 3}, facts={"loss": 2.5}
    )
    assert sorted(os.listdir(path)) == ["checkpoint.manifest.json", "metadata", "state", "train_input"]
    assert os.listdir(Path(path) / "train_input") == ["process_0-of-1"]
    assert spmd_folders.read_train_input(path, 0, 1) == {"next": 3}
    assert spmd_folders.read_metadata(path)["facts"] == {"loss": 2.5}
    assert spmd_files.read_shapes(path)["params/b"] == ((16,), "bfloat16")
    with pytest.raises(ValueError, match="process_0-of-1, but this is process 1 of 2"):
        spmd_folders.read_train_input(path, 1, 2)


def test_a_subset_is_restored_and_the_rest_stays_as_it_was(tmp_path):
    path = spmd_files.save(on(mesh_of(1, 2, 1), values(1)), tmp_path, step=1)
    wanted = target(mesh_of(2, 1, 1), values())
    found = spmd_files.restore(path, wanted, subset=("params",))
    assert_same_bits(found["params"], values(1)["params"])
    assert found["opt_state"] == wanted["opt_state"]
    found = spmd_files.restore(path, wanted, subset=lambda name: name.endswith("/e"))
    assert_same_bits(found["opt_state"][0].mu, values(1)["opt_state"][0].mu)


def test_missing_tensors_wrong_shapes_and_types_are_named_all_at_once(tmp_path):
    path = spmd_files.save(on(mesh_of(1, 2, 1), values()), tmp_path, step=1)
    other = values(rows=4)
    other["params"]["b"] = other["params"]["b"].astype(np.float32)
    other["params"]["ww"] = other["params"]["w"]
    with pytest.raises(ConfigError) as caught:
        spmd_files.restore(path, target(mesh_of(1, 2, 1), other))
    text = str(caught.value)
    assert "params/w: is float32[8, 16] in this checkpoint, and float32[4, 16] in this model" in text
    assert "params/b: is bfloat16[16] in this checkpoint, and float32[16]" in text
    assert "params/ww: is not in this checkpoint of 5 tensors. The nearest is 'params/w'" in text


def test_a_damaged_file_is_found_by_its_hash_and_the_checkpoint_before_is_chosen(tmp_path, caplog):
    tree = on(mesh_of(1, 4, 1), values())
    older, newer = (spmd_files.save(tree, tmp_path, step=step) for step in (10, 20))
    assert spmd_folders.newest(tmp_path) == newer
    spmd_folders._verified.clear()
    victim = max((Path(newer) / "state" / "d").iterdir(), key=lambda file: file.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    found = spmd_folders.find(tmp_path)
    assert found.path == older
    assert f"state/d/{victim.name}: its content is not what was written" in found.skipped[0]
    with pytest.raises(folders.DamagedCheckpoint, match=victim.name):
        spmd_files.restore(newer, target(mesh_of(1, 4, 1), values()))


def test_a_save_in_the_background_holds_what_was_there_although_the_state_is_donated(tmp_path):
    mesh = mesh_of(2, 2, 2)
    train = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + leaf.dtype.type(1), tree), donate_argnums=0)
    state = on(mesh, values(3))
    path = spmd_files.save(state, tmp_path, step=3, background=True)
    for _ in range(20):
        state = train(state)
    spmd_files.wait()
    assert_same_bits(spmd_files.restore(path, target(mesh, values())), values(3))


def test_what_goes_wrong_in_the_background_is_raised_by_the_next_wait(tmp_path, monkeypatch):
    monkeypatch.setattr("xdpx.checkpoints.folders.publish", lambda *_, **__: (_ for _ in ()).throw(OSError("full")))
    spmd_files.save(on(mesh_of(1, 1, 1), values()), tmp_path, step=3, background=True)
    with pytest.raises(OSError, match="full"):
        spmd_files.wait()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("background", [False, True])
def test_a_full_disk_is_told_as_one_with_what_to_do(tmp_path, monkeypatch, background):
    def full(*_, **__):
        raise ValueError("RESOURCE_EXHAUSTED: Failed to write 8664 bytes to file 7 [os_error_code='28']")

    monkeypatch.setattr(type(spmd_files._writer()), "wait_until_finished", full)
    told = "checkpoint_00000003 could not be saved .No space left on device.. Earlier checkpoints are untouched"

    def save():
        spmd_files.save(on(mesh_of(1, 1, 1), values()), tmp_path, step=3, background=background)
        spmd_files.wait()

    with pytest.raises(OSError, match=told) as found:
        save()
    assert found.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == []


KILLED = """
    import os, signal, sys
    sys.path.insert(0, {tests!r})
    import test_spmd_files as here
    from xdpx.checkpoints import folders, publishing, spmd_files
    tree = here.on(here.mesh_of(1, 2, 2), here.values())
    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)
    spmd_files.save(tree, {place!r}, step=1)
    {fuse}
    spmd_files.save(here.on(here.mesh_of(1, 2, 2), here.values(9)), {place!r}, step=2, background=True)
    spmd_files.wait()
"""
FUSES = {
    "while tensors are written": ("spmd_files._writer().wait_until_finished = die", 1),
    "before the manifest": ("folders.publish = die", 1),
    "before it gets its name": ("publishing._give_name = die", 2),
}


@pytest.mark.parametrize("moment", FUSES)
def test_a_kill_inside_a_save_leaves_a_whole_one(tmp_path, moment):
    fuse, step = FUSES[moment]
    place = str(tmp_path / "checkpoints")
    script = textwrap.dedent(KILLED).format(tests=str(Path(__file__).parent), place=place, fuse=fuse)
    ended = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    path = spmd_folders.newest(place)
    assert path == f"{place}/checkpoint_{step:08d}"
    assert_same_bits(spmd_files.restore(path, target(mesh_of(1, 1, 1), values())), values(0 if step == 1 else 9))
    assert sorted(os.listdir(place)) == [f"checkpoint_{each:08d}" for each in range(1, step + 1)]


def test_the_last_ones_and_the_pinned_stay(tmp_path):
    tree = on(mesh_of(1, 1, 1), values())
    for step in (0, 50, 100, 150):
        spmd_files.save(tree, tmp_path, step=step)
    assert spmd_folders.rotate(tmp_path, keep_last=None) == []
    spmd_folders.rotate(tmp_path, keep_last=1, pinned=(50,))
    assert spmd_folders.steps(tmp_path) == [50, 150]
    spmd_folders.rotate(tmp_path, keep_last=1, current=50)
    assert spmd_folders.steps(tmp_path) == [50]


def test_nothing_is_deleted_while_the_newest_cannot_be_trusted(tmp_path):
    tree = on(mesh_of(1, 1, 1), values())
    paths = [spmd_files.save(tree, tmp_path, step=step) for step in (1, 2, 3)]
    assert spmd_folders.rotate(tmp_path, keep_last=2) == paths[:1]
    (Path(paths[2]) / "checkpoint.manifest.json").unlink()
    assert spmd_folders.rotate(tmp_path, keep_last=1) == []
    assert spmd_folders.steps(tmp_path) == [2, 3]


def test_an_object_store_takes_a_checkpoint_and_gives_it_back(s3_root):
    tree = values(4)
    path = spmd_files.save(on(mesh_of(1, 4, 1), tree), f"{s3_root}/job/checkpoints", step=4)
    assert spmd_folders.newest(f"{s3_root}/job/checkpoints") == path
    assert_same_bits(spmd_files.restore(path, target(mesh_of(1, 1, 2), tree)), tree)


def test_a_folder_may_be_named_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mesh, tree = mesh_of(1, 2, 1), values()
    folder = spmd_files.save(on(mesh, tree), "job/checkpoints", step=1)
    assert folder.startswith("job/checkpoints/")
    assert_same_bits(spmd_files.restore(folder, target(mesh, tree)), tree)


@pytest.mark.parametrize("name", ["lr[1e-3]", "what?", "all*"])
def test_a_folder_may_have_the_characters_of_patterns_in_its_name(tmp_path: Path, name: str) -> None:
    mesh = mesh_of(1, 2, 2)
    saved = spmd_files.save(on(mesh, values()), tmp_path / name, step=1, background=True)
    spmd_files.wait()
    assert_same_bits(spmd_files.restore(saved, target(mesh, values())), values())
