"""How many CPU seconds each room of tests may take, on one of two cores; `--cpu-seconds 20` shows what it does take.

A quarter more than each took when they took 2,360 together, rounded up. A room that takes much more is named at the end
of a run. Whoever raises a number says why, in the commit that does.
"""

from __future__ import annotations

BUDGETS = {
    "benchmarks": 60,
    "board": 20,
    "careless": 150,
    "checkpoints": 40,
    "commands": 100,
    "config": 60,
    "datasets": 100,
    "engines": 90,
    "engines/spmd": 160,
    "experiments": 250,
    "faults": 230,
    "golden": 100,
    "inference": 30,
    "journeys": 440,
    "launch": 30,
    "loaders": 10,
    "losses": 30,
    "metrics": 20,
    "models": 200,
    "optimizers": 50,
    "processors": 20,
    "promises": 390,
    "reports": 40,
    "runs": 20,
    "scripts": 30,
    "search": 10,
    "serving": 10,
    "tasks": 50,
    "tokenizers": 20,
    "trainer": 200,
    "training": 30,
    "tuning": 30,
    "utils": 90,
}
"""Seconds of a room; the longest name that the path of a test begins with counts."""
