from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from xdpx.config.builtin_names import _commit_of
from xdpx.training.environment import commit_lines
from xdpx.utils import git

WHO = ("-c", "user.name=n", "-c", "user.email=e@e")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit of two files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.dat").write_text("two\n")
    for words in (["init", "-q"], ["add", "-A"], [*WHO, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], check=True)
    return tmp_path


def test_a_commit_and_what_differs_from_it_are_told(folder: Path) -> None:
    told = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert git.head() == told
    assert commit_lines() == [f"git commit {told}, no files differ from it"]
    (folder / "a.txt").write_text("changed\n")
    (folder / "c.txt").write_text("new\n")
    assert commit_lines() == [f"git commit {told}, 2 files differ from it"]


def test_a_folder_without_a_repository_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git.head() is None
    monkeypatch.setenv("PATH", "")
    assert git.head() is None


HOSTILE = {
    "fsmonitor": [("core.fsmonitor", "{}")],
    "filter": [("filter.evil.clean", "{} && cat"), ("filter.evil.required", "true")],
    "a filter of an odd name": [("filter.odd=name.x.clean", "{} && cat")],
    "process": [("filter.evil.process", "{}")],
    "hook": [],
    "pager": [("core.pager", "{}"), ("pager.status", "{}")],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_that_the_folder_names_is_run(kind: str, folder: Path) -> None:
    witness = folder.parent / f"{folder.name}-was-run"
    for name, command in HOSTILE[kind]:
        value = command.format(f"touch '{witness}'")
        subprocess.run(["git", "config", name, value], check=True)
    driver = "odd=name.x" if "odd" in kind else "evil"
    (folder / ".gitattributes").write_text(f"*.dat filter={driver}\n")
    hook = folder / ".git/hooks/post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch '{witness}'\n")
    hook.chmod(0o755)
    (folder / "b.dat").write_text("2wo\n")  # of equal size: only its content tells
    _commit_of.cache_clear()
    assert "files differ" in commit_lines()[0]
    _commit_of(str(folder))
    assert not witness.exists()


def test_git_as_it_is_does_run_what_a_folder_names(folder: Path) -> None:
    """The tests above can fail: without our settings the filter is run."""
    witness = folder.parent / f"{folder.name}-was-run"
    subprocess.run(["git", "config", "filter.evil.clean", f"touch '{witness}' && cat"], check=True)
    (folder / ".gitattributes").write_text("*.dat filter=evil\n")
    (folder / "b.dat").write_text("2wo\n")
    subprocess.run(["git", "status", "--porcelain"], check=True, capture_output=True)
    assert witness.exists()
