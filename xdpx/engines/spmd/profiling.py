"""Trace JAX, and measure the time of each operation of its compiled programs."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import jax

from xdpx.engines.base import Traced
from xdpx.utils import io

TRACE = "trace.json"
PACKED = "perfetto_trace.json.gz"


@contextmanager
def traced(folder: str) -> Generator[Traced]:
    """Trace the block with jax.profiler into a local folder, for TensorBoard; `trace.json` is for Perfetto.

    Yields the results, which are filled in when the context ends: only times of operations, none of modules.
    """
    found = Traced({}, {}, [])
    jax.profiler.start_trace(folder, create_perfetto_trace=True)
    try:
        yield found
    finally:
        jax.profiler.stop_trace()
    packed = sorted(path for path in io.listdir(folder, recursive=True, full_path=True) if path.endswith(PACKED))
    if packed:
        with io.open(packed[-1], "rb") as file:
            text = gzip.decompress(file.read())
        with io.open(io.join(folder, TRACE), "wb") as file:
            file.write(text)
        found.operations.update(_operations(json.loads(text)["traceEvents"]))


def _operations(events: list[dict[str, Any]]) -> dict[str, float]:
    """Return the seconds of each operation, summed over programs and devices."""
    spent: dict[str, float] = defaultdict(float)
    for event in events:
        name = event.get("args", {}).get("hlo_op")
        if name and event.get("ph") == "X":
            spent[name] += event.get("dur", 0.0) / 1e6
    return dict(spent)
