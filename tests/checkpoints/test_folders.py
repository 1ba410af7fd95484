from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from xdpx.checkpoints import folders, foreign
from xdpx.checkpoints.folders import FolderCommit, Ranks, Staging, check, commit_folder, find, newest
from xdpx.checkpoints.publishing import REPLACED
from xdpx.utils import io
from xdpx.utils.owners import new_owner_id


def fill(step: int, *, resumable: bool = True) -> Callable[[Staging], None]:
    def write(staging: Staging) -> None:
        save_file({"weight": torch.full((8,), float(step))}, f"{staging.path}/model.safetensors")
        with staging.open("trainer_state.json", "w") as file:
            json.dump({"global_step": step}, file)
        for name in ("optimizer.pt", "scheduler.pt") if resumable else ():
            with staging.open(name) as file:
                torch.save({"step": step}, file)
        with staging.open("extra/notes.txt", "w") as file:
            file.write("below")

    return write


def saved(parent: Any, *steps: int, finite: bool = True, **options: Any) -> str:
    for step in steps:
        facts = {"step": step, "finite": finite}
        commit_folder(parent, folders.folder_name(step), fill(step, **options), facts=facts)
    return str(parent)


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def test_a_folder_is_committed_with_a_manifest_of_all_its_files(any_root: str) -> None:
    saved(any_root, 5)
    path = io.join(any_root, "checkpoint-5")
    assert check(path) == []
    manifest = folders.manifest_of(path)
    assert manifest is not None
    assert manifest.facts["step"] == 5
    assert sorted(manifest.files) == [
        "extra/notes.txt", "model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json",
    ]  # fmt: skip
    assert newest(any_root) == path


def test_nothing_is_left_beside_a_committed_folder(tmp_path: Path) -> None:
    saved(tmp_path, 5)
    assert os.listdir(tmp_path) == ["checkpoint-5"]


def test_a_second_save_of_a_step_replaces_the_first(any_root: str) -> None:
    saved(any_root, 5)
    commit_folder(any_root, "checkpoint-5", lambda staging: fill(6, resumable=False)(staging))
    path = io.join(any_root, "checkpoint-5")
    assert check(path) == []
    assert foreign.read_json(io.join(path, "trainer_state.json")) == {"global_step": 6}
    assert not io.exists(io.join(path, "optimizer.pt"))
    assert io.listdir(any_root) == ["checkpoint-5"]


def test_an_exception_while_writing_changes_nothing(any_root: str) -> None:
    saved(any_root, 5)

    def fail(staging: Staging) -> None:
        fill(5)(staging)
        raise KeyError("in the middle")

    with pytest.raises(KeyError, match="in the middle"):
        commit_folder(any_root, "checkpoint-5", fail)
    assert check(io.join(any_root, "checkpoint-5")) == []
    assert io.listdir(any_root) == ["checkpoint-5"]


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one part of a path"):
        FolderCommit(tmp_path, "../elsewhere")


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="are free"):
        FolderCommit(tmp_path, "checkpoint-1", needs_bytes=1 << 60).__enter__()
    assert os.listdir(tmp_path) == []


def test_the_newest_is_the_one_with_the_highest_number(any_root: str) -> None:
    saved(any_root, 100, 9, 20)
    assert folders.steps(any_root) == [9, 20, 100]
    assert newest(any_root) == io.join(any_root, "checkpoint-100")


@pytest.mark.parametrize("how", ["missing", "cut", "one bit"])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "trainer_state.json", folders.MANIFEST])
def test_what_is_damaged_is_named_and_the_one_before_is_used(
    tmp_path: Path, how: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path, 10, 20)
    spoil(tmp_path / "checkpoint-20" / name, how)
    if name == folders.MANIFEST and how == "missing":  # then it is looked at like the original's, and is whole
        assert newest(tmp_path) == str(tmp_path / "checkpoint-20")
        return
    assert newest(tmp_path) == str(tmp_path / "checkpoint-10")
    said = capsys.readouterr().err
    assert "checkpoint-20" in said
    assert name in said or "manifest" in said


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    for path in sorted((tmp_path / "checkpoint-10").glob("*.*")):
        whole = path.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 25)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            assert check(tmp_path / "checkpoint-10"), f"{path.name} byte {place}"
        path.write_bytes(whole)
    assert check(tmp_path / "checkpoint-10") == []


