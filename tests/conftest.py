"""Fixtures for every room: a real S3 server, and an S3 server behind a bad line."""

from __future__ import annotations

import gc
import http.client
import importlib
import logging
import os
import random
import sys
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

from tests import cpu_seconds, processes, spmd_devices, warm_starts
from xdpx.logger import log

# Several tests run at once, in processes of their own: threads that wait in turn for a core made them ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A process that has started Ray once looks for no other token: a server under another HOME would find none and end.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

# Other processes may have the cores: what an example finds counts, not its 200 ms.
settings.register_profile("xdpx", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("xdpx")

spmd_devices.imitate_devices()
spmd_devices.compile_quickly()

# Tracing a model makes millions of small objects: looking for cycles after each 700 took a tenth of JAX's seconds.
gc.set_threshold(100_000, 20, 50)

if sys.platform == "linux":
    warm_starts.install(warm_starts.Warm())

DRAWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("xdpx.runs.training", "draw_figures"): lambda settings: None,
    ("xdpx.reports.pictures", "confusion_picture"): lambda *what: b"",
    ("xdpx.reports.pictures", "reliability_picture"): lambda *what: b"",
}
"""What draws, and what does instead where a test does not ask for `figures`."""

SECONDS_OF_A_SLOW_TEST, SECONDS_OF_ANOTHER = 15.0, 0.1


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take `--cpu-seconds N`."""
    parser.addoption("--cpu-seconds", type=int, default=0, help="show what rooms, and the N dearest files, cost")


def pytest_configure(config: pytest.Config) -> None:
    """Count CPU seconds, here or for the process that started this one."""
    config.pluginmanager.register(cpu_seconds.CpuSeconds(files_shown=config.getoption("--cpu-seconds")))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: one begun last would keep one process at work while others have none."""
    seconds: dict[Path, float] = defaultdict(float)
    for item in items:
        seconds[item.path] += SECONDS_OF_A_SLOW_TEST if item.get_closest_marker("slow") else SECONDS_OF_ANOTHER
    items.sort(key=lambda item: -seconds[item.path])


def pytest_collection_finish() -> None:
    """Let the collector of cycles pass over modules and tests: they are never garbage, and take seconds to look at."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin before any fixture: jobs that several tests look at are compiled like the others of their room."""
    if spmd_devices.is_optimized_little(item.path):
        spmd_devices.optimize_little(True)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End after all fixtures; other rooms must not be given what was compiled with little optimization."""
    if spmd_devices.is_optimized_little(item.path):
        spmd_devices.optimize_little(False)
        if "jax" in sys.modules and (nextitem is None or not spmd_devices.is_optimized_little(nextitem.path)):
            sys.modules["jax"].clear_caches()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the read cache of each test by itself, and give up soon."""
    monkeypatch.setenv("XDPX_CACHE_PATH", str(tmp_path_factory.getbasetemp() / f"cache-{uuid.uuid4().hex[:8]}"))
    monkeypatch.setenv("XDPX_RETRY_SECONDS", "20")


@pytest.fixture(autouse=True)
def _own_log_level() -> Iterator[None]:
    """Let no test that turns the log down, as every Trainer may, turn it down for the others."""
    console, level = log._console, logging.getLogger("xdpx").level
    on_every_rank = console.on_every_rank
    yield
    logging.getLogger("xdpx").setLevel(level)
    console.on_every_rank = on_every_rank


@pytest.fixture(autouse=True)
def _own_path() -> Iterator[None]:
    """Let no folder that a test imports from, as every `user/modules` is, stand before those of later tests."""
    path = list(sys.path)
    yield
    sys.path[:] = path


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Let what this process writes reach the disk when it may: no test cuts the power. Started programs wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_figures() -> Iterator[dict[tuple[str, str], Callable[..., Any]]]:
    """Let x-train and x-eval, in this process, draw nothing: it takes longer than a tiny training. See `figures`."""
    plain = {place: getattr(importlib.import_module(place[0]), place[1]) for place in DRAWN}
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), nothing in DRAWN.items():
            patch.setattr(f"{module}.{name}", nothing)
        yield plain


