"""Objects of Kubernetes, held against the schemas that Kubeflow publishes (kubeflow-trainer-api on PyPI)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow_trainer_api.models import IoK8sApiBatchV1Job, IoK8sApiCoreV1Service, TrainerV1alpha1TrainJob

from tests.launch.backends.kube_server import serving
from tests.launch.jobs import job_of
from xdpx.config.faults import Fault
from xdpx.launch.backends import manifests
from xdpx.launch.backends.kubernetes import Kubernetes, told
from xdpx.launch.submission import Job, Record, Refused

KINDS = {"Service": IoK8sApiCoreV1Service, "Job": IoK8sApiBatchV1Job, "TrainJob": TrainerV1alpha1TrainJob}
FULL = {
    "nodes": 2, "gpus": 8, "cpus": 64, "memory": 512.5, "hours": 1.5, "image": "host/xdpx:1", "gpu_type": "H100",
    "volume": "work:/data,home:/home/me", "secret": "keys", "namespace": "team", "partition": "night",
}  # fmt: skip
PLAIN = {"image": "host/xdpx:1", "volume": "work:/data"}


def objects_of(job: Job) -> dict[str, Any]:
    """Return the objects in the files of a job, by kind."""
    files = Kubernetes().files(job)
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return {found["kind"]: found for text in texts for found in yaml.safe_load_all(text)}


def unknown_parts(found: dict[str, Any]) -> bool:
    """Tell whether an object has a part that its schema does not know; a wrong type or a missing part raises."""
    return KINDS[found["kind"]].from_dict(found).to_dict() != found


@pytest.mark.parametrize("asked", [PLAIN, FULL, PLAIN | {"tasks": 8}])
def test_every_object_is_what_its_schema_says(asked: dict[str, Any]) -> None:
    job = job_of(**asked)
    assert list(Kubernetes().faults(job)) == []
    found = objects_of(job)
    assert set(found) == ({"Service", "Job"} if "tasks" in asked else set(KINDS))
    assert not [kind for kind, each in found.items() if unknown_parts(each)]


def test_the_schemas_find_a_word_that_is_misspelt_and_a_value_of_another_type() -> None:
    found = objects_of(job_of(**FULL))
    found["TrainJob"]["spec"]["trainer"]["numProcs"] = 8
    assert unknown_parts(found["TrainJob"])
    found["Job"]["spec"]["completions"] = "2"
    with pytest.raises(ValueError, match="valid integer"):
        unknown_parts(found["Job"])


@pytest.mark.parametrize(
    ("text", "written"), [("1e3", "'1e3'"), ("y", "'y'"), ("0o17", "'0o17'"), ("team-1e3", "team-1e3")]
)
def test_text_that_go_reads_as_a_number_or_a_truth_value_is_in_quotes(text: str, written: str) -> None:
    assert manifests.yaml_text([{"namespace": text}]) == f"namespace: {written}\n"


def test_an_interrupted_pod_comes_again_and_a_wrong_config_does_not() -> None:
    spec = objects_of(job_of(**FULL))["Job"]["spec"]
    rules = [(rule["action"], rule.get("onExitCodes", {}).get("values")) for rule in spec["podFailurePolicy"]["rules"]]
    assert rules == [("Ignore", None), ("Ignore", [85]), ("FailJob", [2])]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # without it there is no such policy
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == manifests.GRACE_SECONDS


def test_pods_find_the_first_one_by_the_name_that_the_service_gives_it() -> None:
    job = job_of(**FULL)
    found = objects_of(job)
    name = found["Service"]["metadata"]["name"]
    assert found["Job"]["spec"]["template"]["spec"]["subdomain"] == name
    assert found["Service"]["spec"]["selector"] == {"batch.kubernetes.io/job-name": found["Job"]["metadata"]["name"]}
    assert f"{name}-0.{name}" in Kubernetes().files(job)["job.sh"]


def test_runs_of_a_config_are_tasks_with_their_own_retries() -> None:
    job = job_of(runs=3, **PLAIN)
    spec = objects_of(job)["Job"]["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimitPerIndex"]) == (3, 3, manifests.RETRIES)
    assert spec["podFailurePolicy"]["rules"][2]["action"] == "FailIndex"
    assert 'xdpx.run x-train train.hjson --resumable --only "$XDPX_RUN"' in Kubernetes().files(job)["job.sh"]


def test_nothing_secret_is_written_but_the_name_of_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", "hidden-value")
    assert "hidden-value" not in "".join(Kubernetes().files(job_of(**FULL)).values())


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"volume": "work:/data"}, "--image: is missing"),
        (PLAIN | {"volume": "home:/home"}, "--volume: mounts nothing at /data/work/submissions"),
        (PLAIN | {"volume": "Work_1:/data"}, "--volume: has 'Work_1:/data'"),
        (PLAIN | {"volume": "work:/dat"}, "--volume: mounts nothing"),
        (PLAIN | {"nodes": 2, "tasks": 4}, "--nodes: is 2, but the job has 4 tasks"),
        (PLAIN | {"runtime": "torch-distributed", "tasks": 4}, "--runtime: submits a TrainJob"),
        (PLAIN | {"account": "us"}, "--account: is not supported by --on k8s"),
    ],
)
def test_what_cannot_run_is_told_before(asked: dict[str, Any], expected: str) -> None:
    assert [str(fault) for fault in Kubernetes().faults(job_of(**asked)) if expected in str(fault)]


@pytest.mark.parametrize("folder", ["Ä-1", "9-x", "a" * 80, "..", "x_Y.z"])
def test_a_name_becomes_one_that_kubernetes_takes(folder: str) -> None:
    from dataclasses import replace

    name = manifests.object_name(replace(job_of(), folder=f"/data/{folder}"))
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= manifests.LONGEST_NAME


def test_the_state_of_a_job_is_told_in_a_line() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "exit code 2"}
    assert told({"status": {"conditions": [failed], "failed": 1}}) == "failed (PodFailurePolicy exit code 2), 1 failed"
    assert told({"status": {"active": 2, "ready": 1}}) == "2 active, 1 ready"
    assert told({}).startswith("waiting")


def test_without_kubectl_it_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (fault,) = Kubernetes().hindrances(job_of(**PLAIN))
    assert isinstance(fault, Fault)
    assert "kubectl" in fault.problem


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize(("runtime", "kind"), [(None, "jobs"), ("torch-distributed", "trainjobs")])
def test_kubectl_creates_tells_reads_and_deletes(
    runtime: str | None, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, place = job_of(**PLAIN, runtime=runtime), Kubernetes()
    for name, text in place.files(job).items():
        (tmp_path / name).write_text(text)
    with serving(tmp_path) as (config, kept):
        monkeypatch.setenv("KUBECONFIG", str(config))
        monkeypatch.setenv("HOME", str(tmp_path))  # where kubectl keeps what it has learnt of a server
        sent = place.submit(job, str(tmp_path))
        (found,) = [each for path, each in kept.items() if f"/team/{kind}/" in path]
        assert not unknown_parts({key: value for key, value in found.items() if key != "status"})
        record = Record(job.name, "k8s", sent.id, sent.log, str(tmp_path), "", "")
        assert place.status(record) == "2 active"
        assert place.logs(record).rstrip().endswith("step 1")
        assert "600 seconds to save" in place.cancel(record)
        assert kept == {}
        with pytest.raises(Refused, match="kubernetes does not answer.*NotFound"):
            place.status(record)
