"""PAI-DLC: a PyTorchJob of containers, through Alibaba Cloud's SDK; the request itself is a plain JSON file."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from xdpx.config.faults import Fault
from xdpx.launch.backends.manifests import claims, volume_faults
from xdpx.launch.node_script import PORT, Meeting, faults_of_several, node_script
from xdpx.launch.submission import Job, Launcher, Reach, Record, Refused, Submitted, unused
from xdpx.utils import io

if TYPE_CHECKING:
    from alibabacloud_pai_dlc20201203.client import Client
    from alibabacloud_pai_dlc20201203.models import CreateJobRequest

T = TypeVar("T")

REQUEST, JOB = "dlc.json", "job.sh"
USED = (
    "nodes", "gpus", "processes", "cpus", "memory", "hours", "image", "volume", "gpu_type", "workspace", "partition",
)  # fmt: skip
KEY, SECRET = "ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"
REGION, WORKSPACE, ENDPOINT = "ALIBABA_CLOUD_REGION_ID", "PAI_WORKSPACE_ID", "PAI_DLC_ENDPOINT"
MEETING = Meeting("${RANK:-0}", "${MASTER_ADDR:-127.0.0.1}", f"${{MASTER_PORT:-{PORT}}}")
"""In DLC, RANK is the index of the machine, not of the process."""

DATA_SET = re.compile("d-[a-z0-9]+")


class Dlc:
    """Submits `dlc.json`. Containers mount data sets of the workspace, one of which must hold the job's folder."""

    files_there: Reach = "mounted"
    launcher: Launcher = "script"

    def faults(self, job: Job) -> Iterator[Fault]:
        """Yield requirements that DLC cannot meet, missing flags, and flags that it does not use."""
        asked = job.resources
        yield from unused(asked, USED, "--on dlc")
        yield from faults_of_several(job, "--on dlc")
        if job.num_tasks > 1:
            yield Fault("runs", f"are {job.num_tasks}, and DLC has no arrays.", "Send them one by one (--only N).")
        if not asked.image:
            yield Fault("--image", "is missing, and DLC runs containers.", "Write --image REGISTRY/NAME:TAG.")
        if not (asked.workspace or os.environ.get(WORKSPACE)):
            yield Fault("--workspace", "is not given.", f"Write --workspace NUMBER, or set {WORKSPACE}.")
        yield from volume_faults(job, DATA_SET, "d-ID:/folder, with the id of a data set of the workspace")

    def hindrances(self, job: Job) -> Iterator[Fault]:
        """Yield what prevents submitting from this machine: no SDK, credentials or region."""
        if find_spec("alibabacloud_pai_dlc20201203") is None:
            yield Fault("--on", "needs alibabacloud-pai-dlc20201203.", "Run: pip install 'xdpx[pai]'.")
        for name in (KEY, SECRET):
            if not os.environ.get(name):
                yield Fault(name, "is not set.", "DLC requires signed requests; set it in the environment.")
        if not (os.environ.get(REGION) or os.environ.get(ENDPOINT)):
            yield Fault(REGION, "is not set.", "Set it to the region of the workspace, e.g. cn-hangzhou.")

    def files(self, job: Job) -> dict[str, str]:
        """Return the request, and the script that each machine runs."""
        script = node_script(job, MEETING, how=f"bash {shlex.quote(job.in_folder(JOB))}", task=MEETING.index)
        return {JOB: script, REQUEST: json.dumps(request_body(job), indent=2, ensure_ascii=False) + "\n"}

    def line(self, job: Job) -> str:
        """Return the shell command that sends the request."""
        return f'aliyun pai-dlc CreateJob --body "$(cat {shlex.quote(job.in_folder(REQUEST))})"'

    def submit(self, job: Job, folder: str) -> Submitted:
        """Send the request, and return the id of the job."""
        with io.open(io.join(folder, REQUEST), encoding="utf-8") as file:
            request = checked_request(json.loads(file.read()))
        answer = _told("dlc did not take the job", lambda: client().create_job(request))
        found = str(answer.body.job_id)
        return Submitted(found, f"x-submit logs {found}")

    def status(self, record: Record) -> str:
        """Return the state of the job, with the reason if there is one."""
        body = self._job(record)
        why = f" ({body.reason_message or body.reason_code})" if body.reason_message or body.reason_code else ""
        return f"{body.status}{why}"

    def logs(self, record: Record) -> str:
        """Return the logs of its machines so far."""
        from alibabacloud_pai_dlc20201203.models import GetPodLogsRequest

        def of_pod(pod: str) -> str:
            answer = client().get_pod_logs(record.id, pod, GetPodLogsRequest(max_lines=2000))
            return "\n".join([f"==> {pod}", *(answer.body.logs or [])])

        pods = [pod.pod_id for pod in self._job(record).pods or []]
        return "\n".join(_told("dlc has no logs", lambda: [of_pod(pod) for pod in pods])) or "no machine has started"

    def cancel(self, record: Record) -> str:
        """Stop the job."""
        _told("dlc did not stop it", lambda: client().stop_job(record.id))
        return f"{record.name}: asked to stop."

    def _job(self, record: Record) -> Any:  # the SDK's own classes have no types
        from alibabacloud_pai_dlc20201203.models import GetJobRequest

        return _told("dlc does not answer", lambda: client().get_job(record.id, GetJobRequest())).body


