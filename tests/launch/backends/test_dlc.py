"""Requests of PAI-DLC: held against the SDK, and sent by it to a server of ours that answers as DLC does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.launch.jobs import job_of
from xdpx.launch.backends.dlc import Dlc, checked_request, lost, request_body
from xdpx.launch.submission import Record, Refused

SEEN: list[tuple[str, Any]] = []
ANSWERS = {
    "POST /api/v1/jobs": {"JobId": "dlc-1", "RequestId": "r"},
    "GET /api/v1/jobs/dlc-1": {"Status": "Running", "ReasonMessage": "Pods are up.", "Pods": [{"PodId": "p-0"}]},
    "GET /api/v1/jobs/dlc-1/pods/p-0/logs": {"Logs": ["step 1", "step 2"]},
    "POST /api/v1/jobs/dlc-1/stop": {"JobId": "dlc-1"},
}
FULL = {
    "nodes": 2, "gpus": 8, "cpus": 96, "memory": 512, "hours": 2, "image": "host/xdpx:1", "volume": "d-1ab:/data",
    "workspace": "77", "gpu_type": "GU7E", "partition": "quota1",
}  # fmt: skip
RECORD = Record("cls", "dlc", "dlc-1", "", "", "", "")


class Answering(BaseHTTPRequestHandler):
    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        said = self.rfile.read(length)
        line = f"{self.command} {self.path.partition('?')[0]}"
        SEEN.append((line, json.loads(said) if said else None))
        known = line in ANSWERS and "refused" not in said.decode()
        body = json.dumps(ANSWERS[line] if known else {"Code": "QuotaExceeded", "Message": "No GPUs left"}).encode()
        self.send_response(200 if known else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    SEEN.clear()
    with HTTPServer(("127.0.0.1", 0), Answering) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("PAI_DLC_ENDPOINT", f"http://127.0.0.1:{found.server_port}")
        monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "key-of-a-user")
        monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "hidden-value")
        yield
        found.shutdown()
        thread.join()


@pytest.mark.parametrize("asked", [FULL, {"image": "i", "volume": "d-1:/data", "gpu_type": "ecs.gn7-c12g1.3xlarge"}])
def test_the_sdk_knows_every_field_of_a_request(asked: dict[str, Any]) -> None:
    body = request_body(job_of(**asked))
    checked_request(body)
    body["JobSpecs"][0]["PodCounts"] = 2
    with pytest.raises(Refused, match=r"JobSpecs\[0\]\.PodCounts"):
        checked_request(body)


def test_what_is_asked_for_stands_in_the_request() -> None:
    body = request_body(job_of(**FULL))
    needs = {"CPU": "96", "Memory": "512Gi", "GPU": "8", "GPUType": "GU7E", "SharedMemory": "256Gi"}
    worker = {"Type": "Worker", "Image": "host/xdpx:1", "PodCount": 2, "ResourceConfig": needs}
    assert (body["JobType"], body["JobSpecs"]) == ("PyTorchJob", [worker])
    assert (body["WorkspaceId"], body["ResourceId"], body["JobMaxRunningTimeMinutes"]) == ("77", "quota1", 120)
    assert body["DataSources"] == [{"DataSourceId": "d-1ab", "MountPath": "/data"}]


@pytest.mark.usefixtures("server")
def test_a_job_is_sent_watched_read_and_stopped(tmp_path: Path) -> None:
    job, place = job_of(**FULL), Dlc()
    assert [*place.faults(job), *place.hindrances(job)] == []
    for name, text in place.files(job).items():
        assert "hidden-value" not in text
        (tmp_path / name).write_text(text)
    assert place.submit(job, str(tmp_path)).id == "dlc-1"
    ((line, body),) = SEEN
    assert line == "POST /api/v1/jobs"
    assert lost(request_body(job), body) == []
    assert place.status(RECORD) == "Running (Pods are up.)"
    assert place.logs(RECORD) == "==> p-0\nstep 1\nstep 2"
    assert "asked to stop" in place.cancel(RECORD)
    assert SEEN[-1][0] == "POST /api/v1/jobs/dlc-1/stop"


@pytest.mark.usefixtures("server")
def test_what_dlc_refuses_is_told_in_its_own_words(tmp_path: Path) -> None:
    job = replace(job_of(**FULL), name="refused")
    for name, text in Dlc().files(job).items():
        (tmp_path / name).write_text(text)
    with pytest.raises(Refused, match="No GPUs left"):
        Dlc().submit(job, str(tmp_path))


def test_without_credentials_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_REGION_ID"):
        monkeypatch.delenv(name, raising=False)
    keys = [fault.key for fault in Dlc().hindrances(job_of(**FULL))]
    expected = ["ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_REGION_ID"]
    assert keys == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (FULL | {"workspace": None}, "--workspace: is not given"),
        (FULL | {"volume": "work:/data"}, "--volume: has 'work:/data'. Write d-ID:/folder"),
        (FULL | {"image": None}, "--image: is missing"),
        (FULL | {"tables": "odps://p/tables/t"}, "--tables: is not supported by --on dlc"),
    ],
)
def test_what_dlc_cannot_do_is_told_before(
    asked: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAI_WORKSPACE_ID", raising=False)
    assert [str(fault) for fault in Dlc().faults(job_of(**asked)) if str(fault).startswith(expected)]
