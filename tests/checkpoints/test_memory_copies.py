"""A copy of the state in memory: the newest that is whole wins, never an older one, never another run's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.checkpoints.folders import ALONE, Ranks
from xdpx.checkpoints.memory_copies import IDENTITY, SECONDS_UNTIL_FORGOTTEN, MemoryCopies


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "memory"
    place.mkdir()
    monkeypatch.setattr("xdpx.checkpoints.memory_copies.SHARED_MEMORY", str(place))
    return place


@pytest.fixture
def copies(tmp_path: Path, memory: Path) -> MemoryCopies:
    return of_run(tmp_path / "run")


def of_run(folder: Path, *, anew: bool = True) -> MemoryCopies:
    folder.mkdir(exist_ok=True)
    found = MemoryCopies(str(folder), ALONE, interval=5)
    found.begin(anew=anew)
    return found


def state(step: int) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((4,), float(step))}


def on_disk(tmp_path: Path) -> Checkpointer:
    return Checkpointer(str(tmp_path / "run"))


def test_a_copy_that_is_newer_than_what_was_saved_is_resumed(tmp_path: Path, copies: MemoryCopies) -> None:
    on_disk(tmp_path).save_state(10, state(10), facts={})
    for step in (10, 15):
        copies.save(step, state(step), {})
    MemoryCopies(str(tmp_path / "run"), ALONE, interval=5).bring_back()
    assert on_disk(tmp_path).newest_state() == 15
    assert torch.equal(on_disk(tmp_path).load_state(15)["weight"], state(15)["weight"])
    assert [path.name for path in Path(copies.place).glob("*.pts")] == ["checkpoint-15.pts"]


def test_a_copy_that_is_older_than_what_was_saved_is_left(tmp_path: Path, copies: MemoryCopies) -> None:
    copies.save(15, state(15), {})
    on_disk(tmp_path).save_state(20, state(20), facts={})
    copies.bring_back()
    assert on_disk(tmp_path).state_steps() == [20]


def test_a_copy_that_is_older_than_a_damaged_save_is_resumed(tmp_path: Path, copies: MemoryCopies) -> None:
    copies.save(15, state(15), {})
    on_disk(tmp_path).save_state(20, state(20), facts={})
    damage(tmp_path / "run/checkpoint-20.pts")
    copies.bring_back()
    assert on_disk(tmp_path).newest_state() == 15


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_copy_with_one_wrong_bit_is_passed_over(tmp_path: Path, copies: MemoryCopies) -> None:
    copies.save(15, state(15), {})
    damage(Path(copies.place, "checkpoint-15.pts"))
    copies.bring_back()
    assert on_disk(tmp_path).state_steps() == []


def test_the_copy_of_an_earlier_run_in_the_same_folder_is_not_taken(tmp_path: Path, copies: MemoryCopies) -> None:
    copies.save(15, state(15), {})
    (tmp_path / "run" / IDENTITY).write_text('{"run": "another"}')
    copies.bring_back()
    assert on_disk(tmp_path).state_steps() == []
    of_run(tmp_path / "run", anew=True)
    assert not Path(copies.place).exists()


def test_nothing_is_written_where_the_folder_in_memory_is_open_to_others(memory: Path, copies: MemoryCopies) -> None:
    home = memory / f"xdpx-{os.getuid()}"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    copies.save(15, state(15), {})
    assert not list(home.iterdir())


def test_without_room_on_one_machine_no_copy_is_kept(
    tmp_path: Path, memory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Ranks(0, 2, 0, gather=lambda value: [value, ["another machine", value[1], 0]])
    assert not MemoryCopies(str(tmp_path), pair, interval=5).is_wanted(state(1))
    assert "no copy of the state is kept in memory" in capsys.readouterr().err


def test_copies_of_another_run_go_when_nothing_in_them_has_changed_for_a_day(
    tmp_path: Path, copies: MemoryCopies
) -> None:
    long_ago = time.time() - 2 * SECONDS_UNTIL_FORGOTTEN
    deep = Path(copies.place) / "of-its-run" / "checkpoint-5"  # as `MemoryFolders` and `MemoryShares` keep them
    deep.mkdir(parents=True)
    for place in (deep.parent, Path(copies.place)):
        os.utime(place, (long_ago, long_ago))
    of_run(tmp_path / "another")
    assert deep.exists()
    os.utime(deep, (long_ago, long_ago))
    of_run(tmp_path / "another")
    assert not Path(copies.place).exists()


def test_the_copy_goes_when_the_run_has_ended(copies: MemoryCopies) -> None:
    copies.save(15, state(15), {})
    copies.forget()
    assert not Path(copies.place).exists()
