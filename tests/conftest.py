"""Fixtures for all tests: a real S3 server, and an S3 server behind an unreliable connection."""

from __future__ import annotations

import gc
import http.client
import logging
import os
import pkgutil
import random
import sys
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings

from tests import cpu_seconds, processes, spmd_devices, tiers, warm_starts
from xdpx.logger import log
from xdpx.metrics import bootstrap
from xdpx.metrics.intervals import DRAWS

# Tests run in several processes at once: with more threads than cores, they were ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A process that has started Ray once does not look for another token; under another HOME it would find none and exit.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

# Other processes may use the cores; only the examples that are found matter, not hypothesis' deadline of 200 ms.
settings.register_profile("xdpx", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("xdpx")

# TensorBoard would import TensorFlow, if installed, to read files: seven seconds. It looks for this module first.
sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))

spmd_devices.imitate_devices()
spmd_devices.compile_quickly()

# Tracing a model creates millions of small objects: collecting after every 700 took a tenth of JAX's time.
gc.set_threshold(100_000, 20, 50)

if sys.platform == "linux":
    warm_starts.install(warm_starts.Warm.of_this_process())

DRAWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("xdpx.training.callbacks.plotting.Plotting", "_try_to_draw"): lambda self: None,
    ("xdpx.reports.pictures", "confusion_picture"): lambda *what: b"",
    ("xdpx.reports.pictures", "reliability_picture"): lambda *what: b"",
}
"""Functions that draw -> their replacements in tests that do not request `figures`."""

