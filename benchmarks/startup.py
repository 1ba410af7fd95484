"""Start-up times: asking for help and a dry run must not wait for torch."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.report import Row, spread
from benchmarks.work import REPOSITORY

RUNS = 7
CASES = [
    ("x-io --help", ["x-io", "--help"], 0.3),
    ("x-train --dry", ["x-train", "examples/demo/train", "--dry"], 1.5),
    ("a misspelt key answered", ["x-train", "examples/demo/train", "--dry", "learning_rte=1"], 1.0),
    ("x-train --help", ["x-train", "--help"], 1.5),
]


def seconds(words: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "xdpx.run", *words], cwd=REPOSITORY, capture_output=True)
    return time.perf_counter() - started


def measure() -> list[Row]:
    """Time each case in a fresh process, after one run to warm the disk cache."""
    rows = []
    for what, words, limit in CASES:
        seconds(words)
        times = [seconds(words) for _ in range(RUNS)]
        rows.append(Row(what, f"{spread(times)} s", f"< {limit} s", statistics.median(times) < limit))
    return rows
