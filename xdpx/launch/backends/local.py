"""This machine: a background script, which survives the closing of the terminal."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator

from xdpx.config.faults import Fault
from xdpx.launch import script
from xdpx.launch.submission import Job, JobStep, Launcher, Reach, Record, Refused, Submitted, unused
from xdpx.training.preemption import EXIT_CODE
from xdpx.utils import io

JOB, TORCHRUN, LOG, CODE = "job.sh", "torchrun.sh", "log.txt", "exit_code"
_started: list[subprocess.Popen[bytes]] = []
"""Kept referenced, as Python warns when a running process is collected."""
USED = ("nodes", "gpus", "processes", "tasks")


class Local:
    """Runs `job.sh` in a session of its own; the id of the submission is its process id."""

    files_there: Reach = "shared"
    launcher: Launcher = "command"

    def faults(self, job: Job) -> Iterator[Fault]:
        """Yield a fault for each flag that this place does not use."""
        yield from unused(job.resources, USED, "--on local")

    def hindrances(self, job: Job) -> Iterator[Fault]:
        """Yield a fault for several machines, none of which but this one can be reached."""
        if job.resources.nodes > 1:
            remedy = f"Start the {TORCHRUN} that --dry prints on each machine; or use --on ssh, slurm or k8s."
            yield Fault("--nodes", f"is {job.resources.nodes}, but this is one machine.", remedy)

    def files(self, job: Job) -> dict[str, str]:
        """Return the files that run the job."""
        return {TORCHRUN: _torchrun(job)} | ({JOB: _script(job)} if job.resources.nodes == 1 else {})

    def line(self, job: Job) -> str:
        """Return the shell command that starts the script."""
        if job.resources.nodes > 1:
            return _by_hand(job)
        log = shlex.quote(job.in_folder(LOG))
        return f"nohup setsid bash {shlex.quote(job.in_folder(JOB))} > {log} 2>&1 < /dev/null &"

    def submit(self, job: Job, folder: str) -> Submitted:
        """Start the script."""
        return in_background(folder, JOB)

    def status(self, record: Record) -> str:
        """Return the state of a submission."""
        return outcome(record, JOB)

    def logs(self, record: Record) -> str:
        """Return the log of a submission so far."""
        return read_log(record.log)

    def cancel(self, record: Record) -> str:
        """Ask the script to save and end."""
        if _exit_code(record) is not None or not is_at_work(record, JOB):
            return f"{record.name}: is not running."
        os.kill(int(record.id), signal.SIGTERM)
        return f"{record.name}: asked to stop; it saves first."


def in_background(folder: str, script: str) -> Submitted:
    """Start a script of a submission in a session of its own; its process id is the id of the submission."""
    log = io.join(folder, LOG)
    with io.open(log, "ab") as file:
        process = subprocess.Popen(
            ["bash", io.join(folder, script)], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip
    _started.append(process)
    return Submitted(str(process.pid), log)


def read_log(path: str) -> str:
    """Return the text of a log file.

    Raises:
        Refused: there is none yet.
    """
    if not io.isfile(path):
        raise Refused(f"{path}: nothing has been written yet.")
    with io.open(path, encoding="utf-8", errors="replace") as file:
        return str(file.read())


def _script(job: Job) -> str:
    """Return the script, which runs the steps in sequence, for each run or task in sequence."""
    lines = [
        "#!/bin/bash",
        *script.header(job, how=f"bash {shlex.quote(job.in_folder(JOB))}"),
        script.STEPS,
        f"leave() {{ echo \"$1\" > \"$folder/{CODE}\"; exit \"$1\"; }}",
        f'rm -f "$folder/{CODE}"',
        "trap 'pass_on TERM' TERM INT USR1",
    ]  # fmt: skip
    return "\n".join([*lines, *script.on_one_machine(job), "leave 0", ""])


def _torchrun(job: Job) -> str:
    """Return a script that runs x-train under torchrun, to be started on each of the machines, which share files."""
    count, nodes = job.resources.processes_of_node, job.resources.nodes
    meeting = ["--standalone"]
    if nodes > 1:
        head = script.Variable("$HEAD")
        meeting = [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-id={job.name}", "--rdzv-endpoint", head]

    def launch(step: JobStep) -> list[str]:
        words = script.words_of(job, step)
        if step.command != "x-train":
            return words
        return [job.python, "-m", "torch.distributed.run", *meeting, f"--nproc-per-node={count}", *words[1:]]

    needs = [': "${HEAD:?is host:port of the first machine}"'] if nodes > 1 else []
    body = [f"{script.line(launch(step))} || exit $?" for step in job.steps]
    return "\n".join(["#!/bin/bash", *script.header(job, how=_by_hand(job)), *needs, *script.in_order(job, body), ""])


def _by_hand(job: Job) -> str:
    """Return the command that runs the job under torchrun, on each of its machines."""
    head = "HEAD=host:29500 " if job.resources.nodes > 1 else ""
    return f"{head}bash {shlex.quote(job.in_folder(TORCHRUN))}"


def _exit_code(record: Record) -> int | None:
    path = io.join(record.folder, CODE)
    if not io.isfile(path):
        return None
    with io.open(path, encoding="utf-8") as file:
        text = str(file.read()).strip()
    return int(text) if text.isdecimal() else None


def outcome(record: Record, script: str) -> str:
    """Return the state of a background script of this machine, in one line."""
    runs = is_at_work(record, script)
    code = _exit_code(record)  # after that, as its code is the last thing that a script writes
    if code is not None:
        return {0: "finished", EXIT_CODE: f"interrupted; its {script} continues it"}.get(code, f"failed ({code})")
    return "running" if runs else "ended without a message (killed, or the machine was restarted)"


def is_at_work(record: Record, script: str) -> bool:
    """Return whether the process of a record still runs its script; its process id may have been reused."""
    try:
        os.kill(int(record.id), 0)
    except (OSError, ValueError):
        return False
    words = f"/proc/{record.id}/cmdline"
    if not io.isfile(words):
        return True  # this system has no /proc
    try:
        with io.open(words, "rb") as file:
            found = bytes(file.read())
        ended = _has_ended(record.id)
    except OSError:  # it ended meanwhile
        return False
    # The command line is empty for a process that has just begun, and for a zombie.
    return io.join(record.folder, script).encode() in found if found else not ended


def _has_ended(number: str) -> bool:
    with io.open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
        return str(file.read()).rpartition(")")[2].split()[:1] == ["Z"]
