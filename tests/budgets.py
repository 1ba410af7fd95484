"""Budgets of CPU seconds per test folder ("room"), on one of two cores; `--cpu-seconds 20` shows the actual values.

Each budget is the time when all rooms together took 2,360 seconds, plus a quarter, rounded up. Rooms that take much
more are reported at the end of a run. A commit that raises a budget must state the reason.
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
"""Path prefix -> budget in seconds; the longest matching prefix of a test's path applies."""