@pytest.fixture
def figures(_no_figures: dict[tuple[str, str], Callable[..., Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let x-train and x-eval draw, as they do for their users."""
    for (module, name), draw in _no_figures.items():
        monkeypatch.setattr(f"{module}.{name}", draw)


MOST_GROWTH = 2 * 2**30
"""Bytes by which a process may grow before the programs that JAX compiled are dropped: all together take over ten GiB.
What is dropped leaves most of the process as large as it was, so that growth counts, and not size."""


@pytest.fixture(scope="session")
def _resident() -> Counter[str]:
    """Bytes of this process after compiled programs were last dropped."""
    return Counter()


@pytest.fixture(autouse=True, scope="module")
def _compiled_let_go(_resident: Counter[str]) -> Iterator[None]:
    """Drop, after a file, the programs that JAX compiled, once the process has grown by much."""
    yield
    if "jax" in sys.modules:
        from xdpx.engines.pytorch.memory import resident_bytes

        if resident_bytes() > _resident["after"] + MOST_GROWTH:
            sys.modules["jax"].clear_caches()
            gc.collect()
            _resident["after"] = resident_bytes()


@pytest.fixture(scope="session")
def jax_pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Run `script PORT INDEX FOLDER words...` as two JAX processes; return the folder, which `prepare` fills."""

    def run(script: Path, *words: str, prepare: Callable[[Path], object] = lambda _: None) -> Path:
        folder = tmp_path_factory.mktemp("pair")
        prepare(folder)
        port = str(processes.free_port())
        lines = [[sys.executable, str(script), port, index, str(folder), *words] for index in "01"]
        ended = processes.run_together(lines, [processes.environment()] * 2)
        assert [each.code for each in ended] == [0, 0], processes.told(ended)
        return folder

    return run


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server (moto) that runs as long as the tests do."""
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def forgotten_s3() -> Iterator[None]:
    """Let no client of another test answer in this one, nor one of this in another: it keeps what it was made with."""
    files = pytest.importorskip("s3fs").S3FileSystem
    files.clear_instance_cache()
    yield
    files.clear_instance_cache()


def _use_s3(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def _new_bucket(endpoint: str) -> str:
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    address = urlsplit(endpoint)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    connection.request("PUT", f"/{bucket}", headers={"Authorization": "AWS testing:testing"})
    assert connection.getresponse().status == 200
    connection.close()
    return bucket


@pytest.fixture
def s3_root(s3_server: str, forgotten_s3: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """`s3://` and a fresh bucket on the S3 server; the environment leads there."""
    _use_s3(monkeypatch, s3_server)
    return f"s3://{_new_bucket(s3_server)}"


@pytest.fixture(params=["local", "memory", "s3"])
def any_root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder: on the disk, in memory, and on the S3 server."""
    if request.param == "local":
        return str(tmp_path / "root")
    if request.param == "memory":
        return f"memory://root-{uuid.uuid4().hex[:12]}"
    return f"{request.getfixturevalue('s3_root')}/root"


@dataclass
class BadLine:
    """A proxy that loses, cuts, delays and refuses a share of what passes; in an order that its seed decides."""

    target: str
    rate: float = 0.2
    seed: int = 0
    address: str = ""
    seen: list[str] = field(default_factory=list)

    def start(self) -> ThreadingHTTPServer:
        line, dice, lock = self, random.Random(self.seed), threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def pass_on(self) -> None:
                with lock:
                    fault = dice.choice(FAULTS) if dice.random() < line.rate else ""
                line.seen.append(fault)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if fault in {"500", "503"}:
                    self.send(int(fault), [], b"<Error><Code>SlowDown</Code><Message>slow</Message></Error>")
                    return
                if fault == "reset before":
                    self.close_connection = True
                    return
                status, headers, answer = line.ask(self.command, self.path, dict(self.headers), body)
                if fault == "answer lost":
                    self.close_connection = True
                    return
                self.send(status, headers, answer, cut=fault == "answer cut" and self.command == "GET")

            def send(self, status: int, headers: list[tuple[str, str]], answer: bytes, cut: bool = False) -> None:
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in {"content-length", "transfer-encoding", "connection", "server", "date"}:
                        self.send_header(name, value)
                told = dict(headers).get("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", told or str(len(answer)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer[: len(answer) // 2] if cut else answer)
                self.close_connection = self.close_connection or cut

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        address = urlsplit(self.target)
        connection = http.client.HTTPConnection(address.hostname or "", address.port)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return response.status, response.getheaders(), answer


FAULTS = ("500", "503", "reset before", "answer lost", "answer cut")


@pytest.fixture
def bad_line(s3_server: str, forgotten_s3: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, BadLine]]:
    """`s3://` and a fresh bucket that is reached over a bad line, and the line."""
    line = BadLine(s3_server)
    server = line.start()
    _use_s3(monkeypatch, line.address)
    yield f"s3://{_new_bucket(s3_server)}", line
    server.shutdown()
    server.server_close()
