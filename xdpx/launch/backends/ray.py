"""Ray: a script that the job server runs on one machine of its cluster."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator

from xdpx.config.faults import Fault
from xdpx.launch import script
from xdpx.launch.programs import absent, ask
from xdpx.launch.submission import Job, Launcher, Reach, Record, Submitted, unused
from xdpx.utils import io

JOB = "job.sh"
USED = ("gpus", "processes", "cpus", "memory", "address")
TOKEN = os.path.expanduser("~/.ray/auth_token")
ADDRESS = "http://127.0.0.1:8265"


class Ray:
    """Submits `bash job.sh` to a job server, whose machines see the files of this one under the same paths."""

    files_there: Reach = "shared"
    launcher: Launcher = "command"

    def faults(self, job: Job) -> Iterator[Fault]:
        """Yield the flags that Ray does not use."""
        yield from unused(job.resources, USED, "--on ray")

    def hindrances(self, job: Job) -> Iterator[Fault]:
        """Yield what prevents submitting from this machine."""
        yield from absent("ray", "Install it: pip install 'ray[default]'; --dry shows the files anywhere.")

    def files(self, job: Job) -> dict[str, str]:
        """Return the files that run the job."""
        lines = [
            "#!/bin/bash", *script.header(job, how=f"bash {shlex.quote(job.in_folder(JOB))}"), script.STEPS,
            'leave() { exit "$1"; }', "trap 'stopping=TERM' TERM  # Ray sends it to all processes",
            *script.on_one_machine(job), "leave 0",
        ]  # fmt: skip
        return {JOB: "\n".join([*lines, ""])}

    def line(self, job: Job) -> str:
        """Return the shell command that submits the written files."""
        return shlex.join(_submit(job))

    def submit(self, job: Job, folder: str) -> Submitted:
        """Submit the job."""
        remedy = "Is the job server of the cluster at --address? Does it ask for a token (RAY_AUTH_TOKEN)?"
        _ask(_submit(job), what="Ray did not take the job", remedy=remedy)
        address = job.resources.address or ADDRESS
        return Submitted(job.name, f"{address}/#/jobs/{job.name}")

    def status(self, record: Record) -> str:
        """Return the state of a submission."""
        said = _ask(["ray", "job", "status", *_of(record)], what="Ray does not answer", remedy="Is the cluster up?")
        found = re.search(r"(?:Job '[^']+' (?:was )?|Status for job '[^']+': )(\w+)", said)
        return found[1].lower() if found else said

    def logs(self, record: Record) -> str:
        """Return the log of a submission so far."""
        return _ask(["ray", "job", "logs", *_of(record)], what="Ray has no logs", remedy="Is the cluster up?")

    def cancel(self, record: Record) -> str:
        """Cancel a submission."""
        _ask(["ray", "job", "stop", "--no-wait", *_of(record)], what="Ray did not stop it", remedy="Is the cluster up?")
        return f"{record.name}: asked to stop."


def _submit(job: Job) -> list[str]:
    asked = job.resources
    wanted = {"entrypoint-num-cpus": asked.cpus, "entrypoint-num-gpus": asked.gpus or None}
    wanted["entrypoint-memory"] = round(asked.memory * 2**30) if asked.memory else None
    flags = [f"--{name}={value}" for name, value in wanted.items() if value is not None]
    address = asked.address or ADDRESS
    return [
        "ray", "job", "submit", f"--address={address}", f"--submission-id={job.name}", "--no-wait", *flags, "--",
        "bash", job.in_folder(JOB),
    ]  # fmt: skip


def _of(record: Record) -> list[str]:
    return [f"--address={record.resources.get('address', ADDRESS)}", record.id]


def _ask(words: list[str], *, what: str, remedy: str) -> str:
    """Run `ray job`, with the token of this user if there is one, which its client does not send by default."""
    has_token = io.isfile(TOKEN) or any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    more = {"RAY_AUTH_MODE": "token"} if has_token and "RAY_AUTH_MODE" not in os.environ else {}
    return ask(words, what=what, remedy=remedy, environment=more)
