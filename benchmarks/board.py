"""Latency of the board in a real browser: its table, a hundred curves, and rows added to a log.

Uses 1,000 generated runs by default; `XDPX_BOARD_RUNS=10000` generates the number that the promise is about (two
gigabytes on disk). With forty runs, the time from start to the first charts is compared with TensorBoard, which by
default draws no more, and with trackio if `XDPX_BENCH_TRACKIO` is a Python that has it.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.browser import Browser, PageError, program
from benchmarks.report import Row, spread
from benchmarks.work import REPOSITORY, peer

RUNS = int(os.environ.get("XDPX_BOARD_RUNS", "1000"))
METRICS, POINTS, CURVES, REPEATS = 20, 1_000, 100, 5
BESIDE = 40
"""Number of runs for the comparison with other boards."""
LONGEST = 120.0
"""Seconds to wait for another board."""
TABLE, DRAWN, ADDED = 3.0, 1.0, 0.1
"""Promised seconds for 10,000 runs."""
COUNTED = "state.whole && state.runs.size === {} && document.querySelectorAll('.row').length > 5"


def write_runs(folder: Path, count: int) -> None:
    """Write runs with settings, a status, and logs of so many metrics and points; most files are copies of a few."""
    logs = [_log(number) for number in range(min(count, 20))]
    for number in range(count):
        run = folder / f"sweep{number // 100}" / f"run{number}"
        run.mkdir(parents=True)
        settings = {"batch_size": 32, "learning_rate": 10 ** -(2 + number % 4), "dropout": number % 7 / 10}
        settings |= {f"setting_{index}": index for index in range(120)}
        lines = "".join(f"    {key!r}: {value!r},\n" for key, value in settings.items())
        (run / "args.py").write_text(f"# x-train\n{{\n{lines}    'major_metric': 'm0',\n}}\n")
        (run / "status.json").write_text(
            f'{{"status": "finished", "step": {POINTS}, "total_steps": {POINTS}, "fingerprint": "x"}}\n'
        )
        (run / "valid.log.tsv").write_text(logs[number % len(logs)])


def _log(seed: int) -> str:
    drawn = random.Random(seed)
    header = ["epoch", "step", *(f"valid_m{index}" for index in range(METRICS)), "best_score"]
    lines = ["\t".join(header)]
    for step in range(1, POINTS + 1):
        values = [1 - math.exp(-step / 300) + drawn.gauss(0, 0.02) for _ in range(METRICS + 1)]
        lines.append("\t".join([str(step // 100 + 1), str(step), *(f"{value:.6g}" for value in values)]))
    return "\n".join(lines) + "\n"


@contextmanager
def served(folder: Path) -> Generator[str]:
    """Start x-board and yield its address."""
    words = [sys.executable, "-m", "xdpx.run", "x-board", str(folder)]
    with subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        try:
            yield address[0]
        finally:
            process.send_signal(signal.SIGTERM)


@asynccontextmanager
async def opened(address: str, count: int) -> AsyncGenerator[Browser]:
    """Open the page and wait until the table is complete."""
    async with Browser() as page:
        await page.open(address)
        await page.until(COUNTED.format(count), 600)
        yield page


async def _times(folder: Path, count: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"cold": [], "table": [], "curves": [], "work": [], "added": []}
    begun = time.perf_counter()
    with served(folder) as address:
        async with opened(address, count):
            found["cold"].append(time.perf_counter() - begun)
        for _ in range(REPEATS):
            async with Browser() as page:
                await page.open(address)
                await page.until(COUNTED.format(count), 600)
                found["table"].append(await page.ask("performance.now() / 1000"))
                found["curves"].append(await page.ask(CHOOSE))
                for _ in range(REPEATS):
                    seconds = await _added(page, folder)
                    found["added"].append(seconds)
    return found


@dataclass(frozen=True)
class Other:
    """Another board: its Python, its command, where it lists its runs, its page, and when that has been drawn."""

    name: str
    python: str
    command: list[str]
    ready: str
    page: str
    drawn: str


def others(folder: Path) -> list[Other]:
    """Return the installed boards; FOLDER and PORT in their commands are placeholders."""
    tensorboard = ["-m", "tensorboard.main", "--logdir", str(folder / "tensorboard"), "--port", "PORT"]
    charts = "document.querySelectorAll('scalar-card line-chart').length > 0"
    rows = f"document.querySelectorAll('tb-data-table-content-row, tbody tr').length >= {BESIDE}"
    found = [Other("tensorboard", sys.executable, tensorboard, "data/runs", "#timeseries", f"{charts} && {rows}")]
    if python := os.environ.get("XDPX_BENCH_TRACKIO"):
        command = ["-m", "trackio.cli", "show", "--project", "bench"]
        boxes = f"document.querySelectorAll('input[type=checkbox]').length >= {BESIDE}"
        drawn = f"document.querySelectorAll('canvas').length > 0 && {boxes}"
        found.append(Other("trackio", python, command, "", "?project=bench", drawn))
    return found


async def _first_charts(other: Other, folder: Path) -> float:
    """Return the seconds from the start of a board to a page with all runs and charts, at most `LONGEST`."""
    with socket.create_server(("127.0.0.1", 0)) as ear:
        port = str(ear.getsockname()[1])
    words = [other.python, *(word.replace("PORT", port) for word in other.command)]
    environment = {**os.environ, "TRACKIO_DIR": str(folder / other.name), "GRADIO_SERVER_PORT": port, "BROWSER": "true"}
    begun = time.perf_counter()
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            await asyncio.to_thread(_wait, f"http://127.0.0.1:{port}/{other.ready}", begun + LONGEST)
            async with Browser() as page:
                await page.open(f"http://127.0.0.1:{port}/{other.page}")
                await _drawn(page, other, begun + LONGEST)
                return time.perf_counter() - begun
        finally:
            process.terminate()


async def _drawn(page: Browser, other: Other, end: float) -> None:
    while time.perf_counter() < end:
        with suppress(TimeoutError, PageError):  # a page may not respond while it draws
            await page.until(other.drawn, 10)
            return
        await page.open(await page.ask("location.href"))


def _wait(address: str, end: float) -> None:
    """Wait until a server lists all runs; a page opened earlier would not show them."""
    while time.perf_counter() < end:
        with suppress(OSError), urllib.request.urlopen(address, timeout=30) as answer:
            text = answer.read().decode("utf-8", "replace")
            if not address.endswith("runs") or all(f'"run{number}"' in text for number in range(BESIDE)):
                return
        time.sleep(0.1)


async def _ours(folder: Path) -> float:
    begun = time.perf_counter()
    with served(folder) as address:
        async with opened(address, BESIDE) as page:
            await page.ask(CHOOSE.replace(str(CURVES), str(BESIDE)))
            return time.perf_counter() - begun


def _beside() -> Generator[Row]:
    """Yield our seconds divided by those of each other board, with the file sizes of both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_runs(folder / "x-board", BESIDE)
        ours = asyncio.run(_ours(folder / "x-board"))
        for other in others(folder):
            sizes = map(str, (BESIDE, METRICS, POINTS))
            peer("board_runs.py", other.name, str(folder / other.name), *sizes, python=other.python)
            theirs = asyncio.run(_first_charts(other, folder))
            what = f"{BESIDE} runs, from the start to the first charts: x-board beside {other.name}"
            yield Row(what, f"{ours:.1f} s against {theirs:.1f} s", "<= the other", ours <= theirs)


