"""A list of hosts; in place of ssh a program that runs the line here, as sshd would: by a shell, in another folder."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launch.jobs import job_of
from tests.processes import ROOT
from xdpx.launch.backends import BACKENDS
from xdpx.launch.submission import Job, Record

SSH = """#!/bin/bash
while [[ $1 == -* ]]; do shift 2; done
echo "$1" >> "$SEEN"
[ "$1" != gone ] || { echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255; }
shift
cd /
exec bash -c "$*"
"""


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the far side's; ssh is on the PATH."""
    tool = tmp_path / "bin" / "ssh"
    tool.parent.mkdir()
    tool.write_text(SSH)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen.txt"))
    return tmp_path / "far"


def sent(job: Job, folder: Path) -> Record:
    """Write the files of a job to a folder here and start them; return its record."""
    place = BACKENDS["ssh"]
    assert list(place.faults(job)) == []
    folder.mkdir()
    for name, text in place.files(job).items():
        (folder / name).write_text(text)
    found = place.submit(job, str(folder))
    return Record(job.name, "ssh", found.id, found.log, str(folder), "", "")


def end_of(record: Record, *, seconds: float = 60) -> str:
    """Wait until a submission has ended, and return its state."""
    end = time.monotonic() + seconds
    while (state := BACKENDS["ssh"].status(record)) == "running" and time.monotonic() < end:
        time.sleep(0.1)
    return state


def job_in(far: Path, program: str, **asked: object) -> Job:
    tool = far.parent / "tool"
    tool.write_text(f"#!/bin/bash\n{program}\n")
    tool.chmod(0o755)
    job = job_of(("x-exp", "Lm", "--set=A=it's"), **asked)
    return replace(job, workdir=str(far / "work"), folder=str(far / "work/job"), python=str(tool))


def test_each_host_gets_the_folder_and_its_number(far: Path, tmp_path: Path) -> None:
    program = 'echo "$JAX_PROCESS_ID/$JAX_NUM_PROCESSES $JAX_COORDINATOR_ADDRESS $RANK $PWD $*"'
    record = sent(job_in(far, program, hosts="first,me@second"), tmp_path / "here")
    assert end_of(record) == "finished", BACKENDS["ssh"].logs(record)
    rest = f"first:29500 {{}} {far}/work -m xdpx.main Lm --set=A=it's\n"
    logs = [(tmp_path / f"here/log-{index}.txt").read_text() for index in (0, 1)]
    assert logs == [f"{index}/2 {rest.format(index)}" for index in (0, 1)]
    assert set((tmp_path / "seen.txt").read_text().split()) == {"first", "me@second"}


def test_a_host_that_does_not_answer_ends_the_job_before_it_begins(far: Path, tmp_path: Path) -> None:
    record = sent(job_in(far, "echo began", hosts="first,gone"), tmp_path / "here")
    assert end_of(record).startswith("failed")
    assert "No route to host" in BACKENDS["ssh"].logs(record)
    assert not (tmp_path / "here/log-0.txt").exists()


def test_cancel_asks_the_processes_of_all_hosts_to_save(far: Path, tmp_path: Path) -> None:
    program = 'trap "echo saved; exit 85" TERM\n: > "$PWD/started.$RANK"\nwhile :; do sleep 0.05; done'
    record = sent(job_in(far, program, hosts="a,b"), tmp_path / "here")
    end = time.monotonic() + 30
    while len(list(far.glob("work/started.*"))) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert "asked to stop" in BACKENDS["ssh"].cancel(record)
    assert end_of(record) == "interrupted; its launch.sh continues it"
    assert [(tmp_path / f"here/log-{index}.txt").read_text() for index in (0, 1)] == ["saved\n"] * 2


def test_the_processes_of_two_hosts_find_each_other_as_jax_does(far: Path, tmp_path: Path) -> None:
    program = tmp_path / "meet.py"
    program.write_text("from xdpx.engines.spmd import world\nworld.start()\nprint('met', world.process_count())\n")
    job = job_in(far, f'exec {sys.executable} "{program}"', hosts="127.0.0.1,localhost")
    job = replace(job, environment={"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"})
    record = sent(job, tmp_path / "here")
    assert end_of(record, seconds=120) == "finished", BACKENDS["ssh"].logs(record)
    assert [(tmp_path / f"here/log-{index}.txt").read_text()[-6:] for index in (0, 1)] == ["met 2\n"] * 2


@pytest.mark.parametrize(
    ("place", "asked", "expected"),
    [
        ("ssh", {}, "--hosts: is not given"),
        ("ssh", {"hosts": "a,a"}, "--hosts: names a host twice"),
        ("ssh", {"hosts": "a,-oProxyCommand=x"}, "--hosts: has '-oProxyCommand=x'"),
        ("ssh", {"hosts": "a,b c"}, "--hosts: has 'b c'"),
        ("ssh", {"hosts": "a,b", "nodes": 3}, "--nodes: is 3, but there are 2 hosts"),
        ("tpu", {"hosts": "a", "gpus": 1}, "--gpus: is not supported by --on tpu"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(place: str, asked: dict[str, object], expected: str) -> None:
    assert [str(fault) for fault in BACKENDS[place].faults(job_of(**asked)) if str(fault).startswith(expected)]


def test_the_script_has_one_line_for_each_host() -> None:
    job = job_of(("x-exp", "Lm", "--job_log_dir=gs://b/job"), hosts="t-0,t-1,t-2")
    text = BACKENDS["tpu"].files(job)["launch.sh"]
    lines = [line for line in text.splitlines() if "exec ssh" in line]
    assert [f"JAX_PROCESS_ID={index}" in line for index, line in enumerate(lines)] == [True] * 3
    assert all("JAX_COORDINATOR_ADDRESS=t-0:29500 JAX_NUM_PROCESSES=3" in line for line in lines)
