"""This machine: a script in the background, which goes on when the terminal is closed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator

from xdpx.config.faults import Fault
from xdpx.launch import script
from xdpx.launch.submission import Job, Reach, Record, Refused, Step, Submitted, unused
from xdpx.training.preemption import EXIT_CODE
from xdpx.utils import io

JOB, TORCHRUN, LOG, CODE = "job.sh", "torchrun.sh", "log.txt", "exit_code"
_started: list[subprocess.Popen[bytes]] = []
"""Kept, so that Python does not complain about processes that go on."""
USED = ("nodes", "gpus", "processes", "tasks")


class Local:
    """Runs `job.sh` in a session of its own; its id is that of the process."""

    files_there: Reach = "shared"

    def faults(self, job: Job) -> Iterator[Fault]:
        """Yield what this machine cannot do for a job, and flags that mean nothing to it."""
        yield from unused(job.resources, USED, "--on local")
        if job.resources.nodes > 1:
            remedy = f"Use --dry to see {TORCHRUN}, and start it on each machine; or use --on slurm, ray or k8s."
            yield Fault("--nodes", f"is {job.resources.nodes}, but this is one machine.", remedy)

    def hindrances(self, job: Job) -> Iterator[Fault]:
        """Yield what stands in the way of sending from here."""
        return iter(())

    def files(self, job: Job) -> dict[str, str]:
        """Return the files that do the job."""
        return {JOB: _script(job), TORCHRUN: _torchrun(job)}

    def line(self, job: Job) -> str:
        """Return the line for a shell that sends the written files."""
        log = shlex.quote(job.in_folder(LOG))
        return f"nohup setsid bash {shlex.quote(job.in_folder(JOB))} > {log} 2>&1 < /dev/null &"

    def submit(self, job: Job, folder: str) -> Submitted:
        """Send the job."""
        log = io.join(folder, LOG)
        with io.open(log, "ab") as file:
            process = subprocess.Popen(
                ["bash", io.join(folder, JOB)], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        _started.append(process)
        return Submitted(str(process.pid), log)

    def status(self, record: Record) -> str:
        """Return how a submission stands."""
        return outcome(record, JOB)

    def logs(self, record: Record) -> str:
        """Return what a submission has written so far."""
        return read_log(record.log)

    def cancel(self, record: Record) -> str:
        """End a submission."""
        if _exit_code(record) is not None or not is_at_work(record, JOB):
            return f"{record.name}: is not running."
        os.kill(int(record.id), signal.SIGTERM)
        return f"{record.name}: asked to stop; it saves what it can first."


def read_log(path: str) -> str:
    """Return what a log file holds.

    Raises:
        Refused: there is none yet.
    """
    if not io.isfile(path):
        raise Refused(f"{path}: nothing was written yet.")
    with io.open(path, encoding="utf-8", errors="replace") as file:
        return str(file.read())


def _script(job: Job) -> str:
    """Write the script: its steps, one after another; several runs or tasks one after another too."""
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
    """Write what starts the steps under torchrun, on each of several machines that see the same files."""
    count, nodes = job.resources.processes_of_node, job.resources.nodes
    meeting = ["--standalone"]
    if nodes > 1:
        meeting = [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-id={job.name}", "--rdzv-endpoint", "$HEAD"]

    def launch(step: Step) -> list[str]:
        words = script.words_of(job, step)
        if step.command != "x-train":
            return words
        return [job.python, "-m", "torch.distributed.run", *meeting, f"--nproc-per-node={count}", *words[1:]]

    how = f"bash {job.in_folder(TORCHRUN)}" if nodes == 1 else f"HEAD=host:29500 bash {job.in_folder(TORCHRUN)}"
    needs = [': "${HEAD:?is host:port of the first machine}"'] if nodes > 1 else []
    body = [f"{script.line(launch(step))} || exit $?" for step in job.steps]
    return "\n".join(["#!/bin/bash", *script.header(job, how=how), *needs, *script.in_order(job, body), ""])


def _exit_code(record: Record) -> int | None:
    path = io.join(record.folder, CODE)
    if not io.isfile(path):
        return None
    with io.open(path, encoding="utf-8") as file:
        text = str(file.read()).strip()
    return int(text) if text.isdecimal() else None


def outcome(record: Record, script: str) -> str:
    """Return in a line how a script stands that was started in the background of this machine."""
    code = _exit_code(record)
    if code is not None:
        return {0: "finished", EXIT_CODE: f"interrupted; its {script} continues it"}.get(code, f"failed ({code})")
    return "running" if is_at_work(record, script) else "gone without a word (killed, or the machine was restarted)"


def is_at_work(record: Record, script: str) -> bool:
    """Tell whether the process of a record still runs its script; another one may have its number by now."""
    try:
        os.kill(int(record.id), 0)
    except (OSError, ValueError):
        return False
    words = f"/proc/{record.id}/cmdline"
    if not io.isfile(words):
        return True  # no such files on this system
    try:
        with io.open(words, "rb") as file:
            found = bytes(file.read())
        ended = _has_ended(record.id)
    except OSError:  # it ended meanwhile
        return False
    # A process that has just begun has no words yet; nor has one that has ended, which its parent has not asked about.
    return io.join(record.folder, script).encode() in found if found else not ended


def _has_ended(number: str) -> bool:
    with io.open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
        return str(file.read()).rpartition(")")[2].split()[:1] == ["Z"]