CHOOSE = """(async () => {
  const begun = performance.now();
  choose(state.shown.slice(0, CURVES).map((run) => run.id), true);
  const whole = () => state.charts.get('m0')?.curves.length === CURVES;
  while (!whole()) await new Promise((resolve) => requestAnimationFrame(resolve));
  await new Promise((resolve) => requestAnimationFrame(resolve));
  return (performance.now() - begun) / 1000;
})()""".replace("CURVES", str(CURVES))

NEWS = """(async () => {
  const length = () => state.charts.get('m0').curves[0].x.length, before = length();
  while (length() === before) await new Promise((resolve) => setTimeout(resolve, 1));
  await new Promise((resolve) => requestAnimationFrame(resolve));
  return performance.timeOrigin + performance.now();
})()"""


async def _added(page: Browser, folder: Path) -> float:
    """Return the seconds from appending a row to a log until it is drawn, with all other runs open."""
    name = await page.ask("state.runs.get(state.chosen[0]).name")
    step = int(await page.ask("logs.column(state.chosen[0], 'valid', 'step').at(-1)")) + 1
    news = asyncio.create_task(page.ask(NEWS))
    await asyncio.sleep(0.3)
    with (folder / name / "valid.log.tsv").open("a") as file:
        file.write("\t".join(["11", str(step), *(["0.9"] * (METRICS + 1))]) + "\n")
        file.flush()
        begun = time.time()
    return float(await news) / 1000 - begun


def measure() -> list[Row]:
    """Measure in a real browser; yield nothing if there is none."""
    if program() is None:
        print("there is no Chromium here (Debian: apt-get install chromium): the board is not measured.", flush=True)
        return []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_runs(folder, RUNS)
        found = asyncio.run(_times(folder, RUNS))
    size = f"{RUNS:,} runs × {METRICS} metrics × {POINTS:,} points"
    middle: Callable[[str], float] = lambda key: sorted(found[key])[len(found[key]) // 2]  # noqa: E731
    rows = [
        Row(f"x-board from its start to the whole table, {size}", f"{spread(found['cold'])} s", "–", kept=True),
        Row("the page to the whole table", f"{spread(found['table'])} s", f"< {TABLE:g} s", middle("table") < TABLE),
        Row(f"{CURVES} curves, chosen until drawn", f"{spread(found['curves'])} s", f"< {DRAWN:g} s",
            middle("curves") < DRAWN),
        Row("a row appended to a log until it is drawn", f"{spread(found['added'], 3)} s", f"< {ADDED:g} s",
            middle("added") < ADDED),
    ]  # fmt: skip
    return [*rows, *_beside()]
