"""Copies are checked, bounded, private, whole, and made once however many ask."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import stat
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from xdpx.utils import io
from xdpx.utils.local_files import LocalFiles
from xdpx.utils.owners import machine_id, temporary_name
from xdpx.utils.read_cache import ReadCache, private_folder
from xdpx.utils.remote_files import RangeReader, open_remote

MB = 1 << 20


def put(path: str, data: bytes) -> str:
    with io.open(path, "wb") as file:
        file.write(data)
    return path


def held(root: str) -> list[str]:
    return [path for path in io.listdir(root, recursive=True) if not path.endswith(".lock")]


def test_a_large_file_is_read_from_a_copy_that_follows_changes(s3_root: str) -> None:
    path, first, second = f"{s3_root}/a b#%.bin", os.urandom(6 * MB), os.urandom(6 * MB)
    put(path, first)
    copy = io.local(path)
    assert io.open(path, "rb").read() == first
    assert io.local(path) == copy
    assert copy.endswith("a b#%.bin")
    put(path, second)
    assert io.open(path, "rb").read() == second
    assert not os.path.exists(copy)
    io.remove(path)
    with pytest.raises(FileNotFoundError):
        io.open(path)


def test_the_least_recently_used_copies_go_when_the_cache_is_full(s3_root: str, tmp_path: Path) -> None:
    cache = ReadCache(io.local_files, str(tmp_path), limit=5 * MB)
    store = io.remote(s3_root)
    copies = {}
    for age, name in enumerate(["a", "b", "a", "c", "d"]):
        if name not in copies:
            put(f"{s3_root}/{name}", os.urandom(2 * MB))
        copies[name] = cache.fetch(store, f"{s3_root}/{name}")
        os.utime(os.path.dirname(copies[name]), (1000 + age, 1000 + age))
        cache.evict(keep=copies[name])
    assert [name for name in "abcd" if os.path.exists(copies[name])] == ["c", "d"]
    put(f"{s3_root}/large", bytes(7 * MB))
    assert os.path.getsize(cache.fetch(store, f"{s3_root}/large")) == 7 * MB
    assert len(held(str(tmp_path))) == 1


def test_what_a_killed_download_left_takes_no_room_from_copies(tmp_path: Path) -> None:
    version = tmp_path / "files" / "shelf" / "version"
    version.mkdir(parents=True)
    (version / "copy").write_bytes(bytes(2 * MB))
    left = Path(temporary_name(str(version / "copy"), f"{machine_id()}-{2**22 + 1}-1-{'0' * 8}"))
    left.write_bytes(bytes(4 * MB))
    ReadCache(io.local_files, str(tmp_path), limit=5 * MB).evict()
    assert [path.name for path in version.iterdir()] == ["copy"]


def test_a_cut_copy_is_fetched_again(s3_root: str) -> None:
    path = put(f"{s3_root}/a", os.urandom(MB))
    Path(io.local(path)).write_bytes(b"cut")
    assert os.path.getsize(io.local(path)) == MB


def test_files_larger_than_the_cache_are_read_in_ranges(s3_root: str, tmp_path: Path) -> None:
    data = os.urandom(20 * MB + 3)
    path = put(f"{s3_root}/a", data)
    cache = ReadCache(io.local_files, str(tmp_path), limit=MB)
    with open_remote(io.remote(path), path, "rb", cache=cache, text={}) as file:
        assert isinstance(file.raw, RangeReader)
        assert file.read(10) == data[:10]
        file.seek(-10, os.SEEK_END)
        assert file.read() == data[-10:]
        file.seek(0)
        assert file.read() == data
    assert held(str(tmp_path)) == []


def fetch(path: str, root: str, answers: Any) -> None:
    answers.put(ReadCache(LocalFiles(), root).fetch(io.remote(path), path))


def test_processes_that_want_the_same_file_wait_for_one_download(s3_root: str, tmp_path: Path) -> None:
    path = put(f"{s3_root}/a", os.urandom(6 * MB))
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    askers = [fork.Process(target=fetch, args=(path, str(tmp_path), answers)) for _ in range(4)]
    for asker in askers:
        asker.start()
    found = {answers.get(timeout=300) for _ in askers}
    for asker in askers:
        asker.join()
    assert len(found) == 1
    assert held(str(tmp_path)) == [os.path.relpath(found.pop(), tmp_path)]


def test_the_own_folder_is_private_and_the_same_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = private_folder(LocalFiles())
    assert private_folder(LocalFiles()) == folder
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert len(os.path.basename(folder)) > 30  # nobody guesses it


@pytest.mark.parametrize("trap", ["open to all", "a link"])
def test_a_folder_that_is_not_truly_ours_is_never_used(
    trap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Path(private_folder(LocalFiles()))
    folder.rmdir()
    if trap == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    other = private_folder(LocalFiles())
    assert other != str(folder)
    assert stat.S_IMODE(os.lstat(other).st_mode) == 0o700


@pytest.mark.parametrize(("text", "limit"), [("", 20 << 30), ("1000", 1000), ("1.5K", 1536), ("2 GiB", 2 << 30)])
def test_the_limit_comes_from_the_environment(text: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDPX_CACHE_LIMIT", text)
    assert io.cache.limit == limit


def test_a_wrong_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDPX_CACHE_LIMIT", "lots")
    with pytest.raises(ValueError, match="XDPX_CACHE_LIMIT is 'LOTS'"):
        _ = io.cache


# ---- the web


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def send_header(self, keyword: str, value: str) -> None:
        """Send what the file `headers` says instead, where it names this header."""
        told = Path(self.directory) / "headers"
        instead = dict(line.split(": ") for line in told.read_text().splitlines()) if told.exists() else {}
        super().send_header(keyword, instead.get(keyword, value).replace("COUNT", str(next(COUNT))))


COUNT = itertools.count(1000)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a web server that serves no ranges, and the folder it serves."""
    (tmp_path / "web").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: Quiet(*a, directory=str(tmp_path / "web")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", tmp_path / "web"
    server.shutdown()
    server.server_close()


def test_a_web_address_is_a_path_to_read(web: tuple[str, Path]) -> None:
    address, folder = web
    data = os.urandom(18 * MB)
    (folder / "big.bin").write_bytes(data)
    (folder / "small.txt").write_text("grün", encoding="utf-8")
    assert io.open(f"{address}/small.txt").read() == "grün"
    assert io.exists(f"{address}/small.txt")
    assert not io.exists(f"{address}/nothing.txt")
    assert io.size(f"{address}/big.bin") == 18 * MB
    assert io.open(f"{address}/big.bin", "rb").read() == data
    io.copy(f"{address}/big.bin", folder / "copy")
    assert (folder / "copy").read_bytes() == data
    assert io.last_modified(f"{address}/big.bin") > 0
    with pytest.raises(PermissionError, match="can only be read"):
        io.open(f"{address}/new", "w")


def test_a_page_that_lists_a_folder_is_that_folder(web: tuple[str, Path]) -> None:
    address, folder = web
    (folder / "raw").mkdir()
    (folder / "raw" / "train.tsv").write_text("a\t0\n")
    assert io.isdir(f"{address}/raw")
    assert not io.isfile(f"{address}/raw")
    assert io.listdir(f"{address}/raw") == ["train.tsv"]
    assert io.isfile(f"{address}/raw/train.tsv")


def test_a_range_from_a_server_without_ranges_is_never_the_wrong_one(web: tuple[str, Path]) -> None:
    address, folder = web
    (folder / "a").write_bytes(bytes(range(256)) * 4096)
    store = io.remote(address)
    with pytest.raises((OSError, ValueError)):
        store.read_range(f"{address}/a", 100_001, 10)


@pytest.mark.parametrize("server", ["Last-Modified: Tue, 24 Nov COUNT 10:00:00 GMT\n", "Last-Modified: \n"])
def test_a_web_server_that_knows_no_times_is_read_all_the_same(web: tuple[str, Path], server: str) -> None:
    address, folder = web
    (folder / "headers").write_text(server)
    for data in (b"abc", b"xyz"):
        (folder / "a").write_bytes(data)
        assert Path(io.local(f"{address}/a")).read_bytes() == data
