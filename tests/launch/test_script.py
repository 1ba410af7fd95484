"""The scripts of x-submit, run by a real bash: words arrive as they are, signals too, nothing is done twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xdpx.launch.backends.local import Local
from xdpx.launch.submission import Job, JobStep, Resources

PROGRAM = """
import json, os, pathlib, signal, sys, time
words = sys.argv[1:]
with open("did.txt", "a") as file:
    file.write(json.dumps([words[2:], os.environ["A"], os.environ.get("XDPX_TASK_INDEX")]) + "\\n")
if "wait" in words:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(85))
    pathlib.Path("waits").touch()
    time.sleep(30)
sys.exit(int(words[-1]) if words[-1].isdecimal() else 0)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Make a folder whose name wants quoting, with a stand-in for Python that notes its words."""
    folder = tmp_path / "我的 数据's $HOME `ls`"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    python = folder / "python"
    python.write_text(f'#!/bin/bash\nexec "{sys.executable}" -S "$(dirname "$0")/program.py" "$@"\n')
    python.chmod(0o755)
    return folder


def job_in(folder: Path, *lines: str, **resources: object) -> Job:
    steps = tuple(JobStep(tuple(line.split(" "))) for line in lines)
    asked = Resources.model_validate(resources)
    job = Job("job-1", steps, asked, str(folder), str(folder / "sent"), str(folder / "python"), {"A": "b 'c' \"$d\""})
    (folder / "sent").mkdir(exist_ok=True)
    for name, text in Local().files(job).items():
        (folder / "sent" / name).write_text(text)
    return job


def run(job: Job) -> int:
    return subprocess.run(["bash", job.in_folder("job.sh")], check=False, cwd="/").returncode


def did(folder: Path) -> list[str]:
    return (folder / "did.txt").read_text().splitlines()


def test_words_and_variables_arrive_as_they_were_given(place: Path) -> None:
    assert run(job_in(place, "x-eval 我'\"$x*;c $HOME a=[1,2]")) == 0
    assert json.loads(did(place)[0]) == [["x-eval", "我'\"$x*;c", "$HOME", "a=[1,2]"], "b 'c' \"$d\"", None]


def test_the_first_step_that_fails_ends_the_job_and_one_that_is_done_is_not_done_again(place: Path) -> None:
    assert run(job_in(place, "x-prepro a", "x-eval b 3", "x-pred c")) == 3
    assert run(job_in(place, "x-prepro a", "x-eval b", "x-pred c")) == 0
    assert [line.split('"')[1] for line in did(place)] == ["x-prepro", "x-eval", "x-eval", "x-pred"]
    assert (place / "sent" / "exit_code").read_text() == "0\n"


def test_a_signal_reaches_the_step_whose_exit_code_is_that_of_the_job(place: Path) -> None:
    job = job_in(place, "x-eval wait", "x-pred b")
    process = subprocess.Popen(["bash", job.in_folder("job.sh")])
    while not (place / "waits").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 85
    assert len(did(place)) == 1


def test_tasks_are_done_one_after_another_each_with_its_number(place: Path) -> None:
    assert run(job_in(place, "x-script count", tasks=3)) == 0
    assert [line.split('"')[-2] for line in did(place)] == ["0", "1", "2"]
