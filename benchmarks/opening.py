"""Opening a store of ten million samples, and collating a batch of it."""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Any

from benchmarks.report import Row, spread
from benchmarks.work import WORK

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
    """Write the store once, in parts, as preprocessing does; return its path."""
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
    """Open the store in fresh processes, imports not counted."""
    path = build()
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", OPEN, path, str(SAMPLES)], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(RUNS)
    ]
    return [Row("opening a store of 10M samples", f"{spread(times, 1)} ms", "< 50 ms", statistics.median(times) < 50)]
