"""The cost of saving and resuming, compared with the original: MiniLM with its optimizer; resuming at step 10,000."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from types import ModuleType
from typing import Any

from benchmarks.report import Row, spread
from benchmarks.trainer_work import (
    Points,
    Square,
    bert,
    clock,
    folder,
    libraries,
    padded,
    sentences,
    settings,
)

SAVES = 4
EVERY = 6
"""Steps between two saves: about as long as a background save takes."""
IN_BACKGROUND = "XDPX_SAVE_IN_BACKGROUND"
FAR = 10_000
LIMIT = 2.0


def measure() -> list[Row]:
    """Time saving and resuming with both libraries."""
    return [*saving(), *resuming()]


def saving() -> list[Row]:
    """Compare how long a save of MiniLM with AdamW's state stalls a step."""
    both = libraries()
    seconds = {name: saves(library) for name, library in both.items()}
    os.environ[IN_BACKGROUND] = "1"
    seconds["in the background"] = saves(both["ours"])
    del os.environ[IN_BACKGROUND]
    theirs = statistics.median(seconds["the original"])
    rows = []
    for name, what, limit in (("ours", "synced and hashed", None), ("in the background", "in the background", 1.0)):
        ratio = [value / theirs for value in seconds[name]]
        promised = "no limit" if limit is None else f"<= {limit}x"
        rows.append(Row(f"how long a save holds up training, MiniLM with AdamW, {what}, over the original's "
                        f"({spread(seconds['the original'])} s)", f"{spread(ratio)}x", promised,
                        limit is None or statistics.median(ratio) <= limit))  # fmt: skip
    return rows


def saves(library: ModuleType) -> list[float]:
    """Return the seconds of each save except the first."""
    place = f"{library.__name__}-saves"
    shutil.rmtree(folder(place), ignore_errors=True)
    watch = clock(library)
    often = {"save_strategy": "steps", "save_steps": EVERY, "save_total_limit": 2}
    args = settings(library, place, max_steps=EVERY * (SAVES + 1), **often)
    library.Trainer(bert(), args, padded, sentences(8 * EVERY * (SAVES + 1)), callbacks=[watch]).train()
    shutil.rmtree(folder(place), ignore_errors=True)
    return list(watch.saves[1:])


def resuming() -> list[Row]:
    """Compare the time from `train(resume_from_checkpoint=True)` to the start of the first step."""
    rows = []
    for name, library in libraries().items():
        place = f"{library.__name__}-far"
        shutil.rmtree(folder(place), ignore_errors=True)
        far(library, place, max_steps=FAR, save_steps=FAR).train()
        data = Points(8 * FAR + 80)
        watch = clock(library)
        trainer = far(library, place, data, [watch], max_steps=FAR + 1, save_steps=FAR)
        started = time.perf_counter()
        trainer.train(resume_from_checkpoint=True)
        seconds = watch.began - started
        shutil.rmtree(folder(place), ignore_errors=True)
        limit = f"< {LIMIT} s" if name == "ours" else ""
        rows.append(Row(f"resuming at step {FAR:,} of a map dataset, {name} ({data.asked} rows read)",
                        f"{seconds:.2f} s", limit, seconds < LIMIT or name != "ours"))  # fmt: skip
    return rows


def far(library: ModuleType, place: str, data: Points | None = None, callbacks: Any = None, **changes: Any) -> Any:
    """Return a Trainer of the tiny model with more rows than the run uses."""
    args = settings(library, place, save_strategy="steps", logging_steps=FAR, **changes)
    return library.Trainer(Square(), args, train_dataset=data or Points(8 * FAR + 80), callbacks=callbacks)
