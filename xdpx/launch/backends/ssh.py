"""Plain machines without a scheduler: one ssh command for each, e.g. for a list of TPU VMs."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from dataclasses import replace

from xdpx.config.faults import Fault
from xdpx.launch.backends.local import CODE, in_background, is_at_work, outcome, read_log
from xdpx.launch.node_script import PORT, RUN, Meeting, faults_of_several, node_script
from xdpx.launch.programs import absent
from xdpx.launch.submission import Job, Launcher, Reach, Record, Submitted, unused
from xdpx.utils import io

LAUNCH, JOB = "launch.sh", "job.sh"
USED = ("hosts", "processes", "gpus", "nodes")
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=30")
"""Never asks for a password, as it runs in the background; detects a lost machine."""

MEETING = Meeting("${XDPX_NODE:-0}", "${JAX_COORDINATOR_ADDRESS%:*}", "${JAX_COORDINATOR_ADDRESS##*:}")
_PID = 'mkdir -p "$folder/pids" && echo $$ > "$folder/pids/$task"'


class Ssh:
    """Runs `launch.sh` here in the background, which copies the job to each host, and starts one command on each.

    Args:
        place: the value of --on.
        usual_gpus: whether hosts may have GPUs; a TPU VM has none.
    """

    files_there: Reach = "apart"
    launcher: Launcher = "script"

    def __init__(self, place: str, *, usual_gpus: bool) -> None:
        self._place = f"--on {place}"
        self._used = USED if usual_gpus else ("hosts", "nodes")

    def faults(self, job: Job) -> Iterator[Fault]:
        """Yield what is wrong with the hosts, and flags that this place does not use."""
        yield from unused(job.resources, self._used, self._place)
        found = hosts(job)
        yield from faults_of_several(with_nodes(job), self._place)
        if not found:
            yield Fault(
                "--hosts", "is not given.", "Write --hosts a,b,c: names that ssh knows; the first is the leader."
            )
        if len(set(found)) < len(found):
            remedy = "Name each once; --processes says how many processes each has."
            yield Fault("--hosts", f"names a host twice: {', '.join(found)}.", remedy)
        for host in found:
            if host.startswith("-") or any(letter.isspace() for letter in host):
                yield Fault("--hosts", f"has '{host}', which is not the name of a host.", "Write name or user@name.")
        if job.resources.nodes not in {1, len(found)}:
            yield Fault("--nodes", f"is {job.resources.nodes}, but there are {len(found)} hosts.", "Leave --nodes out.")

    def hindrances(self, job: Job) -> Iterator[Fault]:
        """Yield what prevents submitting from this machine."""
        yield from absent("ssh", "Install an OpenSSH client; --dry shows the lines anywhere.")

    def files(self, job: Job) -> dict[str, str]:
        """Return the script that runs here, and the one that each host runs."""
        known = with_nodes(job)
        script = node_script(
            known, MEETING, how=f"bash {shlex.quote(job.in_folder(JOB))}", task=MEETING.index, setup=_PID
        )
        return {LAUNCH: launch_script(known), JOB: script}

    def line(self, job: Job) -> str:
        """Return the shell command that starts `launch.sh`."""
        return f"bash submissions/{shlex.quote(job.name)}/{LAUNCH}"

    def submit(self, job: Job, folder: str) -> Submitted:
        """Start `launch.sh` in the background; the id of the submission is its process id."""
        return in_background(folder, LAUNCH)

    def status(self, record: Record) -> str:
        """Return the state of `launch.sh`."""
        return outcome(record, LAUNCH)

    def logs(self, record: Record) -> str:
        """Return the logs of `launch.sh` and of each host."""
        paths = [record.log, *io.glob(io.join(record.folder, "log-*.txt"))]
        return "\n".join(f"==> {path}\n{read_log(path)}" for path in paths)

    def cancel(self, record: Record) -> str:
        """Ask the processes of all hosts to save and end."""
        if not is_at_work(record, LAUNCH):
            return f"{record.name}: is not running."
        os.kill(int(record.id), signal.SIGTERM)
        return f"{record.name}: asked to stop on all hosts; it saves first."


def hosts(job: Job) -> list[str]:
    """Return the hosts of a job, the leader first."""
    return job.resources.host_names


def with_nodes(job: Job) -> Job:
    """Return the job with as many nodes as it has hosts."""
    return replace(job, resources=job.resources.model_copy(update={"nodes": max(1, len(hosts(job)))}))


def launch_script(job: Job) -> str:
    """Return `launch.sh`: it copies the folder to hosts that do not see it, and starts a command on each."""
    found, folder = hosts(job), shlex.quote(job.folder)
    leader = found[0].rpartition("@")[2] if found else "127.0.0.1"
    ssh = shlex.join(SSH)
    make = shlex.quote(f"mkdir -p {folder} {shlex.quote(job.workdir)} && tar -C {folder} -xf -")
    there = shlex.quote(f"test -e {shlex.quote(job.in_folder(JOB))}")
    pack = 'tar -C "$here" --exclude="./log*" -cf - .'
    copies = [
        f"{ssh} {host} {there} < /dev/null || {pack} | {ssh} {host} {make} || leave $?"
        for host in map(shlex.quote, found)
    ]
    starts = []
    for index, host in enumerate(found):
        line = shlex.quote(_start(job, index, leader, len(found)))
        starts.append(f'        {index}) exec {ssh} {shlex.quote(host)} {line} > "$here/log-{index}.txt" 2>&1 ;;')
    ends = [
        f"    {ssh} {shlex.quote(host)} {shlex.quote(f'kill -TERM $(cat {folder}/pids/{index})')} < /dev/null &"
        for index, host in enumerate(found)
    ]
    return "\n".join([
        "#!/bin/bash",
        f"# {job.name}: written by x-submit; runs without it: bash {LAUNCH}",
        "# Exit code 85 means: interrupted after saving; the same script continues.",
        'here=$(cd "$(dirname "$0")" && pwd)',
        f'leave() {{ echo "$1" > "$here/{CODE}"; exit "$1"; }}',
        f'rm -f "$here/{CODE}"',
        "",
        "# A host that does not see the folder of the job gets a copy.",
        *copies,
        "",
        "# What ssh has started does not end with it: processes are asked to save and end where they are.",
        "end_them() {",
        *ends,
        '    if [ "$1" = KILL ]; then kill -KILL "${children[@]}" 2>/dev/null; fi',
        "}",
        "",
        "process() {",
        "    case $index in",
        *starts,
        "    esac",
        "}",
        "",
        RUN,
        "",
        f"run {len(found)}; leave $?",
        "",
    ])  # fmt: skip


def _start(job: Job, index: int, leader: str, count: int) -> str:
    variables = {
        "XDPX_NODE": index, "JAX_COORDINATOR_ADDRESS": f"{leader}:{PORT}", "JAX_NUM_PROCESSES": count,
        "JAX_PROCESS_ID": index,
    }  # fmt: skip
    words = [f"{name}={value}" for name, value in variables.items()]
    return shlex.join(["env", *words, "bash", job.in_folder(JOB)])
