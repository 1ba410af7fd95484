import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xdpx.utils import commit, io, verified

BIG = verified.NOTED_FROM + 12_345


@pytest.fixture
def big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed file, large enough to be noted, that has been at rest."""
    monkeypatch.setattr(verified, "SECONDS_AT_REST", -1.0)
    write(str(tmp_path))
    return tmp_path / "train.pt"


def write(folder: str) -> None:
    with commit.Commit(folder, "train") as files, files.open("train.pt") as file:
        file.write(os.urandom(BIG))


def flip(path: Path, place: int = BIG // 2) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    original = verified._compared
    monkeypatch.setattr(verified, "_compared", lambda local, facts: found.append(local) or original(local, facts))
    verified._seen.clear()  # as in another process
    return found


def test_a_whole_file_is_read_once_and_noted_in_the_users_own_cache(big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = reads(monkeypatch)
    assert verified.trouble_of(str(big), "train") == ""
    assert verified.trouble_of(str(big), "train") == ""
    verified._seen.clear()
    assert verified.trouble_of(str(big), "train") == ""
    assert found == [str(big)]
    assert sorted(path.name for path in big.parent.iterdir()) == ["train.manifest.json", "train.pt"]


@pytest.mark.parametrize("place", [0, BIG // 3, BIG - 1])
def test_a_flipped_bit_is_found_also_after_the_file_was_noted(big: Path, place: int) -> None:
    assert verified.trouble_of(str(big), "train") == ""
    flip(big, place)
    assert "SHA-256 differs" in verified.trouble_of(str(big), "train")


def test_a_flip_with_the_old_time_put_back_is_found(big: Path) -> None:
    before = big.stat()
    assert verified.trouble_of(str(big), "train") == ""
    flip(big)
    os.utime(big, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "SHA-256 differs" in verified.trouble_of(str(big), "train")


def test_a_file_that_was_just_changed_is_not_noted(big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "SECONDS_AT_REST", 1e9)
    found = reads(monkeypatch)
    assert [verified.trouble_of(str(big), "train") for _ in range(2)] == ["", ""]
    assert len(found) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, 2]", b"\xff", b"null"])
def test_a_note_that_is_damaged_costs_one_more_reading(
    big: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified.trouble_of(str(big), "train")
    (note,) = (path for path in (Path(io.cache.root) / "checked").iterdir() if path.suffix != ".lock")
    note.write_bytes(content)
    found = reads(monkeypatch)
    assert verified.trouble_of(str(big), "train") == ""
    assert len(found) == 1


def test_a_note_of_another_user_counts_for_nothing(big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(big)
    state = verified._State.of(str(big))
    manifest = commit.read_manifest(str(big.parent), "train")
    assert manifest is not None
    note = Path(io.cache.root) / "checked" / f"{os.getuid()}-{verified._name_of(str(big))}"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps([*state, manifest.files["train.pt"].sha256]))
    os.chown(note, os.getuid() + 1, -1) if os.getuid() == 0 else pytest.skip("needs root to give a file away")
    assert "SHA-256 differs" in verified.trouble_of(str(big), "train")


def test_without_any_cache_the_file_is_read_all_the_same(
    big: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv("XDPX_CACHE_PATH", str(tmp_path / "no folder"))
    assert verified.trouble_of(str(big), "train") == ""
    flip(big)
    assert "SHA-256 differs" in verified.trouble_of(str(big), "train")


def test_processes_that_open_the_same_file_let_one_of_them_read_it(big: Path) -> None:
    code = (
        "import sys\nfrom xdpx.utils import verified\nverified.SECONDS_AT_REST = -1\n"
        "original = verified._compared\n"
        "def count(local, facts):\n    print('read')\n    return original(local, facts)\n"
        "verified._compared = count\nassert verified.trouble_of(sys.argv[1], 'train') == ''\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(big)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [process.communicate()[0] for process in started].count("read\n") == 1
    assert [process.returncode for process in started] == [0, 0, 0]


def test_a_damaged_local_copy_of_a_remote_file_is_fetched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    write("memory://verified/data")
    local = Path(io.local("memory://verified/data/train.pt"))
    flip(local)
    assert verified.trouble_of("memory://verified/data/train.pt", "train") == ""
    with io.open("memory://verified/data/train.pt", "wb") as file:
        file.write(bytes(BIG))
    assert "SHA-256 differs" in verified.trouble_of("memory://verified/data/train.pt", "train")


def test_files_that_no_manifest_lists_are_not_judged(tmp_path: Path) -> None:
    (tmp_path / "mine.pt").write_bytes(b"x")
    assert verified.trouble_of(str(tmp_path / "mine.pt"), "mine") == ""
    verified.refuse_altered(str(tmp_path / "nowhere"), advice="")


def test_all_altered_files_are_told_together(tmp_path: Path) -> None:
    with commit.Commit(str(tmp_path), verified.RESOURCES) as files:
        for name in ("args.py", "vocab.txt", "target_map.txt"):
            with files.open(name, "w") as file:
                file.write(name)
    (tmp_path / "vocab.txt").write_text("vocab.txu")
    (tmp_path / "args.py").write_text("args.")
    (tmp_path / "target_map.txt").unlink()
    with pytest.raises(verified.Altered, match=r"args.py has 5 bytes, .*vocab.txt differs from .* Do that.$"):
        verified.refuse_altered(str(tmp_path), advice="Do that.")
    with pytest.raises(verified.Altered, match=r"^[^ ]*vocab.txt differs"):
        verified.refuse_altered(str(tmp_path), advice="Do that.", but=("args.py",))
