"""Every verb means the same on the disk, in memory and on an object store."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pytest

from xdpx.utils import io

HARD_NAMES = [
    "with space.txt",
    "ünïcode 中文 🎉.txt",
    "hash#tag.txt",
    "per%20cent.txt",
    "a=b&c+d.txt",
    "-rf",
    "[x]*.txt",
    "quote'\".txt",
    "new\nline.txt",
    "u\u0308nfd and \u05d0\u05d1 rtl",
    "C:\\back\\slash",
    "question?.txt",
]


def write(path: str, text: str = "text\n") -> str:
    with io.open(path, "w") as file:
        file.write(text)
    return path


@pytest.mark.parametrize("name", HARD_NAMES)
def test_any_legal_name_round_trips(any_root: str, name: str) -> None:
    if "\n" in name and any_root.startswith("s3"):
        pytest.skip("the test server's own routes end at a line end")
    path = write(io.join(any_root, "fol der", name), "grün\n")
    assert io.open(path).read() == "grün\n"
    assert io.listdir(any_root, recursive=True) == [f"fol der/{name}"]
    assert io.listdir(io.join(any_root, "fol der"), full_path=True) == [path]
    assert io.isfile(path)
    assert io.size(path) == 6
    io.remove(path)
    assert not io.exists(path)


@pytest.mark.parametrize("locale", ["C", "zh_CN.GBK", "tr_TR"])
def test_text_is_utf8_whatever_the_locale(tmp_path: Path, locale: str) -> None:
    code = "import sys; from xdpx.utils import io; io.open(sys.argv[1], 'w').write('\\u4e2d\\u6587\\n');"
    code += "from xdpx.commands.io import main; main(['--help']); main(['listdir', sys.argv[2]])"
    environment = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    (tmp_path / "names").mkdir()
    (tmp_path / "names/grün").touch()
    command = [sys.executable, "-c", code, str(tmp_path / "a"), str(tmp_path / "names")]
    ended = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    assert (tmp_path / "a").read_bytes() == "中文\n".encode()
    assert ended.stdout.endswith("grün\n".encode())


def test_a_missing_file_is_not_found(any_root: str) -> None:
    path = io.join(any_root, "nothing")
    for ask in (io.open, io.size, io.lines, io.md5, io.last_modified, io.listdir, io.local, io.remove, io.rmtree):
        with pytest.raises(FileNotFoundError, match="nothing"):
            ask(path)
    assert [io.exists(path), io.isfile(path), io.isdir(path)] == [False, False, False]


def test_folders_are_where_files_are(any_root: str) -> None:
    write(io.join(any_root, "a/b/c.txt"))
    write(io.join(any_root, "a/d.txt"))
    write(io.join(any_root, "e.txt"))
    assert io.listdir(any_root) == ["a", "e.txt"]
    assert io.listdir(io.join(any_root, "a") + "/") == ["b", "d.txt"]
    assert io.listdir(any_root, recursive=True) == ["a/b/c.txt", "a/d.txt", "e.txt"]
    assert io.listdir(any_root, recursive=True, contains=".t") == ["a/b/c.txt", "a/d.txt", "e.txt"]
    assert io.listdir(any_root, contains="e.") == ["e.txt"]
    assert io.isdir(io.join(any_root, "a/b"))
    assert io.size(any_root) == 15
    with pytest.raises(NotADirectoryError):
        io.listdir(io.join(any_root, "e.txt"))
    with pytest.raises(IsADirectoryError):
        io.open(io.join(any_root, "a")).read()


def test_glob_finds_by_pattern(any_root: str) -> None:
    for name in ("train0.txt", "train1.txt", "dev.txt", "sub/train2.txt"):
        write(io.join(any_root, name))
    assert io.glob(io.join(any_root, "train*.txt")) == [io.join(any_root, f"train{i}.txt") for i in (0, 1)]
    assert io.glob(io.join(any_root, "**/train?.txt"))[0] == io.join(any_root, "sub/train2.txt")
    assert io.glob(io.join(any_root, "none*")) == []


def test_a_wildcard_leaves_hidden_files_out_on_every_storage(any_root: str) -> None:
    for name in ("a.tsv", "._a.tsv", ".git/b.tsv", "sub/.c.tsv"):
        write(io.join(any_root, name))
    assert io.glob(io.join(any_root, "*.tsv")) == [io.join(any_root, "a.tsv")]
    assert io.glob(io.join(any_root, "*/*.tsv")) == []
    assert io.glob(io.join(any_root, ".*.tsv")) == [io.join(any_root, "._a.tsv")]
    assert io.glob(io.join(any_root, ".git/*")) == [io.join(any_root, ".git/b.tsv")]


def make_folder_as_consoles_do(folder: str) -> None:
    bucket, _, name = folder.removeprefix("s3://").partition("/")
    fsspec.filesystem("s3").call_s3("put_object", Bucket=bucket, Key=f"{name}/", Body=b"")


def test_an_empty_folder_of_a_store_is_a_folder(s3_root: str, tmp_path: Path) -> None:
    folder = f"{s3_root}/runs/new"
    make_folder_as_consoles_do(folder)
    write(f"{folder}.txt")
    assert io.isdir(folder)
    assert io.listdir(folder) == []
    assert io.size(folder) == 0
    assert io.listdir(f"{s3_root}/runs", recursive=True) == ["new.txt"]
    io.copytree(f"{s3_root}/runs", tmp_path / "runs")
    assert (tmp_path / "runs/new").is_dir()
    io.rmtree(folder)
    assert io.listdir(f"{s3_root}/runs") == ["new.txt"]


def test_removing_the_object_of_a_folder_leaves_a_file_of_its_name(s3_root: str) -> None:
    write(f"{s3_root}/a/file")
    write(f"{s3_root}/a/file/below")
    make_folder_as_consoles_do(f"{s3_root}/a/file")
    io.remote(s3_root).remove_folder(f"{s3_root}/a/file")
    assert io.open(f"{s3_root}/a/file").read() == "text\n"


def test_no_name_in_a_bucket_leads_a_copy_out_of_its_folder(s3_root: str, tmp_path: Path) -> None:
    fsspec.filesystem("s3").call_s3(
        "put_object", Bucket=s3_root.removeprefix("s3://"), Key="data/../../evil", Body=b"evil"
    )
    with pytest.raises(OSError, match="leads out of the folder"):
        io.copytree(f"{s3_root}/data", tmp_path / "a/b")
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("path", ["s3:/bucket/run", Path("s3://bucket/run"), "oss:/b", "http:/host/a"])
def test_a_scheme_with_one_slash_is_not_taken_for_a_local_folder(path: str | Path) -> None:
    with pytest.raises(OSError, match=r"Write \w+://.*as text") as refused:
        io.open(path, "w")
    assert isinstance(refused.value.__cause__, ValueError)


@pytest.mark.parametrize(("text", "count"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2)])
def test_lines_counts_a_last_line_without_end(any_root: str, text: str, count: int) -> None:
    assert io.lines(write(io.join(any_root, "a"), text)) == count


def test_facts_of_a_file_agree(any_root: str) -> None:
    path = write(io.join(any_root, "a"), "x" * 3_000_000)
    assert io.md5(path) == hashlib.md5(b"x" * 3_000_000, usedforsecurity=False).hexdigest()
    assert abs(io.last_modified(path) - time.time()) < 60
    assert io.last_modified_str(path)[10] == "T"


def test_append_continues_a_file_and_exclusive_refuses_one(any_root: str) -> None:
    path = io.join(any_root, "log")
    for text in ("one\n", "two\n"):
        with io.open(path, "a") as file:
            file.write(text)
    assert io.open(path).read() == "one\ntwo\n"
    with pytest.raises(FileExistsError):
        io.open(path, "x")
    with io.open(path + "2", "xb") as file:
        file.write(b"new")
    assert io.size(path + "2") == 3


def test_a_remote_file_is_left_alone_when_its_writer_fails(s3_root: str) -> None:
    path = write(f"{s3_root}/a", "old")
    for mode, data in (("w", "new"), ("wb", b"new")):
        with contextlib.suppress(RuntimeError), io.open(path, mode) as file:
            file.write(data)
            raise RuntimeError
    assert io.open(path).read() == "old"


def test_copy_goes_into_a_folder_or_to_a_name(any_root: str, tmp_path: Path) -> None:
    source = write(str(tmp_path / "src.txt"), "hello")
    io.copy(source, io.join(any_root, "other.txt"))
    io.copy(io.join(any_root, "other.txt"), any_root + "/folder/")
    io.copy(io.join(any_root, "folder/other.txt"), str(tmp_path / "back.txt"))
    assert (tmp_path / "back.txt").read_text() == "hello"
    assert io.listdir(any_root, recursive=True) == ["folder/other.txt", "other.txt"]


@pytest.mark.parametrize("source", ["local", "memory", "s3"])
@pytest.mark.parametrize("target", ["local", "memory", "s3"])
def test_a_tree_travels_between_any_two_places(source: str, target: str, tmp_path: Path, s3_root: str) -> None:
    roots = {"local": str(tmp_path / "{}"), "memory": f"memory://{tmp_path.name}/{{}}", "s3": s3_root + "/{}"}
    here, there = roots[source].format("from"), roots[target].format("to")
    big = os.urandom(9 << 20)
    for name in ("a b.txt", "sub/ü#%.txt"):
        write(io.join(here, name), name)
    with io.open(io.join(here, "sub/big"), "wb") as file:
        file.write(big)
    io.copytree(here, there)
    assert io.listdir(there, recursive=True) == ["a b.txt", "sub/big", "sub/ü#%.txt"]
    assert io.open(io.join(there, "sub/big"), "rb").read() == big
    io.move(there, roots[source].format("moved"))
    assert not io.exists(there)
    assert io.listdir(roots[source].format("moved"), recursive=True) == ["a b.txt", "sub/big", "sub/ü#%.txt"]
    io.rmtree(here)
    assert not io.exists(here)


def test_wrong_kinds_are_refused_by_name(any_root: str) -> None:
    file = write(io.join(any_root, "folder/file"))
    with pytest.raises(IsADirectoryError, match="copytree"):
        io.copy(any_root, io.join(any_root, "x"))
    with pytest.raises(NotADirectoryError):
        io.copytree(file, io.join(any_root, "x"))
    with pytest.raises(NotADirectoryError):
        io.rmtree(file)
    with pytest.raises(OSError, match="into itself"):
        io.copytree(any_root, io.join(any_root, "folder/deeper"))
    with pytest.raises(OSError, match="same file"):
        io.copy(file, file)
    assert io.listdir(any_root, recursive=True) == ["folder/file"]


@pytest.mark.parametrize("path", [".", "..", "../here", "../../work"])
def test_the_working_directory_and_what_holds_it_are_never_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "work/here/kept").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work/here")
    with pytest.raises(PermissionError, match="Refused to remove the working directory"):
        io.rmtree(path)
    assert (tmp_path / "work/here/kept").is_dir()


def test_a_whole_bucket_or_home_is_never_removed(s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(f"{s3_root}/a")
    monkeypatch.setenv("HOME", str(tmp_path))
    for root in (s3_root, s3_root + "/", "/", "~", str(tmp_path)):
        with pytest.raises(PermissionError, match="Refused"):
            io.rmtree(root)
    assert io.exists(f"{s3_root}/a")


def test_removing_a_link_leaves_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/link").symlink_to(tmp_path / "real")
    (tmp_path / "tree/broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    io.rmtree(tmp_path / "tree")
    io.remove(tmp_path / "link")
    assert io.listdir(tmp_path, recursive=True) == ["real/file"]


def test_remove_takes_a_tree_too_and_move_takes_a_file(any_root: str) -> None:
    write(io.join(any_root, "tree/a"))
    io.move(write(io.join(any_root, "b"), "b"), io.join(any_root, "tree"))
    assert io.listdir(io.join(any_root, "tree")) == ["a", "b"]
    io.remove(io.join(any_root, "tree"))
    assert not io.exists(io.join(any_root, "tree"))


def test_makedirs_may_insist_that_a_folder_is_new(any_root: str) -> None:
    write(io.join(any_root, "a"))
    io.makedirs(any_root)
    with pytest.raises(FileExistsError):
        io.makedirs(any_root, exist_ok=False)


def test_writable_is_tried_and_leaves_nothing(any_root: str) -> None:
    write(io.join(any_root, "a"))
    assert io.is_writable(any_root)
    assert io.is_writable(io.join(any_root, "a"))
    assert io.is_writable(io.join(any_root, "new/deeper"))
    assert io.listdir(any_root) == ["a"]
    assert not io.is_writable("/proc/new/file")
    assert not io.is_writable("http://127.0.0.1/x")


def test_paths_are_put_together_and_taken_apart() -> None:
    assert io.join("s3://bucket/a/", "b", "c.txt") == "s3://bucket/a/b/c.txt"
    assert io.join("a", "/b") == "/b"
    assert io.join("/a", "s3://b/c") == "s3://b/c"
    assert io.parent("s3://bucket/a/b/") == "s3://bucket/a"
    assert io.parent("s3://bucket") == "s3://bucket"
    assert io.parent("file.txt") == ""
    assert io.name("s3://bucket/a b/") == "a b"
    assert io.abspath("s3://b/x") == "s3://b/x"
    assert io.abspath("~/x") == os.path.expanduser("~/x")
    assert io.plain("file:///tmp/x") == "/tmp/x"
    assert io.islocal("a:b")
    assert not io.islocal("OSS://b/x")


def test_local_gives_a_file_to_map(any_root: str) -> None:
    path = write(io.join(any_root, "a"), "mapped")
    assert Path(io.local(path)).read_text() == "mapped"
    write(path, "changed")
    assert Path(io.local(path)).read_text() == "changed"


def test_a_local_copy_keeps_who_may_run_it(tmp_path: Path) -> None:
    write(str(tmp_path / "a.sh"))
    (tmp_path / "a.sh").chmod(0o750)
    io.copy(tmp_path / "a.sh", tmp_path / "b.sh")
    assert (tmp_path / "b.sh").stat().st_mode & 0o777 == 0o750


def test_modes_that_cannot_work_remotely_are_refused(s3_root: str) -> None:
    with pytest.raises(ValueError, match="Use r, w, a or x"):
        io.open(f"{s3_root}/a", "r+")


def test_there_is_no_module_that_could_hide_the_io_object() -> None:
    with pytest.raises(ModuleNotFoundError):
        __import__("xdpx.utils.io")


def test_a_missing_bucket_is_said_to_be_missing(s3_root: str) -> None:
    with pytest.raises(FileNotFoundError, match="There is no such bucket: 's3://no-such-bucket/a'"):
        write("s3://no-such-bucket/a")
    assert not io.is_writable("s3://no-such-bucket/a")
    assert "no such bucket" in io.why_not_writable("s3://no-such-bucket/a").lower()
    assert not io.exists("s3://no-such-bucket")
