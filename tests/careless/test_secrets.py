"""What a run leaves behind gives no secret away, and follows no link that somebody planted."""

from __future__ import annotations

import json
import logging
import os
import stat
import zipfile
from pathlib import Path

import pytest

from xdpx import run as door
from xdpx.commands.outcomes import exit_code
from xdpx.logger import LogFile, log
from xdpx.utils import commit
from xdpx.utils.remote_filesystems import RemoteFiles
from xdpx.utils.replacing import adding

HIDDEN = "Zm9vYmFyYmF6cXV4MTIz"
CREDENTIALS = f'KEYS = ("LTAI-known-to-all", "{HIDDEN}")\n'
PLANTED = (
    "args.py",
    "status.json",
    "train.log.tsv",
    "valid.log.tsv",
    "log.txt",
    "snapshot.zip",
    "starter_config.hjson",
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a run was trained, with credentials among the user's modules and links in its save_dir."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "raw").mkdir()
    for name, rows in {"train": 16, "dev": 8}.items():
        (folder / f"raw/{name}.txt").write_text("".join(f"w{row} film\t{row % 2}\n" for row in range(rows)))
    (folder / "user/modules").mkdir(parents=True)
    (folder / "user/modules/oss_credentials.py").write_text(CREDENTIALS)
    (folder / "user/modules/hidden_inside.py").write_text(f'SETTINGS = {{"secret_access_key": "{HIDDEN}"}}\n')
    (folder / "user/modules/plain.py").write_text("x = 1\n")
    (folder / "run").mkdir()
    for name in PLANTED:
        (folder / f"of the victim {name}").write_text("precious")
        (folder / "run" / name).symlink_to(folder / f"of the victim {name}")
    train = {
        "__parent__": "data/meta", "data_dir": "data", "save_dir": "run", "batch_size": 8, "max_update": 2,
        "eval_interval": 1, "log_interval": 1, "major_metric": "acc", "learning_rate": 0.1, "loss": "cross_entropy",
        "model": "cls_cnn", "embedding_dim": 4, "hidden_size": 4, "encoder_layers": 1, "cuda": False, "overwrite": True,
    }  # fmt: skip
    (folder / "train.json").write_text(json.dumps(train))
    before, umask = Path.cwd(), os.umask(0o022)
    os.chdir(folder)
    try:
        keys = ["loader=single", "processor=single", "tokenizer=space", "max_len=8", "workers=1"]
        assert door.main(["x-prepro", "data_source=raw", "data_dir=data", *keys]) == 0
        assert door.main(["x-train", "train.json"]) == 0
    finally:
        os.chdir(before)
        os.umask(umask)
    return folder


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_link_is_replaced_and_never_followed(name: str, desk: Path) -> None:
    assert (desk / f"of the victim {name}").read_text() == "precious"
    assert not (desk / "run" / name).is_symlink()
    assert (desk / "run" / name).stat().st_size > 0


@pytest.mark.parametrize(
    "file",
    [
        "run/args.py",
        "run/prepro.args.py",
        "run/starter_config.hjson",
        "run/log.txt",
        "run/snapshot.zip",
        "data/args.py",
    ],
)
def test_files_that_may_hold_secrets_are_read_by_their_owner_alone(file: str, desk: Path) -> None:
    assert stat.S_IMODE((desk / file).stat().st_mode) == 0o600


def test_a_snapshot_leaves_out_what_looks_like_a_secret_and_says_so(desk: Path) -> None:
    with zipfile.ZipFile(desk / "run/snapshot.zip") as archive:
        own = [name for name in archive.namelist() if name.startswith("user/")]
        texts = b"".join(archive.read(name) for name in archive.namelist())
    assert own == ["user/modules/plain.py"]
    assert HIDDEN.encode() not in texts
    told = "user/modules/hidden_inside.py, user/modules/oss_credentials.py: may contain secrets"
    assert told in (desk / "run/log.txt").read_text()


def test_a_log_line_and_an_error_hide_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise OSError(f"postgresql://me:{HIDDEN}@host/db: refused") from ValueError(f"secret_access_key={HIDDEN}")

    level = logging.getLogger("xdpx").level
    with LogFile(tmp_path / "log.txt"):
        log.log_from(logging.INFO)
        log.info(f"reading postgresql://me:{HIDDEN}@host/db")
        assert exit_code(work, verbose=True) == 1
    log.log_from(level)
    told = capsys.readouterr().err + (tmp_path / "log.txt").read_text()
    assert "://***@host/db" in told
    assert HIDDEN not in told


def test_what_a_storage_client_says_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: str) -> None:
        del path
        raise ValueError(f"Invalid endpoint: http://me:{HIDDEN}@host <AWSAccessKeyId>{HIDDEN}</AWSAccessKeyId>")

    storage = RemoteFiles("s3", files=pytest.fail)
    monkeypatch.setattr(storage, "_connect", refuses)
    with pytest.raises(OSError, match="Invalid endpoint") as caught:
        storage.read_bytes("s3://bucket/a")
    assert HIDDEN not in str(caught.value)


def test_a_file_that_was_open_to_all_is_closed_when_it_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "args.py"
    path.write_text("{}")
    path.chmod(0o644)
    commit.write_text(path, "{}", private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_users_own_link_to_an_output_is_still_followed(tmp_path: Path) -> None:
    (tmp_path / "link.tsv").symlink_to(tmp_path / "there.tsv")
    commit.write_text(tmp_path / "link.tsv", "rows", own=False)
    assert (tmp_path / "there.tsv").read_text() == "rows"
    assert (tmp_path / "link.tsv").is_symlink()


def test_lines_are_added_to_a_log_that_is_there(tmp_path: Path) -> None:
    for line in ("one\n", "two\n"):
        with adding(tmp_path / "log.txt") as file:
            file.write(line)
    assert (tmp_path / "log.txt").read_text() == "one\ntwo\n"
