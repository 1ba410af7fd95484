from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from xdpx.config import builtin_names


def test_the_date_is_yymmdd() -> None:
    assert builtin_names.today() == date.today().strftime("%y%m%d")


def test_the_commit_hash_is_that_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert head.startswith(builtin_names.commit_hash())
    assert len(builtin_names.commit_hash()) >= 7


def test_outside_git_the_file_git_version_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="not a git repository"):
        builtin_names.commit_hash()
    (tmp_path / ".git_version").write_text("abc1234\n")
    assert builtin_names.commit_hash() == "abc1234"


def test_the_test_root_stands_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".test_meta").write_text("s3://bucket/tests\nmore")
    assert builtin_names.test_root() == "s3://bucket/tests"


@pytest.mark.parametrize(("text", "count"), [(None, 1), ("4", 4), ("", 1), ("x", 1)])
def test_workers_are_the_world_size(monkeypatch: pytest.MonkeyPatch, text: str | None, count: int) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if text is not None:
        monkeypatch.setenv("WORLD_SIZE", text)
    assert builtin_names.worker_count() == count


def test_without_a_gpu_nothing_is_imported_to_say_so() -> None:
    code = (
        "import sys; from xdpx.config.builtin_names import BUILTIN_NAMES as names;"
        "found = [names[key]() for key in ('__gpus__', '__apex__', 'apex', '__dc7__')];"
        "sys.exit(found != [0, False, False, False] or 'torch' in sys.modules)"
    )
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environment).returncode == 0
