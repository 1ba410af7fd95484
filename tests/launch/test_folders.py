"""What is known of earlier submissions, and of the repository that they come from."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from xdpx.launch import folders
from xdpx.launch.submission import RECORD, Record


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def send(name: str, time: str) -> None:
    folder = Path(folders.FOLDER) / name
    folder.mkdir(parents=True)
    (folder / RECORD).write_text(json.dumps(asdict(Record(name, "slurm", name, "", "", time, ""))))


def test_the_newest_submission_is_the_last_also_over_a_change_of_the_clock() -> None:
    send("first", "2026-10-25T02:50:00+02:00")  # summer ends at 03:00
    send("second", "2026-10-25T02:10:00+01:00")
    send("damaged", "yesterday")
    assert [record.name for record in folders.records()] == ["first", "second"]
    assert folders.find("").name == "second"


def test_the_state_of_the_repository_starts_no_program_of_its_config(here: Path) -> None:
    assert folders.git_state() == {}
    program = here / "program"
    program.write_text("#!/bin/sh\ntouch started\n")
    program.chmod(0o755)
    who = ["-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "m"]):
        subprocess.run(["git", *words], check=True)
    subprocess.run(["git", "config", "core.fsmonitor", str(program)], check=True)
    state = folders.git_state()
    assert (len(state["commit"]), state["changed"]) == (40, ["?? program"])
