"""Run the benchmarks: `python -m benchmarks [NAME ...]`. benchmarks/README.md says which data they want."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from benchmarks import gpu
from benchmarks.report import RESULTS, Row, write_results

TITLES = {
    "gpu": "GPU",
    "startup": "Start-up",
    "opening": "Store",
    "loop_overhead": "Loop",
    "preprocessing": "Preprocessing",
    "training": "Training",
    "trainer_parity": "Trainer: the same numbers",
    "trainer_overhead": "Trainer: what a step costs",
    "trainer_checkpoints": "Trainer: saving and resuming",
    "spmd": "JAX: sharded experiments",
}
"""In the order in which they run: the first wants a process that has not touched the GPU yet."""


def show(row: Row) -> None:
    """Print a row as it comes."""
    print(f"  {row.what:<88} {row.measured:<28} {row.promised:<20} {'yes' if row.kept else 'NO'}", flush=True)


def started(name: str, *, small: bool) -> tuple[str, Iterable[Row]]:
    """Begin a benchmark, and return the title of its section and its rows, some of which are yet to be measured."""
    if name != "gpu":
        return TITLES[name], import_module(f"benchmarks.{name}").measure()
    device = None if small else gpu.gpu_at_hand()
    where = device or "in small on the CPU, which tells nothing of speed"
    if device is None and not small:
        print("torch sees no GPU here: everything is run in small, on the CPU.", flush=True)
    return f"{TITLES[name]}: {where}", gpu.measure(device)


def main() -> int:
    """Measure what was asked for, all by default; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all by default: {', '.join(TITLES)}")
    parser.add_argument("--small", action="store_true", help="gpu: in small on the CPU, although there is a GPU")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"the page to write; by default {RESULTS}")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in TITLES]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}. There are: {', '.join(TITLES)}.", file=sys.stderr)
        return 2
    sections: dict[str, list[Row]] = {}
    for name in TITLES:
        if asked.names and name not in asked.names:
            continue
        print(TITLES[name], flush=True)
        title, rows = started(name, small=asked.small)
        for row in rows:
            show(row)
            sections.setdefault(title, []).append(row)
            write_results(sections, asked.results)
    print(f"kept in {asked.results}")
    return 0 if all(row.kept for rows in sections.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
