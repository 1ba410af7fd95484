"""Kubernetes objects for a job: an indexed Job with its Service, and a TrainJob of Kubeflow Trainer 2.

Source: kubernetes.io on Jobs (indexed completion, pod failure policy), kubeflow.org on Trainer 2 (v1alpha1).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TypeAlias

import yaml

from xdpx.config.faults import Fault
from xdpx.launch.node_script import PORT, Meeting, node_script
from xdpx.launch.submission import Job, Resources
from xdpx.training.preemption import EXIT_CODE

Value: TypeAlias = "str | int | bool | None | list[Value] | dict[str, Value]"
Manifest: TypeAlias = dict[str, Value]

JOB, TRAIN_JOB, SCRIPT = "job.yaml", "trainjob.yaml", "job.sh"
CONTAINER = "xdpx"
GRACE_SECONDS = 600
"""Time to save after SIGTERM; the default of Kubernetes is 30 seconds."""

RETRIES = 6
"""Failed pods per machine after which the job has failed; preemptions do not count."""

CONFIG_FAULT = 2
"""Exit code of a fault in a config, for which a retry is useless."""

SECRET_FOLDER = "/etc/xdpx-secret"
_READ_SECRET = f"""\
if [ -d {SECRET_FOLDER} ]; then  # a TrainJob can mount a secret, but not name it for variables
    for file in {SECRET_FOLDER}/*; do export "$(basename "$file")=$(cat "$file")"; done
fi"""

LONGEST_NAME = 56
"""Below the limit of 63 characters, so that `-<index>` of a pod fits."""

QUEUE_LABEL, GPU_LABEL = "kueue.x-k8s.io/queue-name", "nvidia.com/gpu.product"


def object_name(job: Job) -> str:
    """Return the name of the objects of a submission: that of its folder, in characters that Kubernetes allows."""
    wanted = job.folder.rstrip("/").rpartition("/")[2] or job.name
    name = re.sub("[^a-z0-9]+", "-", wanted.lower()).strip("-")
    if not name or not name[0].isalpha():
        name = f"x-{name}".strip("-")
    if len(name) > LONGEST_NAME:
        digest = hashlib.sha256(wanted.encode()).hexdigest()[:8]
        name = f"{name[: LONGEST_NAME - 9].rstrip('-')}-{digest}"
    return name


def indexed_job(job: Job) -> list[Manifest]:
    """Return the Service and the Job, with one pod for each machine, or for each task of an array.

    A pod that was evicted, or ended with code 85 (interrupted and saved), is restarted and does not count as a failure;
    code 2 (a fault in the config) fails the job, or its task, at once.
    """
    name, array = object_name(job), job.num_tasks > 1
    count = job.num_tasks if array else job.resources.nodes
    spec: Manifest = {
        "completionMode": "Indexed", "completions": count, "parallelism": count,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _failure_rules("FailIndex" if array else "FailJob")},
        **({"backoffLimitPerIndex": RETRIES} if array else {"backoffLimit": RETRIES * count}),
        **_deadline(job.resources),
        "template": {"metadata": {"labels": _labels(job, name)}, "spec": _pod(job, name)},
    }  # fmt: skip
    service_spec: Manifest = {
        "clusterIP": "None", "publishNotReadyAddresses": True,
        "selector": {"batch.kubernetes.io/job-name": name},
        "ports": [{"name": "meeting", "port": PORT, "protocol": "TCP"}],
    }  # fmt: skip
    described = _metadata(job, name)
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": described, "spec": service_spec},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": described, "spec": spec},
    ]


def train_job(job: Job) -> Manifest:
    """Return the TrainJob of Kubeflow Trainer 2.

    The script sets the number of processes on each machine, as the runtimes no longer have `numProcPerNode`. What
    happens to failed pods is decided by the runtime.
    """
    name, resources = object_name(job), job.resources
    on_jax = any(step.command == "x-exp" for step in job.steps)
    trainer: Manifest = {
        "numNodes": resources.nodes, "image": resources.image or "", "command": _command(job),
        **_needs(resources, "resourcesPerNode"),
    }  # fmt: skip
    volumes, mounts = _volumes(resources, secret=True)
    pod: Manifest = {
        "terminationGracePeriodSeconds": GRACE_SECONDS, "volumes": volumes,
        "containers": [{"name": "node", "volumeMounts": mounts}], **_selector(resources),
    }  # fmt: skip
    patch: Manifest = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}
    spec: Manifest = {
        "runtimeRef": {"name": resources.runtime or ("jax-distributed" if on_jax else "torch-distributed")},
        "trainer": trainer, **_deadline(resources),
        "runtimePatches": [{"manager": "app.xdpx/x-submit", "trainingRuntimeSpec": {"template": {"spec": patch}}}],
    }  # fmt: skip
    api = "trainer.kubeflow.org/v1alpha1"
    return {"apiVersion": api, "kind": "TrainJob", "metadata": _metadata(job, name), "spec": spec}


def pod_script(job: Job) -> str:
    """Return the script of each pod, of a Job or a TrainJob; a TrainJob sets the rendezvous address itself."""
    name, index = object_name(job), "${JOB_COMPLETION_INDEX:-0}"
    meeting = Meeting(index, f"${{PET_MASTER_ADDR:-{name}-0.{name}}}", f"${{PET_MASTER_PORT:-{PORT}}}")
    return node_script(job, meeting, how=f"kubectl create -f {JOB}", task=index, setup=_READ_SECRET)


def yaml_text(manifests: list[Manifest]) -> str:
    """Return objects as YAML, with multi-line text as blocks."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text as a block, and never uses anchors and aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _as_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _OTHER_TO_GO.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_OTHER_TO_GO = re.compile(r"[-+]?\d[\d_]*[eE][-+]?\d+|0o[0-7_]+|[yn]", re.IGNORECASE)
"""Text that kubectl, a program in Go, reads as a number or a truth value, but this library writes without quotes."""

_Dumper.add_representer(str, _as_text)


def _pod(job: Job, name: str) -> Manifest:
    resources = job.resources
    volumes, mounts = _volumes(resources, secret=False)
    secret: Manifest = {"envFrom": [{"secretRef": {"name": resources.secret}}]} if resources.secret else {}
    container: Manifest = {
        "name": CONTAINER, "image": resources.image or "", "command": _command(job), **secret,
        **_needs(resources, "resources"), "volumeMounts": mounts,
    }  # fmt: skip
    return {
        "restartPolicy": "Never", "subdomain": name, "terminationGracePeriodSeconds": GRACE_SECONDS,
        **_selector(resources), "containers": [container], "volumes": volumes,
    }  # fmt: skip


def _failure_rules(on_fault: str) -> list[Value]:
    def on_code(code: int) -> Manifest:
        return {"containerName": CONTAINER, "operator": "In", "values": [code]}

    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": on_code(EXIT_CODE)},
        {"action": on_fault, "onExitCodes": on_code(CONFIG_FAULT)},
    ]


def _metadata(job: Job, name: str) -> Manifest:
    namespace: Manifest = {"namespace": job.resources.namespace} if job.resources.namespace else {}
    return {"name": name, **namespace, "labels": _labels(job, name)}


def _labels(job: Job, name: str) -> Manifest:
    queue: Manifest = {QUEUE_LABEL: job.resources.partition} if job.resources.partition else {}
    return {"app.kubernetes.io/name": "xdpx", "app.kubernetes.io/instance": name, **queue}


def _deadline(resources: Resources) -> Manifest:
    return {"activeDeadlineSeconds": max(1, round(resources.hours * 3600))} if resources.hours else {}


def _selector(resources: Resources) -> Manifest:
    return {"nodeSelector": {GPU_LABEL: resources.gpu_type}} if resources.gpu_type else {}


def _needs(resources: Resources, key: str) -> Manifest:
    """Return the resources of a machine, requests equal to limits, so that they are guaranteed."""
    wanted: Manifest = {}
    if resources.cpus:
        wanted["cpu"] = str(resources.cpus)
    if resources.memory:
        wanted["memory"] = f"{round(resources.memory * 1024)}Mi"
    if resources.gpus:
        wanted["nvidia.com/gpu"] = str(resources.gpus)
    return {key: {"requests": wanted, "limits": wanted}} if wanted else {}


def _volumes(resources: Resources, *, secret: bool) -> tuple[list[Value], list[Value]]:
    """Return the volumes and their mounts: claims, shared memory, and with `secret` the secret as files.

    /dev/shm of a container has only 64 MB by default, too little for NCCL and for workers that load data.
    """
    volumes: list[Value] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    mounts: list[Value] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]
    for number, (claim, path) in enumerate(claims(resources)):
        volumes.append({"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": f"volume-{number}", "mountPath": path})
    if secret and resources.secret:
        volumes.append({"name": "secret", "secret": {"secretName": resources.secret}})
        mounts.append({"name": "secret", "mountPath": SECRET_FOLDER, "readOnly": True})
    return volumes, mounts


def claims(resources: Resources) -> list[tuple[str, str]]:
    """Return (claim, folder) of each volume: `data:/data,home:/home/me`."""
    parts = (resources.volume or "").split(",")
    return [(claim.strip(), path.strip()) for claim, _, path in (part.partition(":") for part in parts if part.strip())]


def _command(job: Job) -> list[Value]:
    # Not the script itself: Kubernetes would read `$(...)` and `$$` in it.
    return ["bash", job.in_folder(SCRIPT)]


def volume_faults(job: Job, names: re.Pattern[str], form: str) -> Iterator[Fault]:
    """Yield faults of --volume, which must mount a volume that holds the folder of the job.

    Args:
        job: the job to run.
        names: pattern of valid volume names.
        form: the syntax of a volume, for the message.
    """
    found = claims(job.resources)
    for name, path in found:
        if not path.startswith("/") or not names.fullmatch(name):
            yield Fault("--volume", f"has '{name}:{path}'.", f"Write {form}.")
    if not any(path and job.folder.startswith(f"{path.rstrip('/')}/") for _, path in found):
        problem = f"mounts nothing at {job.folder}, which contains the script, the code and the configs of the job."
        yield Fault("--volume", problem, f"Write {form}; --far-root where that folder has another path there.")
