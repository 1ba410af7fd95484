"""What is half-written, cut, missing or flipped is always noticed and named; a full or closed disk loses nothing."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from xdpx.utils import io
from xdpx.utils.commit import Commit, discard, manifests, problems, read_manifest, replacing, sweep

FILES = {"weights.pt": os.urandom(3000), "state.pts": os.urandom(777)}


def commit(folder: str | Path, name: str = "step-1", files: dict[str, bytes] = FILES, **facts: Any) -> None:
    with Commit(folder, name, facts=facts) as new:
        for file_name, data in files.items():
            with new.open(file_name) as file:
                file.write(data)


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    commit(tmp_path, best_score=0.5, text="grün\n", nothing=None)
    return tmp_path


def test_every_flipped_bit_is_detected(committed: Path) -> None:
    dice = random.Random(0)
    for file_name in ("weights.pt", "state.pts", "step-1.manifest.json"):
        path = committed / file_name
        whole = path.read_bytes()
        for bit in dice.sample(range(len(whole) * 8), 1000 if file_name.endswith("json") else 100):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << (bit % 8)
            path.write_bytes(flipped)
            assert problems(committed, "step-1", hashes=True), f"{file_name}, bit {bit}"
        path.write_bytes(whole)
    assert problems(committed, "step-1", hashes=True) == []


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut by one": lambda data: data[:-1],
    "cut in half": lambda data: data[: len(data) // 2],
    "one more": lambda data: data + b"\0",
    "zeroed block": lambda data: data[:100] + bytes(100) + data[200:],
}


@pytest.mark.parametrize("file_name", ["weights.pt", "state.pts", "step-1.manifest.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named(committed: Path, file_name: str, damage: str) -> None:
    path = committed / file_name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    (problem,) = problems(committed, "step-1", hashes=True)
    assert problem.startswith(file_name if "manifest" not in file_name else "step-1: its manifest is damaged")


def test_a_missing_file_is_named(committed: Path) -> None:
    (committed / "state.pts").unlink()
    assert problems(committed, "step-1", hashes=False) == ["state.pts: it is missing."]
    (committed / "step-1.manifest.json").unlink()
    assert problems(committed, "step-1", hashes=False) == ["step-1: there is no manifest."]
    assert read_manifest(committed, "step-1") is None


def test_a_manifest_under_another_name_does_not_count(committed: Path) -> None:
    os.rename(committed / "step-1.manifest.json", committed / "step-2.manifest.json")
    assert problems(committed, "step-2", hashes=False) == ["step-2: its manifest is that of 'step-1'."]


def test_facts_come_back_as_they_were(committed: Path) -> None:
    manifest = read_manifest(committed, "step-1")
    assert manifest is not None
    assert manifest.facts == {"best_score": 0.5, "text": "grün\n", "nothing": None}
    assert manifest.files["weights.pt"].size == 3000
    assert manifest.created.endswith("+00:00")


def test_facts_that_json_cannot_hold_are_refused_and_the_old_set_stays(committed: Path) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        commit(committed, what=object())
    assert problems(committed, "step-1", hashes=True) == []
    assert len(os.listdir(committed)) == 3


def test_leaving_by_an_exception_changes_nothing(any_root: str) -> None:
    commit(any_root)
    with pytest.raises(RuntimeError), Commit(any_root, "step-1") as new:  # noqa: PT012 - the block is what is tested
        with new.open("weights.pt", "w") as file:
            file.write("half")
        raise RuntimeError
    assert problems(any_root, "step-1", hashes=True) == []
    assert len(io.listdir(any_root)) == 3


def test_a_file_left_open_is_refused(tmp_path: Path) -> None:
    new = Commit(tmp_path, "step-1").__enter__()
    left_open = new.open("weights.pt")
    left_open.write(b"x")
    with pytest.raises(ValueError, match=r"weights.pt was not closed"):
        new.__exit__(None)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["", "a/b", "../a", "/a"])
def test_names_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    if name != "a/b":
        with pytest.raises(ValueError, match="leads out"), Commit(tmp_path, "set") as new:
            new.open(name)
    with pytest.raises(ValueError, match="not a name for a commit"):
        Commit(tmp_path, name if "/" in name else "")


def test_files_may_be_adopted_overwritten_and_lie_deeper(any_root: str, tmp_path: Path) -> None:
    (tmp_path / "written").write_bytes(b"by somebody else")
    with Commit(any_root, "set") as new:
        new.adopt("sub/adopted", tmp_path / "written")
        with new.open("patched") as file:
            file.write(b"????end")
            file.seek(0)
            file.write(b"HEAD")
    assert problems(any_root, "set", hashes=True) == []
    assert io.open(io.join(any_root, "patched")).read() == "HEADend"
    assert io.open(io.join(any_root, "sub/adopted")).read() == "by somebody else"
    assert not (tmp_path / "written").exists()


def test_discarding_takes_the_set_and_nothing_else(any_root: str) -> None:
    commit(any_root, "step-1", {"a": b"1"})
    commit(any_root, "step-2", {"b": b"2"})
    assert manifests(any_root) == ["step-1", "step-2"]
    discard(any_root, "step-1")
    assert io.listdir(any_root) == ["b", "step-2.manifest.json"]
    discard(any_root, "step-1")
    assert manifests(io.join(any_root, "nowhere")) == []


def test_a_set_is_whole_after_travelling_between_stores(tmp_path: Path, s3_root: str) -> None:
    commit(tmp_path / "a")
    places = [str(tmp_path / "a"), f"{s3_root}/b", f"memory://{tmp_path.name}/c", str(tmp_path / "d")]
    for source, target in zip(places, places[1:], strict=False):
        io.copytree(source, target)
        assert problems(target, "step-1", hashes=True) == []


def test_sweeping_spares_the_living_and_the_foreign(tmp_path: Path) -> None:
    from xdpx.utils.owners import new_owner_id, temporary_name

    gone = temporary_name(str(tmp_path / "a"), "0123456789-1-1-00000000".replace("0123456789", new_owner_id()[:10]))
    alive = temporary_name(str(tmp_path / "a"))
    foreign = temporary_name(str(tmp_path / "a"), "0123456789-1-1-00000000")
    for path in (gone, alive, foreign, str(tmp_path / "mine.tmp-file")):
        Path(path).write_text("x")
    assert sweep(tmp_path) == [gone]
    os.utime(foreign, (0, 0))
    assert sweep(tmp_path) == [foreign]
    assert sorted(os.listdir(tmp_path)) == sorted([Path(alive).name, "mine.tmp-file"])


def test_the_longest_names_can_be_written(tmp_path: Path) -> None:
    name = "é" * 127  # 254 of the 255 bytes a name may have
    with replacing(tmp_path / name) as file:
        file.write("x")
    assert os.listdir(tmp_path) == [name]


def test_replacing_keeps_a_link_and_the_mode(tmp_path: Path) -> None:
    (tmp_path / "real.sh").write_text("old")
    (tmp_path / "real.sh").chmod(0o750)
    (tmp_path / "link.sh").symlink_to("real.sh")
    with replacing(tmp_path / "link.sh") as file:
        file.write("new")
    assert (tmp_path / "link.sh").is_symlink()
    assert (tmp_path / "real.sh").read_text() == "new"
    assert (tmp_path / "real.sh").stat().st_mode & 0o777 == 0o750


# ---- the disk itself


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_leaves_the_old_set_and_recovers(small_disk: Path) -> None:
    commit(small_disk)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left") as caught:
            commit(small_disk, files={"weights.pt": bytes(600_000), "state.pts": bytes(600_000)})
        assert caught.value.errno == errno.ENOSPC
        assert problems(small_disk, "step-1", hashes=True) == []
        assert len(os.listdir(small_disk)) == 3
    commit(small_disk, files={"weights.pt": bytes(600_000)})
    assert problems(small_disk, "step-1", hashes=True) == []


def test_a_full_disk_leaves_a_file_that_was_to_be_replaced(small_disk: Path) -> None:
    (small_disk / "a").write_text("old")
    with pytest.raises(OSError, match="No space left"), replacing(small_disk / "a", "wb") as file:
        file.write(bytes(2_000_000))
    assert (small_disk / "a").read_text() == "old"
    assert os.listdir(small_disk) == ["a"]


def test_too_little_room_is_said_before_anything_is_written(small_disk: Path) -> None:
    with pytest.raises(OSError, match=r"Needs 1.0 MiB, but only 1.0 MiB are free|Needs .* MiB"):
        Commit(small_disk, "step-1", needs_bytes=1_000_000).__enter__()
    assert os.listdir(small_disk) == []


def test_a_folder_one_may_not_write_is_refused_and_stays(tools: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commit(folder)
        folder.chmod(0o555)

        def as_nobody() -> None:
            os.setuid(65534)
            assert problems(folder, "step-1", hashes=True) == []
            with pytest.raises(PermissionError):
                commit(folder)
            with pytest.raises(PermissionError), replacing(folder / "a"):
                pass
            assert not io.is_writable(folder)

        if os.getuid() != 0:
            pytest.skip("only root can become somebody else")
        assert tools.in_child(as_nobody) == 0
        assert problems(folder, "step-1", hashes=True) == []
        assert len(os.listdir(folder)) == 3