SECONDS_OF_A_SLOW_TEST, SECONDS_OF_ANOTHER = 15.0, 0.1


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--cpu-seconds N`."""
    parser.addoption("--cpu-seconds", type=int, default=0, help="show what rooms, and the N dearest files, cost")


def pytest_configure(config: pytest.Config) -> None:
    """Count CPU seconds, in this process or for the one that started it; write byte code before others need it."""
    config.pluginmanager.register(cpu_seconds.CpuSeconds(files_shown=config.getoption("--cpu-seconds")))
    if config.getoption("numprocesses", None) and not config.getoption("file_or_dir"):
        write_byte_code(config)


def write_byte_code(config: pytest.Config) -> None:
    """Write the byte code of all tests, with pytest's rewritten assertions, for the processes that share them out.

    In a fresh clone each of those would rewrite all files itself, since they collect at the same pace: 13 CPU seconds.
    """
    state = config.stash[rewrite.assertstate_key]
    for file in Path(__file__).parent.rglob("test_*.py"):
        cached = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        with suppress(SyntaxError):  # pytest tells of it
            if rewrite._read_pyc(file, cached) is None:
                cached.parent.mkdir(parents=True, exist_ok=True)
                digest, code = rewrite._rewrite_test(file, config)
                rewrite._write_pyc(state, code, digest, cached)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of the long form unless it runs, and run the slowest files first.

    If a slow file started last, a single process would work while the others are idle. Among the slow files, and among
    the others, those that compile with few optimizations run one after another: what JAX has traced is dropped between
    the two kinds.
    """
    if not tiers.LONG and (left := [item for item in items if item.get_closest_marker("nightly")]):
        items[:] = [item for item in items if item not in set(left)]
        config.hook.pytest_deselected(items=left)
    seconds: dict[Path, float] = defaultdict(float)
    for item in items:
        seconds[item.path] += SECONDS_OF_A_SLOW_TEST if item.get_closest_marker("slow") else SECONDS_OF_ANOTHER

    def order(item: pytest.Item) -> tuple[bool, bool, float]:
        is_fast = seconds[item.path] < SECONDS_OF_A_SLOW_TEST
        # Those with few optimizations end the slow files and begin the fast ones.
        return is_fast, (item.path in optimized_little) != is_fast, -seconds[item.path]

    optimized_little = {path for path in seconds if spmd_devices.is_optimized_little(path)}
    items.sort(key=order)


def pytest_collection_finish() -> None:
    """Exclude modules and tests from garbage collection: they are never garbage, and traversing them takes seconds."""
    if "jax" in sys.modules:
        spmd_devices.reuse_programs()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Runs before all fixtures, because jobs shared by several tests must be compiled like the others of their room."""
    if spmd_devices.is_optimized_little(item.path):
        spmd_devices.optimize_little(True)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Runs after all fixtures: other rooms must not reuse what was compiled with few optimizations."""
    if spmd_devices.is_optimized_little(item.path):
        spmd_devices.optimize_little(False)
        if "jax" in sys.modules and (nextitem is None or not spmd_devices.is_optimized_little(nextitem.path)):
            sys.modules["jax"].clear_caches()


@pytest.fixture
def reading_threads() -> Callable[[], list[threading.Thread]]:
    """Return a function that lists the threads reading ahead that this test started, not those an earlier one left."""
    before = set(threading.enumerate())
    return lambda: [each for each in threading.enumerate() if each.name == "xdpx-batches" and each not in before]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own read cache, and shorten retries."""
    monkeypatch.setenv("XDPX_CACHE_PATH", str(tmp_path_factory.getbasetemp() / f"cache-{uuid.uuid4().hex[:8]}"))
    monkeypatch.setenv("XDPX_RETRY_SECONDS", "20")


@pytest.fixture(autouse=True)
def _own_log_level() -> Iterator[None]:
    """Restore log levels after each test, since every Trainer may change them."""
    console, level = log._console, logging.getLogger("xdpx").level
    on_every_rank = console.on_every_rank
    yield
    if logging.getLogger("xdpx").level != level:  # setting it visits every logger there is
        logging.getLogger("xdpx").setLevel(level)
    console.on_every_rank = on_every_rank


@pytest.fixture(autouse=True)
def _own_path() -> Iterator[None]:
    """Restore the import path after each test, e.g. without `user/modules`."""
    path = list(sys.path)
    yield
    sys.path[:] = path


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Turn fsync off in this process, since no test simulates a power cut. Programs that tests start still use it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_collecting_by_accelerate() -> Iterator[None]:
    """Let the original Trainer not collect garbage twice per training, which traverses all that other tests left."""
    memory = sys.modules.get("accelerate.utils.memory")
    with pytest.MonkeyPatch.context() as patch:
        if memory is not None:
            patch.setattr(memory, "gc", SimpleNamespace(collect=lambda: 0))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_figures() -> Iterator[dict[tuple[str, str], Callable[..., Any]]]:
    """Turn off the figures of trainings and scores in this process: they take longer than a tiny training."""
    plain = {(owner, name): getattr(pkgutil.resolve_name(owner), name) for owner, name in DRAWN}
    with pytest.MonkeyPatch.context() as patch:
        for (owner, name), nothing in DRAWN.items():
            patch.setattr(f"{owner}.{name}", nothing)
        yield plain


@pytest.fixture(scope="session")
def drawing(_no_figures: dict[tuple[str, str], Callable[..., Any]]) -> Callable[[], AbstractContextManager[None]]:
    """Return what turns on the figures of trainings and scores inside a `with` block."""

    @contextmanager
    def on() -> Generator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for (owner, name), draw in _no_figures.items():
                patch.setattr(f"{owner}.{name}", draw)
            yield

    return on


@pytest.fixture
def figures(drawing: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Turn on the figures of trainings and scores in a test."""
    with drawing():
        yield


@pytest.fixture(autouse=True, scope="session")
def _few_draws() -> Iterator[None]:
    """Let the ends of intervals in this process come from few resamples by day: most tests only look at scores."""
    with pytest.MonkeyPatch.context() as patch:
        if not tiers.LONG:
            patch.setitem(bootstrap.__kwdefaults__, "draws", 20)
        yield


@pytest.fixture
def all_draws(_few_draws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ends of intervals come from as many resamples as those of users do."""
    monkeypatch.setitem(bootstrap.__kwdefaults__, "draws", DRAWS)


MOST_GROWTH = 2 * 2**30
"""Growth of a process, in bytes, after which compiled JAX programs are dropped: all together take more than 10 GiB.
Growth counts, not size, because dropping them hardly shrinks the process."""


@pytest.fixture(scope="session")
def _resident() -> Counter[str]:
    """Memory of this process, in bytes, when compiled programs were last dropped."""
    return Counter()


@pytest.fixture(autouse=True, scope="module")
def _compiled_let_go(_resident: Counter[str]) -> Iterator[None]:
    """After each file, drop what JAX has compiled if the process has grown by more than `MOST_GROWTH`."""
    yield
    if "jax" in sys.modules:
        from xdpx.engines.pytorch.memory import resident_bytes

        if resident_bytes() > _resident["after"] + MOST_GROWTH:
            spmd_devices.forget_programs()
            gc.collect()
            _resident["after"] = resident_bytes()


@pytest.fixture(scope="session")
def jax_pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Run a script with the words PORT INDEX FOLDER ... as two JAX processes; return the folder, which `prepare` fills.

    They import it, since a file that names JAX is not forked off a process that has imported it.
    """

    def run(script: Path, *words: str, prepare: Callable[[Path], object] = lambda _: None) -> Path:
        folder = tmp_path_factory.mktemp("pair")
        prepare(folder)
        port = str(processes.free_port())
        code = f"import {'.'.join(script.relative_to(processes.ROOT).with_suffix('').parts)}"
        lines = [[sys.executable, "-c", code, port, index, str(folder), *words] for index in "01"]
        ended = processes.run_together(lines, [processes.environment()] * 2)
        assert [each.code for each in ended] == [0, 0], processes.told(ended)
        return folder

    return run


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server (moto) that runs for the whole session."""
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one certificate authority: every S3 client reads all of them, 0.04 s, and the server needs none."""
    every = Path(pytest.importorskip("certifi").where()).read_text(encoding="utf-8")
    first, end, _ = every.partition("-----END CERTIFICATE-----\n")
    file = tmp_path_factory.mktemp("authority") / "one.pem"
    file.write_text(first + end, encoding="utf-8")
    return file


@pytest.fixture
def forgotten_s3(_one_authority: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Drop S3 clients, which keep the settings they were created with, before and after a test."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(_one_authority))
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
    """`s3://` and a new bucket on the S3 server; the environment is set up for it."""
    _use_s3(monkeypatch, s3_server)
    return f"s3://{_new_bucket(s3_server)}"


@pytest.fixture(params=["local", "memory", "s3"])
def any_root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder: on disk, in memory, and on the S3 server."""
    if request.param == "local":
        return str(tmp_path / "root")
    if request.param == "memory":
        return f"memory://root-{uuid.uuid4().hex[:12]}"
    return f"{request.getfixturevalue('s3_root')}/root"


@dataclass
class BadLine:
    """A proxy that loses, truncates, delays and refuses a share of the traffic, in an order set by its seed."""

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
                """Do not log."""

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
    """`s3://` and a new bucket behind an unreliable connection, and the connection."""
    line = BadLine(s3_server)
    server = line.start()
    _use_s3(monkeypatch, line.address)
    yield f"s3://{_new_bucket(s3_server)}", line
    server.shutdown()
    server.server_close()