def test_weights_alone_are_no_checkpoint_to_continue_from(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    saved(tmp_path, 20, resumable=False)
    found = find(tmp_path)
    assert found.path == str(tmp_path / "checkpoint-10")
    assert "optimizer.pt" in found.skipped[0]
    assert newest(tmp_path, resumable=False) == str(tmp_path / "checkpoint-20")


def test_files_that_a_callback_adds_later_do_no_harm(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    (tmp_path / "checkpoint-10" / "my_notes.txt").write_text("mine")
    assert check(tmp_path / "checkpoint-10") == []


def test_where_there_is_nothing_nothing_is_found(any_root: str) -> None:
    assert find(any_root) == folders.NewestCheckpoint(None)
    assert check(io.join(any_root, "checkpoint-1")) == ["checkpoint-1: there is no such folder."]


# ---- after a crash


def dead_owner() -> str:
    machine, _, rest = new_owner_id().partition("-")
    return f"{machine}-1-999999999-{rest[-8:]}"


def test_what_a_dead_writer_had_not_finished_is_removed(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    left = tmp_path / f"checkpoint-20.tmp-{dead_owner()}"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    assert newest(tmp_path) == str(tmp_path / "checkpoint-10")
    assert os.listdir(tmp_path) == ["checkpoint-10"]


def test_what_a_living_writer_has_not_finished_stays(tmp_path: Path) -> None:
    with FolderCommit(tmp_path, "checkpoint-20") as staging:
        fill(20)(staging)
        folders.recover(tmp_path)
        assert newest(tmp_path) is None
    assert newest(tmp_path) == str(tmp_path / "checkpoint-20")


def test_what_a_dead_writer_had_written_whole_is_used(tmp_path: Path) -> None:
    saved(tmp_path, 10, 20)
    os.rename(tmp_path / "checkpoint-20", tmp_path / f"checkpoint-20.tmp-{dead_owner()}")
    assert newest(tmp_path) == str(tmp_path / "checkpoint-20")


def test_a_checkpoint_that_was_to_be_replaced_comes_back_when_its_successor_is_not_whole(tmp_path: Path) -> None:
    saved(tmp_path, 20)
    os.rename(tmp_path / "checkpoint-20", tmp_path / f"checkpoint-20{REPLACED}.tmp-{dead_owner()}")
    (tmp_path / f"checkpoint-20.tmp-{dead_owner()}").mkdir()
    assert newest(tmp_path) == str(tmp_path / "checkpoint-20")
    assert os.listdir(tmp_path) == ["checkpoint-20"]


def test_files_that_an_override_wrote_into_the_folder_before_become_part_of_the_checkpoint(tmp_path: Path) -> None:
    early = tmp_path / "checkpoint-20"
    (early / "extra").mkdir(parents=True)
    for name in (
        "projector.bin",
        "extra/mine.txt",
        "extra/notes.txt",
        "rng_state_1.pth",
        "model-00001-of-00002.safetensors",
    ):
        (early / name).write_text("written before")
    saved(tmp_path, 20)
    assert (early / "projector.bin").read_text() == (early / "extra/mine.txt").read_text() == "written before"
    assert (early / "extra/notes.txt").read_text() == "below"
    assert not (early / "rng_state_1.pth").exists(), "left over from a checkpoint that another Trainer had begun"
    assert not list(early.glob("model-0*"))
    assert check(early) == []


def test_a_finished_checkpoint_is_replaced_as_a_whole(tmp_path: Path) -> None:
    saved(tmp_path, 20)
    (tmp_path / "checkpoint-20" / "mine.txt").write_text("of the run before")
    saved(tmp_path, 20)
    assert not (tmp_path / "checkpoint-20" / "mine.txt").exists()


def test_a_moved_run_still_finds_its_best_checkpoint(tmp_path: Path) -> None:
    saved(tmp_path / "there", 5)
    assert folders.beside("/gone/run/checkpoint-5", tmp_path / "there") == str(tmp_path / "there/checkpoint-5")
    assert folders.beside("/gone/run/checkpoint-6", tmp_path / "there") is None
    assert folders.beside(None, tmp_path / "there") is None


# ---- several processes, here threads


class Company:
    """A few threads that speak as processes do."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier = size, threading.Barrier(size, timeout=300)
        self.said: list[Any] = [None] * size

    def gather(self, rank: int, value: Any) -> list[Any]:
        self.said[rank] = value
        self.barrier.wait()
        heard = list(self.said)
        self.barrier.wait()
        return heard

    def ranks(self, rank: int, *, nodes: int = 1) -> Ranks:
        return Ranks(
            rank,
            self.size,
            rank % (self.size // nodes),
            self.barrier.wait,
            lambda value: self.gather(rank, value)[0],
            lambda value: self.gather(rank, value),
        )

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        results: list[Any] = [None] * self.size

        def one(rank: int) -> None:
            try:
                results[rank] = work(rank)
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        return results


def together(staging: Staging) -> None:
    if staging.writes:
        fill(7)(staging)
    with staging.open(f"rng_state_{staging.ranks.rank}.pth") as file:
        torch.save({"rank": staging.ranks.rank}, file)


@pytest.mark.parametrize("nodes", [1, 2])
def test_processes_that_share_a_disk_make_one_folder(tmp_path: Path, nodes: int) -> None:
    company = Company(4)
    paths = company.run(
        lambda rank: commit_folder(tmp_path, "checkpoint-7", together, ranks=company.ranks(rank, nodes=nodes))
    )
    assert set(paths) == {str(tmp_path / "checkpoint-7")}
    assert os.listdir(tmp_path) == ["checkpoint-7"]
    manifest = folders.manifest_of(tmp_path / "checkpoint-7")
    assert manifest is not None
    assert manifest.facts["processes"] == 4
    assert {f"rng_state_{rank}.pth" for rank in range(4)} <= set(manifest.files)
    assert check(tmp_path / "checkpoint-7") == []


@pytest.mark.parametrize("everywhere", [False, True])
def test_machines_with_a_disk_of_their_own_each_get_a_folder(tmp_path: Path, everywhere: bool) -> None:
    company = Company(4)

    def work(rank: int) -> str:
        ranks = company.ranks(rank, nodes=2)
        return commit_folder(
            tmp_path / f"node-{rank // 2}", "checkpoint-7", together, ranks=ranks, everywhere=everywhere
        )

    company.run(work)
    for node, own in ((0, (0, 1)), (1, (2, 3))):
        folder = tmp_path / f"node-{node}"
        assert os.listdir(folder) == ["checkpoint-7"]
        names = set(os.listdir(folder / "checkpoint-7"))
        assert {f"rng_state_{rank}.pth" for rank in own} <= names
        assert ("model.safetensors" in names) == (node == 0 or everywhere)
        assert (check(folder / "checkpoint-7", hashes=True)) == []


def test_when_one_process_fails_all_raise_and_nothing_changes(tmp_path: Path) -> None:
    company = Company(3)

    def write(staging: Staging) -> None:
        if staging.ranks.rank == 2:
            raise OSError("its disk is full")
        together(staging)

    errors = company.run(lambda rank: commit_folder(tmp_path, "checkpoint-7", write, ranks=company.ranks(rank)))
    assert [type(error) for error in errors] == [OSError] * 3
    assert "process 2 failed (OSError: its disk is full)" in str(errors[0])
    assert os.listdir(tmp_path) == []


def test_when_the_folder_cannot_be_made_all_raise(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    company = Company(2)
    errors = company.run(
        lambda rank: commit_folder(tmp_path / "file", "checkpoint-7", together, ranks=company.ranks(rank))
    )
    assert all(isinstance(error, OSError) for error in errors)


def test_when_publishing_fails_all_raise(tmp_path: Path) -> None:
    company = Company(2)

    def work(rank: int) -> str:
        return commit_folder(tmp_path, "checkpoint-7", together, ranks=company.ranks(rank), facts={"bad": object()})

    errors = company.run(work)
    assert isinstance(errors[0], TypeError)
    assert isinstance(errors[1], OSError)
    assert "process 0 failed" in str(errors[1])
    assert os.listdir(tmp_path) == []
