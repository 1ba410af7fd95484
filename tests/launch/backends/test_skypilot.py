"""The task for SkyPilot. Its package needs versions that do not go with ours, so the shape is written out here."""

from __future__ import annotations

import pytest
import yaml

from tests.launch.jobs import NAME, job_of
from xdpx.launch.backends.skypilot import SkyPilot
from xdpx.utils import io

FOLDER = f"/data/work/submissions/{NAME}"


def test_the_task_says_what_its_machines_need_and_do() -> None:
    job = job_of(nodes=2, gpus=8, gpu_type="H100", cpus=16, memory=128.5, image="host/xdpx:1", secret="A_KEY,TOKEN")
    assert list(SkyPilot().faults(job)) == []
    found = yaml.safe_load(SkyPilot().files(job)["sky.yaml"])
    recovery = {"strategy": "EAGER_NEXT_REGION", "recover_on_exit_codes": [85]}
    needs = {"accelerators": "H100:8", "cpus": "16+", "memory": "128.5+", "image_id": "docker:host/xdpx:1"}
    assert found == {
        "name": NAME, "num_nodes": 2, "resources": needs | {"job_recovery": recovery},
        "secrets": {"A_KEY": None, "TOKEN": None},
        "file_mounts": {FOLDER: io.join(io.abspath("."), "submissions", NAME)},
        "run": f"mkdir -p /data/work && bash {FOLDER}/job.sh\n",
    }  # fmt: skip


def test_the_machines_meet_at_the_first_one() -> None:
    script = SkyPilot().files(job_of(nodes=2, gpus=1, gpu_type="L4"))["job.sh"]
    assert 'node=${SKYPILOT_NODE_RANK:-0} address=$(head -n 1 <<< "${SKYPILOT_NODE_IPS:-127.0.0.1}")' in script


@pytest.mark.parametrize(
    ("asked", "expected"), [({"gpus": 1}, "--gpu-type: is not given"), ({"hours": 1}, "--hours: is not supported")]
)
def test_what_a_task_cannot_say_is_refused(asked: dict[str, int], expected: str) -> None:
    assert [str(fault) for fault in SkyPilot().faults(job_of(**asked)) if str(fault).startswith(expected)]
