"""Kubernetes: an indexed Job, or a TrainJob where Kubeflow Trainer 2 is installed, sent by kubectl."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from xdpx.config.faults import Fault
from xdpx.launch.backends import manifests
from xdpx.launch.node_script import faults_of_several
from xdpx.launch.programs import absent, ask
from xdpx.launch.submission import Job, Launcher, Reach, Record, Submitted, unused
from xdpx.utils import io

USED = (
    "nodes", "gpus", "processes", "cpus", "memory", "hours", "tasks", "partition", "namespace", "image", "gpu_type",
    "volume", "secret", "runtime",
)  # fmt: skip
CLAIM = re.compile("[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
REMEDY = "`kubectl cluster-info` shows whether the cluster answers, and which one it is."


class Kubernetes:
    """Submits `job.yaml`, or `trainjob.yaml` if --runtime names a runtime of Kubeflow Trainer."""

    files_there: Reach = "mounted"
    launcher: Launcher = "script"

    def faults(self, job: Job) -> Iterator[Fault]:
        """Yield requirements that pods cannot meet, and flags that Kubernetes does not use."""
        yield from unused(job.resources, USED, "--on k8s")
        yield from faults_of_several(job, "--on k8s")
        if not job.resources.image:
            remedy = "Write --image REGISTRY/NAME:TAG, an image with XDPX's packages."
            yield Fault("--image", "is missing, and pods need one.", remedy)
        if job.resources.runtime and job.num_tasks > 1:
            problem = f"submits a TrainJob, which has no tasks, but the job has {job.num_tasks}."
            yield Fault("--runtime", problem, "Leave it out: an indexed Job supports them.")
        yield from manifests.volume_faults(job, CLAIM, "claim:/folder, with the name of a PersistentVolumeClaim")

    def hindrances(self, job: Job) -> Iterator[Fault]:
        """Yield what prevents submitting from this machine."""
        yield from absent(
            "kubectl",
            "Install it, or copy the files of --dry to a machine that has it, and run kubectl create -f on them.",
        )

    def files(self, job: Job) -> dict[str, str]:
        """Return the script of the pods, the Job with its Service, and the TrainJob if the job has only one task."""
        files = {manifests.SCRIPT: manifests.pod_script(job)}
        files[manifests.JOB] = manifests.yaml_text(manifests.indexed_job(job))
        if job.num_tasks == 1:
            files[manifests.TRAIN_JOB] = manifests.yaml_text([manifests.train_job(job)])
        return files

    def line(self, job: Job) -> str:
        """Return the shell command that submits the written files."""
        return shlex.join(["kubectl", "create", "-f", job.in_folder(_sent(job))])

    def submit(self, job: Job, folder: str) -> Submitted:
        """Create the objects, and return their kind and name, and the command that shows the log."""
        words = ["kubectl", "create", "-f", io.join(folder, _sent(job))]
        ask(words, what="kubernetes did not take the job", remedy=REMEDY)
        kind = "trainjob" if job.resources.runtime else "job"
        name = f"{kind}/{manifests.object_name(job)}"
        return Submitted(name, shlex.join(_logs(name, job.resources.namespace, job.resources.nodes)))

    def status(self, record: Record) -> str:
        """Return the conditions of the job and its numbers of pods."""
        words = ["kubectl", "get", record.id, *_within(record.resources.get("namespace")), "-o", "json"]
        return told(json.loads(ask(words, what="kubernetes does not answer", remedy=REMEDY)))

    def logs(self, record: Record) -> str:
        """Return the logs of the pods, each line prefixed with the name of its pod."""
        return ask(shlex.split(record.log), what="kubernetes has no logs", remedy=REMEDY)

    def cancel(self, record: Record) -> str:
        """Delete the job; its pods are asked to save first."""
        within = _within(record.resources.get("namespace"))
        kind, _, name = record.id.partition("/")
        others = [f"service/{name}"] if kind == "job" else []
        words = ["kubectl", "delete", record.id, *others, *within, "--ignore-not-found", "--wait=false"]
        ask(words, what="kubernetes did not delete it", remedy=REMEDY)
        return f"{record.name}: deleted; its pods have {manifests.GRACE_SECONDS} seconds to save."


def told(found: dict[str, Any]) -> str:
    """Return the state of a Job or TrainJob in one line, from the output of `kubectl get -o json`."""
    status = found.get("status", {})
    holding = [each for each in status.get("conditions", []) if each.get("status") == "True"]
    names = [f"{each['type'].lower()}{_because(each)}" for each in holding]
    counts = [f"{status[key]} {key}" for key in ("active", "ready", "succeeded", "failed") if status.get(key)]
    return ", ".join([*names, *counts]) or "waiting: no pod has started"


def _because(condition: dict[str, Any]) -> str:
    why = " ".join(condition.get(key, "") for key in ("reason", "message")).strip()
    return f" ({why})" if why else ""


def _sent(job: Job) -> str:
    return manifests.TRAIN_JOB if job.resources.runtime else manifests.JOB


def _within(namespace: str | None) -> list[str]:
    return [f"--namespace={namespace}"] if namespace else []


def _logs(name: str, namespace: str | None, nodes: int) -> list[str]:
    kind, _, bare = name.partition("/")
    label = "batch.kubernetes.io/job-name" if kind == "job" else "jobset.sigs.k8s.io/jobset-name"
    return [
        "kubectl", "logs", *_within(namespace), f"--selector={label}={bare}", "--prefix", "--tail=-1",
        f"--max-log-requests={max(5, 2 * nodes)}",
    ]  # fmt: skip
