"""Slurm: a batch script that saves and requeues itself when it is interrupted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from xdpx.config.faults import Fault
from xdpx.launch import script
from xdpx.launch.backends.local import read_log
from xdpx.launch.programs import absent, ask
from xdpx.launch.submission import Job, JobStep, Launcher, Reach, Record, Refused, Submitted, unused
from xdpx.training import watching
from xdpx.training.preemption import EXIT_CODE
from xdpx.utils import io
from xdpx.utils.distributed_utils import LOST_PEER_CODE

JOB = "job.sbatch"
USED = ("nodes", "gpus", "processes", "cpus", "memory", "hours", "tasks", "partition", "account", "gpu_type")
SECONDS_TO_SAVE = 120
MOST_RESTARTS = 3
"""Most times that a job is requeued because one of its processes was killed, froze or hung."""
SECONDS_FOR_THE_OTHERS = 600
"""Time that srun waits for the other tasks after one has ended, so that they can finish saving."""


class Slurm:
    """Submits `job.sbatch`. The machines of the cluster see the files of this one under the same paths."""

    files_there: Reach = "shared"
    launcher: Launcher = "srun"

    def faults(self, job: Job) -> Iterator[Fault]:
        """Yield the flags that Slurm does not use."""
        yield from unused(job.resources, USED, "--on slurm")

    def hindrances(self, job: Job) -> Iterator[Fault]:
        """Yield what prevents submitting from this machine."""
        yield from absent("sbatch", "Send it from a login node of the cluster; --dry shows the files anywhere.")

    def files(self, job: Job) -> dict[str, str]:
        """Return the files that run the job."""
        return {JOB: _script(job)}

    def line(self, job: Job) -> str:
        """Return the shell command that submits the written files."""
        return shlex.join(["sbatch", job.in_folder(JOB)])

    def submit(self, job: Job, folder: str) -> Submitted:
        """Submit the job."""
        remedy = "sinfo lists partitions and their limits; --dry shows the script."
        said = ask(["sbatch", "--parsable", io.join(folder, JOB)], what="Slurm did not take the job", remedy=remedy)
        number = said.strip().partition(";")[0]
        return Submitted(number, io.join(folder, _log(job).replace("%A", number).replace("%j", number)))

    def status(self, record: Record) -> str:
        """Return the state of a submission."""
        words = ["squeue", "--noheader", "--states=all", "--format=%i %T %M %R", f"--jobs={record.id}"]
        ended = io.glob(io.join(record.folder, "exit_code.*"))
        try:
            said = ask(words, what="Slurm does not answer", remedy="It forgets jobs some minutes after their end.")
        except Refused:
            if not ended:
                raise
            said = "Slurm has forgotten the job\n"
        return said + "".join(f"exit code of task {path.rpartition('.')[2]}: {read_log(path)}" for path in ended)

    def logs(self, record: Record) -> str:
        """Return the log of a submission so far."""
        paths = io.glob(record.log.replace("%a", "*")) if "%a" in record.log else [record.log]
        return "\n".join(f"==> {path}\n{read_log(path)}" for path in paths) if len(paths) > 1 else read_log(record.log)

    def cancel(self, record: Record) -> str:
        """Cancel a submission."""
        ask(["scancel", record.id], what="Slurm did not cancel it", remedy="squeue --me lists your jobs.")
        return f"{record.name}: cancelled (job {record.id})."


def _log(job: Job) -> str:
    return "log-%A_%a.txt" if job.num_tasks > 1 else "log-%j.txt"


def _directives(job: Job) -> list[str]:
    """Return the #SBATCH lines, where Slurm unquotes words like a shell, but expands only patterns such as %j."""
    asked = job.resources
    found = {
        "job-name": job.name, "nodes": asked.nodes, "ntasks-per-node": asked.processes_of_node,
        "output": io.join(job.folder.replace("%", "%%"), _log(job)), "open-mode": "append",
        "signal": f"B:USR1@{SECONDS_TO_SAVE}",
    }  # fmt: skip
    if job.num_tasks > 1:
        found["array"] = f"0-{job.num_tasks - 1}"
    if asked.gpus:
        found["gres"] = ":".join(["gpu", *([asked.gpu_type] if asked.gpu_type else []), str(asked.gpus)])
    if asked.cpus:
        found["cpus-per-task"] = _cores(job)
    if asked.memory:
        found["mem"] = f"{round(asked.memory * 1024)}M"
    if asked.hours:
        found["time"] = max(1, round(asked.hours * 60))
    found |= {name: value for name in ("partition", "account") if (value := getattr(asked, name))}
    lines = [f"#SBATCH --{name}={shlex.quote(str(value))}" for name, value in found.items()]
    return [*lines, "#SBATCH --requeue"]


def _script(job: Job) -> str:
    lines = [
        "#!/bin/bash",
        *_directives(job),
        *script.header(job, how=f"sbatch {shlex.quote(job.in_folder(JOB))}", task="${SLURM_ARRAY_TASK_ID:-0}"),
        script.STEPS,
        "",
        "# Slurm sends USR1 to this script ahead of the time limit: save, and go back into the queue. TERM goes to all",
        "# processes: of scancel, or of a preemption, after which Slurm itself puts the job back.",
        "ending=",
        "trap 'pass_on USR1' USR1",
        "trap 'ending=1 stopping=TERM' TERM",
        "leave() {",
        '    echo "$1" > "$folder/exit_code.$task"',
        f'    case "$1" in {EXIT_CODE})',
        '        [ -n "$ending" ] || scontrol requeue "$SLURM_JOB_ID";;',
        f"    {LOST_PEER_CODE}|{watching.EXIT_CODE}|137)  # one was killed, froze or hung",
        f'        [ -n "$ending" ] || [ "${{SLURM_RESTART_COUNT:-0}}" -ge {MOST_RESTARTS} ] ||',
        '            scontrol requeue "$SLURM_JOB_ID";;',
        "    esac",
        '    exit "$1"',
        "}",
        *script.steps(job, lambda step: _words(job, step)),
        "leave 0",
    ]
    return "\n".join([*lines, ""])


def _words(job: Job, step: JobStep) -> list[str]:
    """Return the words of a step: with srun, whose variables x-train and x-exp read, if it has several processes."""
    words = script.words_of(job, step)
    if not step.together or job.resources.nodes * job.resources.processes_of_node == 1:
        return words
    cores = [f"--cpus-per-task={_cores(job)}"] if job.resources.cpus else []  # srun does not inherit it from sbatch
    return ["srun", f"--wait={SECONDS_FOR_THE_OTHERS}", *cores, *words]


def _cores(job: Job) -> int:
    return max(1, (job.resources.cpus or 1) // job.resources.processes_of_node)
