"""A real Ray of this machine with its job server: a job that ends well, and one that is asked to stop and may save."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import processes
from xdpx import run as door
from xdpx.launch import folders

ABSENT = "ray" if shutil.which("ray") is None else next(
    (name for name in ("aiohttp_cors", "opencensus") if find_spec(name) is None), ""
)  # fmt: skip
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(ABSENT), reason=f"Ray's job server needs {ABSENT}")]
WAITS = """
import pathlib, signal, sys, time

def save(number, frame):
    print("saved once", flush=True)
    sys.exit(85)

signal.signal(signal.SIGTERM, save)
pathlib.Path("waits").touch()
time.sleep(100)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Start a Ray, and yield the address of its job server. Its processes end with the one that was started."""
    port, client, agent, board = (processes.free_port() for _ in range(4))
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # paths of sockets may have 107 bytes
        line = [
            "ray", "start", "--head", "--block", "--num-cpus=2", f"--port={port}", "--dashboard-host=127.0.0.1",
            f"--dashboard-port={board}", f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}",
            "--min-worker-port=32100", "--max-worker-port=32200", "--disable-usage-stats",
            "--object-store-memory=80000000", f"--temp-dir={short}",
        ]  # fmt: skip
        around = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_JOB_STOP_WAIT_TIME_S": "30"}
        with (tmp_path_factory.mktemp("ray") / "words.txt").open("wb") as words:
            process = subprocess.Popen(line, env=around, stdout=words, stderr=words, start_new_session=True)
        try:
            _wait_for_answer(board)
            yield f"http://127.0.0.1:{board}"
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for_answer(port: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/api/jobs/")
            found = connection.getresponse().status
            connection.close()
            if found == 200:
                return
        time.sleep(0.5)
    raise RuntimeError("Ray's job server did not come up")


def told(capsys: pytest.CaptureFixture[str], action: str, wanted: str) -> str:
    """Ask until the answer has a word."""
    end, text = time.monotonic() + 90, ""
    while wanted not in text:
        assert time.monotonic() < end, f"{action} never said '{wanted}': {text}"
        assert door.main(["x-submit", action]) == 0
        text = capsys.readouterr().out
    return text


def test_a_job_of_ray_runs_tells_and_may_save_when_it_is_stopped(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = tmp_path / "我的 数据's"
    (desk / "user" / "scripts").mkdir(parents=True)
    (desk / "user" / "scripts" / "waits.py").write_text(WAITS)
    monkeypatch.chdir(desk)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert door.main(["x-submit", "x-io", "listdir", "user", "--on", "ray", "--address", address, "--yes"]) == 0
    told(capsys, "status", "succeeded")
    assert "scripts" in told(capsys, "logs", "scripts")
    time.sleep(1.1)  # the newest one is told by its time, in seconds
    assert door.main(["x-submit", "x-script", "waits", "--on", "ray", "--address", address, "--yes"]) == 0
    assert folders.find("").log.startswith(address)
    end = time.monotonic() + 60
    while not Path("waits").exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    assert door.main(["x-submit", "cancel"]) == 0
    told(capsys, "status", "stopped")
    assert told(capsys, "logs", "saved once").count("saved once") == 1
