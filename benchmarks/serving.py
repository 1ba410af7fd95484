"""x-serve compared with others: throughput, latency, requests lost on SIGTERM, and robustness to hostile requests.

A small BERT fine-tuned on sst2 answers short and long rows of sst2 and chnsenticorp. Only one server is used at a time,
in alternating rounds. LitServe and infinity-emb are included if `XDPX_BENCH_LITSERVE` or `XDPX_BENCH_INFINITY` is a
Python that has them.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.load import Body, closed_loop, paced
from benchmarks.report import Row, spread
from benchmarks.work import DATA, REPOSITORY, WORK, command, minilm

CLIENTS, SECONDS, ROUNDS = 32, float(os.environ.get("XDPX_BENCH_SERVING_SECONDS", "10")), 3
FOLDER = WORK / "serving"
ENDURED = int(os.environ.get("XDPX_BENCH_HOSTILE", "10000"))
FORMATS = {"onnx": "ONNX", **({"openvino": "OpenVINO"} if find_spec("openvino") else {})}
"""Formats that are served in full precision and in 8 bits -> their names in the table."""
ROUNDED = {name: f"x-serve with 8 bits ({called})" for name, called in FORMATS.items()}
FULL = {name: f"x-serve with 32 bits ({called})" for name, called in FORMATS.items()}
OURS = {"x-serve", *ROUNDED.values(), *FULL.values()}
Speeds = list[tuple[float, float]]
"""(rows per second, rows per CPU second) of each round."""
ONE_TEXT: Body = lambda text: {"text": text}  # noqa: E731


@dataclass(frozen=True)
class Served:
    """A server to measure: its command (PORT stands for a free port), and its request format."""

    name: str
    words: Sequence[str]
    path: str = "/predict"
    body: Body = ONE_TEXT


def texts() -> list[str]:
    """Return the rows to send: as many of sst2 as of chnsenticorp."""
    short, long = (
        [line.rpartition("\t")[0] for line in (DATA / name / "dev.tsv").read_text(encoding="utf-8").splitlines()]
        for name in ("sst2", "chnsenticorp")
    )
    count = min(len(short), len(long))
    return [*random.Random(1).sample(short, count), *random.Random(1).sample(long, count)]


def trained() -> Path:
    """Return the folder of the served run; it is trained once and kept."""
    run, data, encoder = FOLDER / "run", FOLDER / "data", minilm()
    if not (run / "args.py").exists():
        given = [f"data_source={DATA}/sst2", f"data_dir={data}", f"vocab_file={encoder}/vocab.txt", "max_len=256"]
        given += ["x-train", "examples/sst2/bert", f"data_dir={data}", f"pretrained_model={encoder}"]
        command("x-prepro", "examples/sst2/prepro_bert", *given, f"save_dir={run}", "max_epoch=1")
    return run


def exported(run: Path, name: str, *how: str) -> Path:
    """Return the folder of the run exported to a format; it is written once and kept.

    Args:
        run: the trained run.
        name: of the format.
        how: further keys of the export, such as "quantise=int8".
    """
    folder = FOLDER / "-".join([name, *how]).replace("quantise=", "")
    if not folder.exists():
        command("x-script", f"export_{name}", f"save_dir={run}", f"out_dir={folder}", *how)
    return folder


def servers(run: Path) -> Iterator[Served]:
    """Yield the servers to measure, ours first."""
    ours = [sys.executable, "-m", "xdpx.run", "x-serve"]
    yield Served("x-serve", [*ours, str(run), "--port", "PORT"])
    for name in FORMATS:
        yield Served(FULL[name], [*ours, str(exported(run, name)), "--port", "PORT"])
        yield Served(ROUNDED[name], [*ours, str(exported(run, name, "quantise=int8")), "--port", "PORT"])
    peers = REPOSITORY / "benchmarks" / "peers"
    theirs = str(run / "transformers")
    yield Served("pipeline", [sys.executable, str(peers / "serve_pipeline.py"), theirs, "PORT"])
    if python := os.environ.get("XDPX_BENCH_LITSERVE"):
        yield Served("LitServe", [python, str(peers / "serve_litserve.py"), theirs, "PORT"])
    if python := os.environ.get("XDPX_BENCH_INFINITY"):
        words = [str(Path(python).with_name("infinity_emb")), "v2", "--model-id", theirs, "--engine", "optimum"]
        body: Body = lambda text: {"model": "it", "input": [text]}  # noqa: E731
        words += ["--device", "cpu", "--served-model-name", "it", "--port", "PORT", "--batch-size", "32"]
        yield Served("infinity-emb", words, "/classify", body)


@contextmanager
def started(server: Served) -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server, and yield its address and process as soon as it answers."""
    with socket.create_server(("127.0.0.1", 0)) as ear:
        port = str(ear.getsockname()[1])
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = str(REPOSITORY) if server.words[0] == sys.executable else ""
    words = [word.replace("PORT", port) for word in server.words]
    log = (FOLDER / f"{server.name}.log").open("wb")
    # A new session, so that processes started by the server, such as LitServe's workers, can be ended with it.
    with (
        log,
        subprocess.Popen(
            words, stdout=log, stderr=log, env=environment, cwd=REPOSITORY, start_new_session=True
        ) as process,
    ):
        address = f"http://127.0.0.1:{port}"
        try:
            _wait(address, server, process)
            yield address, process
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _wait(address: str, server: Served, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError):
            found = closed_loop(address, server.path, ["a film"], server.body, clients=1, seconds=0.01)
            if found.statuses.get(200):
                return
        time.sleep(0.3)
    raise SystemExit(f"{server.name} does not answer; see {FOLDER / f'{server.name}.log'}")


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process and its descendants (Linux)."""
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            ticks[int(path.parent.name)] = int(fields[11]) + int(fields[12])
    family = {process}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(each, 0) for each in family) / os.sysconf("SC_CLK_TCK")


def resident_mib(process: int) -> float:
    """Return the resident memory of a process in MiB."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


