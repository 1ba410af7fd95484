"""Opening a store of ten million samples, and collating a batch from it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.report import Row, spread
from benchmarks.work import WORK
from xdpx.utils.verified import SECONDS_AT_REST

SAMPLES = 10_000_000
RUNS = 7
SCHEMA = {"input_ids": "ragged int32", "target": "int64", "length": "int32"}
OPEN = """
import sys, time
from xdpx.datasets.store import Store
started = time.perf_counter()
store = Store.open(sys.argv[1])
seconds = time.perf_counter() - started
assert store.num_samples == int(sys.argv[2])
print(seconds * 1000)
"""


def build() -> str:
    """Write the store once, in parts, as preprocessing does, and return its path."""
    import numpy as np

    from xdpx.datasets.writing import PartWriter, assemble
    from xdpx.processors.samples import Ragged, Samples

    path = str(WORK / "ten_million.pt")
    if (WORK / "ten_million.pt").exists():
        return path
    WORK.mkdir(exist_ok=True)
    per_part = SAMPLES // 10
    lengths = np.full(per_part, 12, np.int32)
    columns: dict[str, Any] = {
        "input_ids": Ragged(np.zeros(per_part * 12, np.int32), np.arange(per_part + 1, dtype=np.int64) * 12),
        "target": np.zeros(per_part, np.int64),
        "length": lengths,
    }
    part = str(WORK / "ten_million.part")
    with PartWriter(part, SCHEMA) as writer:
        writer.extend(Samples(columns))
    assemble([part] * 10, path, SCHEMA)
    return path


def measure() -> list[Row]:
    """Open the store in fresh processes, not counting imports: first reading every byte of it, then as usual."""
    path = build()
    time.sleep(SECONDS_AT_REST + 0.5)  # nothing is cached about a file that has just been written
    first, *times = [opened(path) for _ in range(RUNS + 1)]
    return [
        Row(
            "opening a store of 10M samples for the first time, when its bytes are compared",
            f"{first:.1f} ms",
            "",
            True,
        ),
        Row("opening it again", f"{spread(times, 1)} ms", "< 50 ms", statistics.median(times) < 50),
    ]


def opened(path: str) -> float:
    """Return the milliseconds that a fresh process takes to open a store."""
    line = [sys.executable, "-c", OPEN, path, str(SAMPLES)]
    return float(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
