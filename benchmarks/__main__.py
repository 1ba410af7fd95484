"""Run the benchmarks: `python -m benchmarks [NAME ...]`. benchmarks/README.md says which data they want."""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.report import RESULTS, Row, write_results

TITLES = {
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


def show(rows: list[Row]) -> None:
    """Print rows as they come."""
    for row in rows:
        print(f"  {row.what:<88} {row.measured:<28} {row.promised:<20} {'yes' if row.kept else 'NO'}", flush=True)


def main() -> int:
    """Measure what was asked for, all by default; 1 when a promise is not kept."""
    names = sys.argv[1:] or list(TITLES)
    unknown = [name for name in names if name not in TITLES]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}. There are: {', '.join(TITLES)}.", file=sys.stderr)
        return 2
    sections = {}
    for name in names:
        print(TITLES[name], flush=True)
        sections[TITLES[name]] = import_module(f"benchmarks.{name}").measure()
        show(sections[TITLES[name]])
        write_results(sections)
    print(f"kept in {RESULTS}")
    return 0 if all(row.kept for rows in sections.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
