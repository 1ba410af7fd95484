"""Budgets of CPU seconds per test folder ("room"), on one of two cores; `--cpu-seconds 20` shows the actual values.

Each budget is the time when all rooms together took 1,610 seconds, in the short form and with nothing compiled before,
plus a quarter, rounded up; less in rooms that have become cheaper since. Rooms that take much more are reported at the
end of a run. A commit that raises a budget must state the reason.
"""

from __future__ import annotations

BUDGETS = {
    "benchmarks": 30,
    "board": 10,
    "careless": 130,
    "checkpoints": 20,
    "commands": 80,
    "config": 30,
    "datasets": 50,
    "engines": 40,
    "engines/spmd": 80,
    "experiments": 150,
    "faults": 60,
    "golden": 40,
    "inference": 40,
    "journeys": 210,
    "launch": 20,
    "loaders": 10,
    "losses": 10,
    "metrics": 10,
    "models": 150,
    "optimizers": 40,
    "processors": 10,
    "promises": 150,
    "reports": 20,
    "runs": 10,
    "scripts": 40,
    "search": 10,
    "serving": 10,
    "tasks": 40,
    "tokenizers": 10,
    "trainer": 130,
    "training": 10,
    "tuning": 20,
    "utils": 50,
}
"""Path prefix -> budget in seconds; the longest matching prefix of a test's path applies."""
