"""Start-up times: --help and dry runs must not import torch."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.report import Row, spread
from benchmarks.training import MAX_LEN, prepare, train_values
from benchmarks.work import REPOSITORY, write_config

RUNS = 7


def seconds(words: list[str], *, code: int) -> float:
    """Return the seconds of a command in a fresh process; stop if its exit code is not `code`."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "xdpx.run", *words], cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode != code:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return time.perf_counter() - started


def measure() -> list[Row]:
    """Time each case in a fresh process, after a run that warms up the disk cache."""
    config = write_config("startup", train_values("sst2", prepare("sst2", MAX_LEN["sst2"]), save=False))
    cases = [
        ("x-io --help", ["x-io", "--help"], 0, 0.3),
        ("x-train --dry, a BERT", ["x-train", config, "--dry"], 0, 1.5),
        ("a misspelt key answered", ["x-train", config, "learning_rte=1"], 2, 1.0),
        ("x-train --help", ["x-train", "--help"], 0, 1.5),
    ]
    rows = []
    for what, words, code, limit in cases:
        seconds(words, code=code)
        times = [seconds(words, code=code) for _ in range(RUNS)]
        rows.append(Row(what, f"{spread(times)} s", f"< {limit} s", statistics.median(times) < limit))
    return rows