# ---- speed


def speeds(all_servers: Sequence[Served], rows: Sequence[str]) -> dict[str, Speeds]:
    """Return (rows per second, rows per CPU second) of each server and round."""
    found: dict[str, Speeds] = {each.name: [] for each in all_servers}
    for number in range(ROUNDS):
        for server in all_servers:
            with started(server) as (address, process):
                ask = (address, server.path, rows, server.body)
                closed_loop(*ask, clients=CLIENTS, seconds=SECONDS / 4)
                before = cpu_seconds(process.pid)
                load = closed_loop(*ask, clients=CLIENTS, seconds=SECONDS, seed=number)
                spent = cpu_seconds(process.pid) - before
                found[server.name].append((load.rows_per_second, load.statuses.get(200, 0) / max(spent, 1e-9)))
    return found


def speed_rows(found: dict[str, Speeds]) -> Iterator[Row]:
    """Yield the comparisons of ours with the others."""
    ours = found["x-serve"]
    told = f"{spread([each[0] for each in ours], 0)} rows/s"
    yield Row(f"x-serve, rows of sst2 and chnsenticorp, {CLIENTS} clients", told, "–", kept=True)
    for name in FORMATS:
        of_rounded, of_full = found[ROUNDED[name]], found[FULL[name]]
        yield ratio_row(ROUNDED[name], of_rounded, FULL[name], of_full, 2.0)
        yield ratio_row(ROUNDED[name], of_rounded, "x-serve", ours, None)
        yield ratio_row(FULL[name], of_full, "x-serve", ours, None)
    for name, theirs in found.items():
        if name not in OURS:
            yield ratio_row("x-serve", ours, name, theirs, 5.0 if name == "pipeline" else 1.5)
            for called in ROUNDED.values():
                yield ratio_row(called, found[called], name, theirs, None)


def ratio_row(name: str, ours: Speeds, other: str, theirs: Speeds, least: float | None) -> Row:
    """Return the comparison of two servers, round by round."""
    ratios, work = ([one[kind] / two[kind] for one, two in zip(ours, theirs, strict=True)] for kind in (0, 1))
    what = f"rows/s of {name} / {other}" + (" behind FastAPI" if other == "pipeline" else "")
    promised, kept = ("", True) if least is None else (f">= {least:g}", statistics.median(ratios) >= least)
    return Row(what, f"{spread(ratios)}; {spread(work)} by CPU seconds", promised, kept)


# ---- latency and robustness of one server


def latency_row(address: str, rows: Sequence[str]) -> Row:
    """Return the latency at 70 % of the server's maximum throughput."""
    ask = (address, "/predict", rows, ONE_TEXT)
    most = closed_loop(*ask, clients=CLIENTS, seconds=SECONDS).rows_per_second
    load = paced(*ask, rate=0.7 * most, seconds=2 * SECONDS)
    middle, high = load.quantile(0.5), load.quantile(0.99)
    told = f"p50 {middle * 1000:.0f} ms, p99 {high * 1000:.0f} ms ({high / middle:.1f}×)"
    return Row(f"time to an answer at 70 % load ({0.7 * most:.0f} rows/s, random moments)", told, "p99 < 5× p50",
               high < 5 * middle and not load.lost)  # fmt: skip


def ending_row(address: str, process: subprocess.Popen[bytes], rows: Sequence[str]) -> Row:
    """Return how many requests are lost when the server is stopped under full load."""
    timer = threading.Timer(SECONDS / 2, process.send_signal, [signal.SIGTERM])
    timer.start()
    load = closed_loop(address, "/predict", rows, ONE_TEXT, clients=CLIENTS, seconds=SECONDS * 6)
    code = process.wait(60)
    told = f"{load.lost} of {len(load.seconds) + load.lost:,} lost, exit code {code}"
    others = load.statuses.keys() - {200}
    return Row("SIGTERM under full load", told, "0 lost", not load.lost and not code and not others)


def hostile_row(address: str, process: subprocess.Popen[bytes]) -> Row:
    """Return the effect of valid and invalid requests generated by schemathesis."""
    from benchmarks.hostile import attack

    attack(address, ENDURED // 10, seed=2)
    before, begun = resident_mib(process.pid), time.perf_counter()
    statuses = attack(address, ENDURED, seed=1)
    grown = resident_mib(process.pid) - before
    with urllib.request.urlopen(f"{address}/health", timeout=20) as answer:
        alive = answer.status == 200
    errors = sum(count for status, count in statuses.items() if status >= 500)
    told = f"{errors} of {sum(statuses.values()):,} are 5xx, {grown:+.0f} MiB, {time.perf_counter() - begun:.0f} s"
    return Row("hostile requests", told, "0, < 32 MiB", alive and not errors and grown < 32)


def measure() -> Iterator[Row]:
    """Yield all rows."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    run, rows = trained(), texts()
    all_servers = [*servers(run)]
    yield from speed_rows(speeds(all_servers, rows))
    with started(all_servers[0]) as (address, process):
        yield latency_row(address, rows)
        yield hostile_row(address, process)
        yield ending_row(address, process, rows)
