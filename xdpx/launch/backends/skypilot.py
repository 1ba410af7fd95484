"""SkyPilot: one task for any cloud, run as a managed job, which restarts it when machines are preempted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from xdpx.config.faults import Fault
from xdpx.launch.backends.manifests import Manifest, yaml_text
from xdpx.launch.node_script import Meeting, faults_of_several, node_script
from xdpx.launch.programs import absent, ask
from xdpx.launch.submission import Job, Launcher, Reach, Record, Submitted, unused
from xdpx.training.preemption import EXIT_CODE
from xdpx.utils import io

TASK, JOB = "sky.yaml", "job.sh"
USED = ("nodes", "gpus", "gpu_type", "processes", "cpus", "memory", "image", "secret")
REMEDY = "`sky check` shows which clouds answer; `sky api status` whether its server does."
MEETING = Meeting("${SKYPILOT_NODE_RANK:-0}", '$(head -n 1 <<< "${SKYPILOT_NODE_IPS:-127.0.0.1}")')


class SkyPilot:
    """Submits `sky.yaml` as a managed job. Its machines see no files of this one but a copy of the job's folder."""

    files_there: Reach = "apart"
    launcher: Launcher = "script"

    def faults(self, job: Job) -> Iterator[Fault]:
        """Yield requirements that a task cannot meet, and flags that SkyPilot does not use."""
        yield from unused(job.resources, USED, "--on sky")
        yield from faults_of_several(job, "--on sky")
        if job.resources.gpus and not job.resources.gpu_type:
            yield Fault("--gpu-type", "is not given.", "Write e.g. --gpu-type H100; `sky gpus list` shows them.")

    def hindrances(self, job: Job) -> Iterator[Fault]:
        """Yield what prevents submitting from this machine."""
        yield from absent("sky", "Install it in an environment of its own: pip install skypilot.")

    def files(self, job: Job) -> dict[str, str]:
        """Return the task and the script of its machines."""
        script = node_script(job, MEETING, how=f"bash {JOB}", task=MEETING.index)
        return {JOB: script, TASK: yaml_text([task(job)])}

    def line(self, job: Job) -> str:
        """Return the shell command that submits the written files."""
        return shlex.join(["sky", "jobs", "launch", "--yes", "--detach-run", *_secrets(job), _here(job, TASK)])

    def submit(self, job: Job, folder: str) -> Submitted:
        """Submit the task as a managed job, and return its name."""
        words = ["sky", "jobs", "launch", "--yes", "--detach-run", *_secrets(job), io.join(folder, TASK)]
        ask(words, what="skypilot did not take the job", remedy=REMEDY)
        return Submitted(job.name, f"sky jobs logs --name {job.name}")

    def status(self, record: Record) -> str:
        """Return the line of the job in the queue."""
        listed = ask(["sky", "jobs", "queue"], what="skypilot does not answer", remedy=REMEDY).splitlines()
        return "\n".join(line for line in listed if record.id in line) or "no such job in `sky jobs queue`"

    def logs(self, record: Record) -> str:
        """Return the log of the first machine so far."""
        words = ["sky", "jobs", "logs", "--no-follow", "--name", record.id]
        return ask(words, what="skypilot has no logs", remedy=REMEDY)

    def cancel(self, record: Record) -> str:
        """Cancel the managed job."""
        ask(["sky", "jobs", "cancel", "--yes", "--name", record.id], what="skypilot did not stop it", remedy=REMEDY)
        return f"{record.name}: cancelled."


def task(job: Job) -> Manifest:
    """Return the task: its resources, the folder of the job, and the script to run on each machine."""
    asked = job.resources
    needs: Manifest = {}
    if asked.gpus:
        needs["accelerators"] = f"{asked.gpu_type}:{asked.gpus}"
    needs |= {name: f"{value:g}+" for name, value in (("cpus", asked.cpus), ("memory", asked.memory)) if value}
    if asked.image:
        needs["image_id"] = f"docker:{asked.image}"
    needs["job_recovery"] = {"strategy": "EAGER_NEXT_REGION", "recover_on_exit_codes": [EXIT_CODE]}
    secrets: Manifest = {"secrets": dict.fromkeys(_names(job))} if _names(job) else {}
    return {
        "name": job.name, "num_nodes": asked.nodes, "resources": needs, **secrets,
        "file_mounts": {job.folder: _here(job, "")},
        "run": f"mkdir -p {shlex.quote(job.workdir)} && bash {shlex.quote(job.in_folder(JOB))}\n",
    }  # fmt: skip


def _names(job: Job) -> list[str]:
    """Return the names of secret variables, whose values `sky` reads here; they are never written into the file."""
    return [name.strip() for name in (job.resources.secret or "").split(",") if name.strip()]


def _secrets(job: Job) -> list[str]:
    return [word for name in _names(job) for word in ("--secret", name)]


def _here(job: Job, name: str) -> str:
    return io.join(io.abspath("."), "submissions", job.name, name).rstrip("/")