def request_body(job: Job) -> dict[str, Any]:
    """Return the body of the CreateJob request, by the API's field names; it contains no secrets."""
    asked = job.resources
    needs = {
        "CPU": asked.cpus and str(asked.cpus), "Memory": asked.memory and f"{asked.memory:g}Gi",
        "GPU": asked.gpus and str(asked.gpus), "GPUType": not _is_instance(asked.gpu_type) and asked.gpu_type,
        "SharedMemory": asked.memory and f"{asked.memory / 2:g}Gi",
    }  # fmt: skip
    worker: dict[str, Any] = {"Type": "Worker", "Image": asked.image, "PodCount": asked.nodes}
    if _is_instance(asked.gpu_type):
        worker["EcsSpec"] = asked.gpu_type
    else:
        worker["ResourceConfig"] = {name: value for name, value in needs.items() if value}
    body: dict[str, Any] = {
        "DisplayName": job.name, "JobType": "PyTorchJob", "JobSpecs": [worker],
        "UserCommand": shlex.join(["bash", job.in_folder(JOB)]),
        "WorkspaceId": asked.workspace or os.environ.get(WORKSPACE, ""),
        "DataSources": [{"DataSourceId": name, "MountPath": path} for name, path in claims(asked)],
    }  # fmt: skip
    if asked.partition:
        body["ResourceId"] = asked.partition
    if asked.hours:
        body["JobMaxRunningTimeMinutes"] = max(1, round(60 * asked.hours))
    return body


def _is_instance(kind: str | None) -> bool:
    """Return whether --gpu-type names a machine type (ecs.*), which also determines cores and memory."""
    return (kind or "").startswith("ecs.")


def checked_request(body: dict[str, Any]) -> CreateJobRequest:
    """Return the request as an object of the SDK.

    Raises:
        Refused: the SDK does not know a field of it.
    """
    from alibabacloud_pai_dlc20201203.models import CreateJobRequest

    request = CreateJobRequest().from_map(body)
    request.validate()
    unknown = lost(body, request.to_map())
    if unknown:
        raise Refused(f"{REQUEST}: DLC's SDK knows no {', '.join(unknown)}. Is alibabacloud-pai-dlc20201203 >= 1.11?")
    return request


def lost(wanted: Any, kept: Any, place: str = "") -> list[str]:
    """Return the paths of the values of `wanted` that are missing or different in `kept`."""
    if isinstance(wanted, dict) and isinstance(kept, dict):
        inner = [(value, kept.get(key), f"{place}.{key}".lstrip(".")) for key, value in wanted.items()]
        return [hole for parts in inner for hole in lost(*parts)]
    if isinstance(wanted, list) and isinstance(kept, list) and len(wanted) == len(kept):
        pairs = enumerate(zip(wanted, kept, strict=True))
        return [hole for index, pair in pairs for hole in lost(*pair, f"{place}[{index}]")]
    return [] if wanted == kept else [place]


def client() -> Client:
    """Return a client with the credentials from the environment."""
    from alibabacloud_pai_dlc20201203.client import Client
    from alibabacloud_tea_openapi.utils_models import Config

    region = os.environ.get(REGION, "")
    endpoint = os.environ.get(ENDPOINT) or f"pai-dlc.{region}.aliyuncs.com"
    protocol, _, host = endpoint.rpartition("://")
    return Client(Config(
        access_key_id=os.environ.get(KEY), access_key_secret=os.environ.get(SECRET), region_id=region or None,
        endpoint=host, protocol=protocol or "https",
    ))  # fmt: skip


def _told(what: str, work: Callable[[], T]) -> T:
    """Return the result of an SDK call; raise its errors as `Refused`."""
    try:
        return work()
    except Exception as error:  # the SDK raises many kinds, with no common base
        said = getattr(error, "message", None) or str(error)
        raise Refused(f"{what}: {' '.join(str(said).split())}. Are the credentials and the region right?") from error
