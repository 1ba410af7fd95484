"""How many CPU seconds each room of tests may take, on one of two cores; `--cpu-seconds 20` shows what it does take.

A room that takes much more is named at the end of a run. Whoever raises a number says why, in the commit that does.
"""

from __future__ import annotations

BUDGETS = {
    "benchmarks": 10,
    "board": 20,
    "careless": 180,
    "checkpoints": 30,
    "commands": 60,
    "config": 20,
    "datasets": 60,
    "engines": 70,
    "engines/spmd": 210,
    "experiments": 100,
    "faults": 130,
    "golden": 40,
    "inference": 70,
    "journeys": 450,
    "launch": 60,
    "loaders": 10,
    "losses": 40,
    "metrics": 10,
    "models": 60,
    "optimizers": 50,
    "processors": 20,
    "promises": 200,
    "reports": 20,
    "runs": 10,
    "scripts": 30,
    "search": 30,
    "serving": 30,
    "tasks": 50,
    "tokenizers": 10,
    "trainer": 200,
    "training": 40,
    "tuning": 60,
    "utils": 55,
}
"""Seconds of a room; the longest name that the path of a test begins with counts."""
