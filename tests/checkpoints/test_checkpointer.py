from pathlib import Path
from typing import Any

import pytest
import torch

from xdpx.checkpoints import layout
from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.checkpoints.trusted import bytes_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def saved(folder: Path, *steps: int) -> Checkpointer:
    checkpointer = Checkpointer(str(folder))
    for step in steps:
        values = {"weight": torch.full((1000,), float(step))}
        checkpointer.save_weights(step, values, facts={})
        checkpointer.save_state(step, {"engine": values, "step": step}, facts={})
    return checkpointer


def test_what_was_saved_comes_back(folder: Path) -> None:
    checkpointer = saved(folder, 5)
    assert checkpointer.load_weights(5)["weight"][0] == 5.0
    assert checkpointer.load_state(5)["step"] == 5
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint-5.manifest.json", "checkpoint-5.pt", "checkpoint-5.pts", "checkpoint-5.pts.manifest.json",
    ]  # fmt: skip


def test_equal_values_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        saved(tmp_path / name, 1)
    assert (tmp_path / "a/checkpoint-1.pts").read_bytes() == (tmp_path / "b/checkpoint-1.pts").read_bytes()


def test_steps_are_ordered_as_numbers(folder: Path) -> None:
    assert saved(folder, 100, 9, 20).state_steps() == [9, 20, 100]


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "longer":
        path.write_bytes(data + b"\0")
    else:
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "longer", "one bit"])
@pytest.mark.parametrize("file_name", ["checkpoint-20.pts", "checkpoint-20.pts.manifest.json"])
def test_a_damaged_newest_state_is_named_and_the_one_before_is_used(
    folder: Path, how: str, file_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpointer = saved(folder, 10, 20)
    spoil(folder / file_name, how)
    assert checkpointer.newest_state() == 10
    if not (how == "missing" and file_name.endswith(".pts")):
        assert "checkpoint-20.pts" in capsys.readouterr().err


def test_every_flipped_bit_of_a_state_is_found(folder: Path) -> None:
    checkpointer = saved(folder, 10)
    path = folder / "checkpoint-10.pts"
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert checkpointer.newest_state() is None
    path.write_bytes(whole)
    assert checkpointer.newest_state() == 10


def test_pruning_keeps_what_is_wanted_and_two_states_in_any_case(folder: Path) -> None:
    checkpointer = saved(folder, 1, 2, 3, 4)
    checkpointer.prune(weights=[2, 4], states=[4])
    assert (checkpointer.weight_steps(), checkpointer.state_steps()) == ([2, 4], [3, 4])
    assert checkpointer.load_weights(2)["weight"][0] == 2.0
    checkpointer.prune(weights=[], states=[])
    assert (checkpointer.weight_steps(), checkpointer.state_steps()) == ([2, 4], [3, 4])


def test_nothing_is_pruned_while_the_newest_is_damaged(folder: Path) -> None:
    checkpointer = saved(folder, 1, 2, 3, 4)
    spoil(folder / "checkpoint-4.pts", "one bit")
    spoil(folder / "checkpoint-4.pt", "one bit")
    checkpointer.prune(weights=[4], states=[4])
    assert (checkpointer.weight_steps(), checkpointer.state_steps()) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_damaged_state_does_not_count_among_the_two_that_stay(folder: Path) -> None:
    checkpointer = saved(folder, 1, 2, 3)
    spoil(folder / "checkpoint-2.pts", "cut")
    checkpointer.prune(weights=None, states=[3])
    assert checkpointer.state_steps() == [1, 3]


def test_damaged_states_beyond_the_one_resumed_from_go_when_the_next_is_saved(folder: Path) -> None:
    checkpointer = saved(folder, 10, 20, 30)
    spoil(folder / "checkpoint-30.pts", "one bit")
    saved(folder, 25).prune(weights=None, states=[25])
    assert checkpointer.state_steps() == [20, 25]


@pytest.mark.parametrize("odd", [{"a": [{"b": object()}]}, {"a": [{"b": {1, 2}}]}])
def test_what_could_not_be_read_back_is_not_written(folder: Path, odd: Any) -> None:
    with pytest.raises(TypeError, match=r"a\[0\]\.b: is a"):
        Checkpointer(str(folder)).save_state(1, odd, facts={})
    assert Checkpointer(str(folder)).state_steps() == []


def test_checkpoints_live_on_a_store_as_they_do_on_a_disk() -> None:
    checkpointer = Checkpointer("memory://checkpoints/run")
    for step in (1, 2, 3):
        checkpointer.save_state(step, {"step": step}, facts={})
    checkpointer.prune(weights=None, states=[3])
    assert checkpointer.state_steps() == [2, 3]
    assert checkpointer.load_state(checkpointer.newest_state() or 0) == {"step": 3}


@pytest.mark.parametrize(("name", "suffix", "step"), [
    ("checkpoint-12.pt", layout.WEIGHTS, 12), ("checkpoint-12.pts", layout.STATE, 12),
    ("checkpoint-12.pts", layout.WEIGHTS, None), ("checkpoint-12.pt.tmp-1", layout.WEIGHTS, None),
    ("checkpoint-.pt", layout.WEIGHTS, None), ("embeddings.pt", layout.WEIGHTS, None),
])  # fmt: skip
def test_only_whole_checkpoint_names_have_a_step(name: str, suffix: str, step: int | None) -> None:
    assert layout.step_of(name, suffix) == step


def test_a_checkpoint_for_which_there_is_no_room_is_refused_before_it_is_written(folder: Path) -> None:
    checkpointer, petabyte = saved(folder, 1), torch.empty(1 << 50, dtype=torch.int8, device="meta")
    there = sorted(folder.iterdir())
    with pytest.raises(OSError, match=r"checkpoint-2.pts could not be saved \(Needs .* are free\)"):
        checkpointer.save_state(2, {"engine": {"weight": petabyte}}, facts={})
    assert sorted(folder.iterdir()) == there


def test_room_is_asked_for_what_is_written_once() -> None:
    shared = torch.zeros(100)
    assert bytes_of({"a": shared, "b": [shared[:10], torch.zeros(5)]}) == 420
