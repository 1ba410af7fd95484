"""What a save costs training: how long it stands still while a state is copied, beside how long a save takes."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.report import Row, spread
from benchmarks.work import WORK

STALL_LIMIT = 0.02
SAVES = 5


def measure() -> Iterator[Row]:
    """Compare how long an x-train state of some size holds up training when it is written in the background."""
    import torch

    from xdpx.checkpoints.background import Background, copied
    from xdpx.checkpoints.checkpointer import Checkpointer

    folder = WORK / "goodput-stall"
    shutil.rmtree(folder, ignore_errors=True)
    live = {f"weight {index}": torch.randn(1 << 20) for index in range(96)}  # a third each: weights and two moments
    checkpointer, background = Checkpointer(str(folder)), Background()
    waits: list[float] = []
    stalls: list[float] = []
    for number in range(1, SAVES + 1):
        waits.append(_seconds(lambda: checkpointer.save_state(number, copied(live), facts={})))  # noqa: B023
        whole = number + 100

        def start() -> None:
            snapshot = copied(live)
            background.start(lambda: checkpointer.save_state(whole, snapshot, facts={}))  # noqa: B023

        stalls.append(_seconds(start))
        background.wait()
    shutil.rmtree(folder, ignore_errors=True)
    shares = [stall / statistics.median(waits) for stall in stalls[1:]]
    kept = statistics.median(shares) <= STALL_LIMIT
    what = f"a state of 384 MB: stall of a save in the background, over one that is waited for ({spread(waits)} s)"
    yield Row(what, spread(shares, 3), f"<= {STALL_LIMIT}", kept)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
