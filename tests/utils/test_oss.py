"""OSS paths work as documented, with the credentials file of user/modules."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from xdpx.utils import OSS, io
from xdpx.utils.commit import Commit, Lease, LeaseHeld, problems

CREDENTIALS = """
from xdpx.utils import OSS, io
access_key_id = 'key'
access_key_secret = 'very-secret'
region_bucket = [
    ['{region}', '{bucket}'],
    ['cn-beijing', 'other-bucket'],
]
oss = OSS(access_key_id, access_key_secret, region_bucket)
io.set_io(oss)
"""


@pytest.fixture
def oss_root(oss_server: str, oss_bucket: str) -> Iterator[str]:
    io.set_io(OSS("key", "very-secret", [[oss_server, oss_bucket]]))
    yield f"oss://{oss_bucket}/root"
    io._oss = None
    io._remotes.pop("oss", None)


def test_files_come_and_go(oss_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(9 << 20)
    (tmp_path / "big").write_bytes(data)
    with io.open(f"{oss_root}/ü #%.txt", "w") as file:
        file.write("grün")
    io.copy(tmp_path / "big", f"{oss_root}/sub/")
    assert io.listdir(oss_root, recursive=True) == ["sub/big", "ü #%.txt"]
    assert io.open(f"{oss_root}/ü #%.txt").read() == "grün"
    assert io.open(f"{oss_root}/sub/big", "rb").read() == data
    assert io.remote(oss_root).read_range(f"{oss_root}/sub/big", 7, 100) == data[7:107]
    io.copytree(oss_root, tmp_path / "back")
    assert (tmp_path / "back/sub/big").read_bytes() == data
    io.copy(f"{oss_root}/sub/big", f"{oss_root}/again")
    monkeypatch.setattr("xdpx.utils.oss._ONE_COPY", 0)
    io.copy(f"{oss_root}/again", f"{oss_root}/once more")
    assert io.md5(f"{oss_root}/once more") == io.md5(tmp_path / "big")
    io.rmtree(oss_root)
    assert not io.exists(oss_root)
    with pytest.raises(FileNotFoundError):
        io.listdir(oss_root)


def test_an_empty_folder_of_the_console_is_a_folder(oss_root: str, oss_bucket: str) -> None:
    io.open(f"{oss_root}/new.txt", "w").close()
    store = io.remote(oss_root)
    store._connect(oss_root)._call_oss("put_object", "root/new/", b"", bucket=oss_bucket)
    assert io.isdir(f"{oss_root}/new")
    assert io.listdir(f"{oss_root}/new") == []
    assert io.listdir(oss_root, recursive=True) == ["new.txt"]
    io.rmtree(f"{oss_root}/new")
    assert io.listdir(oss_root) == ["new.txt"]


def test_commits_and_leases_hold(oss_root: str) -> None:
    for data in (b"old", b"new"):
        with Lease(oss_root), Commit(oss_root, "set") as new:
            with pytest.raises(LeaseHeld):
                Lease(oss_root).acquire()
            with new.open("a") as file:
                file.write(data)
    assert problems(oss_root, "set", hashes=True) == []
    assert io.listdir(oss_root) == ["a", "set.manifest.json"]


def test_the_documented_credentials_file_is_all_one_needs(oss_server: str, oss_bucket: str, tmp_path: Path) -> None:
    (tmp_path / "user/modules").mkdir(parents=True)
    text = CREDENTIALS.format(region=oss_server, bucket=oss_bucket)
    (tmp_path / "user/modules/oss_credentials.py").write_text(text, encoding="utf-8")
    (tmp_path / "a.txt").write_text("hello")
    code = "import sys; from xdpx.commands.io import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for arguments, answer in [
        (["copy", "a.txt", f"oss://{oss_bucket}/b.txt"], ""),
        (["listdir", f"oss://{oss_bucket}"], "b.txt\n"),
        (["size", f"oss://{oss_bucket}/b.txt"], "5\n"),
    ]:
        ended = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (0, answer), ended.stderr


def test_without_credentials_one_sentence_says_what_to_do() -> None:
    with pytest.raises(PermissionError, match=r"no OSS credentials are set. Call io.set_io\(OSS\("):
        io.open("oss://bucket/x")


def test_an_unlisted_bucket_is_named_with_the_listed_ones(oss_root: str) -> None:
    with pytest.raises(
        PermissionError, match=r"oss://elsewhere: this bucket is not in region_bucket .* \(there: bucket-"
    ):
        io.exists("oss://elsewhere/x")


def test_the_secret_is_never_shown(oss_root: str) -> None:
    oss = OSS("key", "very-secret", ["cn-hangzhou", "bucket"])
    assert oss.endpoints == {"bucket": "https://oss-cn-hangzhou.aliyuncs.com"}
    assert "very-secret" not in repr(oss)
    assert "very-secret" not in str(vars(io.remote(oss_root)))


@pytest.mark.parametrize("wrong", [[["a", "b", "c"]], ["a"], [["a", 1]], "ab"])
def test_a_wrong_region_bucket_is_explained(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"Use e.g. \[\['cn-hangzhou', 'my-bucket'\]\]"):
        OSS("key", "secret", wrong)  # type: ignore[arg-type]


def test_set_io_takes_nothing_else() -> None:
    with pytest.raises(TypeError, match="io.set_io takes an OSS"):
        io.set_io("oss")  # type: ignore[arg-type]


def test_a_missing_extra_is_named() -> None:
    with pytest.raises(OSError, match=r"gs:// paths need an extra of xdpx: pip install 'xdpx\[gcs\]'"):
        io.open("gs://bucket/x")
