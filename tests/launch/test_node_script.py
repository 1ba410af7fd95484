"""The script of one machine, run by a real bash; in place of Python a program that tells what it was given."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launch.jobs import job_of
from xdpx.launch.node_script import Meeting, faults_of_several, node_script
from xdpx.launch.submission import Job, JobStep

TELLS = """#!/bin/bash
echo "$RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT jax $JAX_PROCESS_ID ${*@Q}"
"""


def job_in(folder: Path, program: str, *steps: tuple[str, ...], **asked: object) -> Job:
    """Return a job below a folder whose interpreter is a program of bash."""
    tool = folder / "tool"
    tool.write_text(program)
    tool.chmod(0o755)
    found = job_of(*steps, **asked)
    return replace(found, workdir=str(folder), folder=str(folder / "job"), python=str(tool))


def run(job: Job, *, index: int = 0, seconds: str = "+ 10") -> subprocess.CompletedProcess[str]:
    text = node_script(job, Meeting(str(index), "first", "7000"), how="-").replace("+ 10", seconds)
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60, check=False)


def test_each_process_of_each_machine_has_its_own_rank(tmp_path: Path) -> None:
    job = job_in(tmp_path, TELLS, ("x-train", "a"), nodes=2, gpus=2)
    told = sorted(line for index in (0, 1) for line in run(job, index=index).stdout.splitlines())
    words = "'-m' 'xdpx.run' 'x-train' 'a' '--resumable'"
    assert told == [f"{rank}/4 local {rank % 2}/2 at first:7000 jax {rank} {words}" for rank in range(4)]


def test_words_arrive_as_they_were_written(tmp_path: Path) -> None:
    odd = ("x-train", 'it\'s a $HOME `x` "q" \\ %s', "名=*", "a;b")
    told = run(job_in(tmp_path, TELLS, odd)).stdout
    expected = "'it'\\''s a $HOME `x` \"q\" \\ %s' '名=*' 'a;b'"
    assert told == f"/ local / at : jax  '-m' 'xdpx.run' 'x-train' {expected} '--resumable'\n"


def test_steps_meet_at_ports_of_their_own_and_what_has_finished_is_not_done_again(tmp_path: Path) -> None:
    job = job_in(tmp_path, TELLS, ("x-train", "a"), ("x-train", "b"), gpus=2)
    told = run(job).stdout
    assert [told.count(f"at first:{port}") for port in (7000, 7001)] == [2, 2]
    assert run(job).stdout.count("was finished before") == 2


@pytest.mark.parametrize(
    ("codes", "expected"), [("0 0", 0), ("0 85", 85), ("85 85", 85), ("85 3", 3), ("69 3", 3), ("69 85", 69)]
)
def test_the_code_of_the_script_is_that_of_the_first_cause(tmp_path: Path, codes: str, expected: int) -> None:
    job = job_in(tmp_path, f"#!/bin/bash\ncodes=({codes})\nexit ${{codes[RANK]}}\n", ("x-train", "a"), gpus=2)
    assert run(job).returncode == expected


def test_one_that_fails_ends_one_that_waits(tmp_path: Path) -> None:
    program = "#!/bin/bash\n[ $RANK = 0 ] && exit 7\nexec sleep 60\n"
    ended = run(job_in(tmp_path, program, ("x-train", "a"), gpus=2), seconds="+ 1")
    assert ended.returncode == 7


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_request_to_end_reaches_the_processes_which_may_save_first(tmp_path: Path, gpus: int) -> None:
    program = '#!/bin/bash\ntrap "exit 85" TERM\n: > started.$$\nwhile :; do sleep 0.05; done\n'
    job = job_in(tmp_path, program, ("x-train", "a"), gpus=gpus)
    script = node_script(job, Meeting(), how="-")
    process = subprocess.Popen(["bash", "-c", script])
    end = time.monotonic() + 30
    while len(list(tmp_path.glob("started.*"))) < gpus and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 85


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("handles", [True, False])
def test_a_request_to_end_that_comes_while_a_process_starts_is_not_lost(
    tmp_path: Path, gpus: int, handles: bool
) -> None:
    asks = "kill -TERM $PPID\nfor ((i = 0; i < 400; i++)); do sleep 0.05; done\n"
    program = "#!/bin/bash\n" + ('trap "exit 85" TERM\n' if handles else "") + asks
    job = job_in(tmp_path, program, ("x-train", "a"), gpus=gpus)
    assert [run(job).returncode for _ in range(5)] == [85] * 5


def test_no_script_leaves_a_round_of_a_loop_where_bash_would_skip_the_trap_of_a_signal() -> None:
    """A trap that becomes due while `continue` or `break` is done is taken for done, and none of its commands is."""
    job = replace(job_of(("x-train", "a"), ("x-train", "b"), nodes=2, gpus=2), runs=3)
    lines = [line.partition("# ")[0] for line in node_script(job, Meeting(), how="-").splitlines()]
    assert [line for line in lines if re.search(r"\b(continue|break)\b", line)] == []


def test_what_one_process_does_is_not_sent_to_machines_that_would_not_wait_for_it() -> None:
    job = job_of(("x-prepro", "a"), ("x-train", "b"), nodes=2)
    (fault,) = faults_of_several(job, "--on k8s")
    assert fault.key == "x-prepro"
    assert "2 machines" in fault.problem
    assert list(faults_of_several(replace(job, steps=(JobStep(("x-train", "b")),)), "--on k8s")) == []
