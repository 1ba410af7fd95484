"""Run the benchmarks: `python -m benchmarks [NAME ...]`. benchmarks/README.md describes the data that they need."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from benchmarks import gpu
from benchmarks.report import FAULTS, RESULTS, Row, write_results

TITLES = {
    "gpu": "GPU",
    "startup": "Start-up",
    "opening": "Store",
    "loop_overhead": "Loop",
    "watching": "What looks on by default",
    "preprocessing": "Preprocessing",
    "one_answer": "One answer everywhere: batches of any size, by five doors",
    "check": "x-check: wrong labels and rows per second",
    "training": "Training",
    "tuning_real": "Search: samples until random search's best score on a real space",
    "trainer_parity": "Trainer: the same numbers",
    "trainer_overhead": "Trainer: what a step costs",
    "trainer_checkpoints": "Trainer: saving and resuming",
    "spmd": "JAX: sharded experiments",
    "board": "Board",
    "serving": "Serving",
    "save_stall": "What a save costs training",
    "goodput_pytorch": "Goodput under kills and freezes: PyTorch",
    "goodput_jax": "Goodput under kills and freezes: JAX",
    "tuning": "Search: samples until random search's best score",
}
"""In the order in which they run: the first needs a process that has not used the GPU yet."""

GOODPUT = ("save_stall", "goodput_pytorch", "goodput_jax")
"""The benchmarks that `goodput` stands for."""
ASKED_FOR = frozenset(GOODPUT)
"""Benchmarks that only run when they are named, because they take many minutes."""


def show(row: Row) -> None:
    """Print a row as soon as it is measured."""
    print(f"  {row.what:<88} {row.measured:<28} {row.promised:<20} {'yes' if row.kept else 'NO'}", flush=True)


def started(name: str, *, small: bool, minutes: float | None) -> tuple[str, Iterable[Row]]:
    """Start a benchmark, and return the title of its section and its rows, which are measured lazily."""
    if name.startswith("goodput_"):
        from benchmarks import goodput

        disturb = goodput.of_pytorch if name == "goodput_pytorch" else goodput.of_jax
        return TITLES[name], disturb(goodput.MINUTES if minutes is None else minutes)
    if name != "gpu":
        return TITLES[name], import_module(f"benchmarks.{name}").measure()
    device = None if small else gpu.gpu_at_hand()
    where = device or "in small on the CPU, which tells nothing of speed"
    if device is None and not small:
        print("torch sees no GPU here: everything is run in small, on the CPU.", flush=True)
    return f"{TITLES[name]}: {where}", gpu.measure(device)


def main() -> int:
    """Run the named benchmarks (all by default), and return 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"all by default: {', '.join(TITLES)}; goodput for the last three"
    )
    parser.add_argument("--small", action="store_true", help="gpu: in small on the CPU, although there is a GPU")
    parser.add_argument("--results", type=Path, help=f"the page to write; by default {RESULTS}, of goodput {FAULTS}")
    parser.add_argument("--minutes", type=float, help="goodput: how long each engine is disturbed")
    asked = parser.parse_args()
    asked.names = [name for each in asked.names for name in (GOODPUT if each == "goodput" else (each,))]
    unknown = [name for name in asked.names if name not in TITLES]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}. There are: {', '.join(TITLES)}.", file=sys.stderr)
        return 2
    pages: dict[Path, dict[str, list[Row]]] = {}
    for name in TITLES:
        if name not in asked.names and (asked.names or name in ASKED_FOR):
            continue
        page = asked.results or (FAULTS if name in GOODPUT else RESULTS)
        print(TITLES[name], flush=True)
        title, rows = started(name, small=asked.small, minutes=asked.minutes)
        written: dict[str, list[Row]] = pages.setdefault(page, {})
        for row in rows:
            show(row)
            written.setdefault(title, []).append(row)
            write_results(written, page)
        print(f"kept in {page}")
    return 0 if all(row.kept for written in pages.values() for rows in written.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
