"""How long a save stalls training: the time to copy a state, compared with the time of a whole save."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.report import Row, spread
from benchmarks.work import WORK

STALL_LIMIT = 0.02
SAVES = 5

Spent = tuple[float, float]
"""(seconds, CPU seconds of the training thread); on a busy machine, the latter are more reliable."""


def measure() -> Iterator[Row]:
    """Measure how long writing an x-train state of some size in the background stalls training."""
    import torch

    from xdpx.checkpoints.background import Background, copied
    from xdpx.checkpoints.checkpointer import Checkpointer

    folder = WORK / "goodput-stall"
    shutil.rmtree(folder, ignore_errors=True)
    live = {f"weight {index}": torch.randn(1 << 20) for index in range(96)}  # a third each: weights and two moments
    checkpointer, background = Checkpointer(str(folder)), Background()
    waits: list[Spent] = []
    stalls: list[Spent] = []
    for number in range(1, SAVES + 1):
        waits.append(_spent(lambda: checkpointer.save_state(number, copied(live), facts={})))  # noqa: B023
        whole = number + 100

        def start() -> None:
            with background.copying():
                snapshot = copied(live)
            background.start(lambda: checkpointer.save_state(whole, snapshot, facts={}))  # noqa: B023

        stalls.append(_spent(start))
        background.wait()
    shutil.rmtree(folder, ignore_errors=True)
    for name, index, limit in (("seconds", 0, STALL_LIMIT), ("CPU seconds of its thread", 1, None)):
        usual = statistics.median(each[index] for each in waits)
        shares = [each[index] / usual for each in stalls[1:]]
        what = (
            f"a state of 384 MB: {name} that a save in the background holds training up, over those of one waited for"
        )
        kept = limit is None or statistics.median(shares) <= limit
        measured = f"{spread(shares, 3)} of {spread([each[index] for each in waits])}"
        yield Row(what, measured, "" if limit is None else f"<= {limit}", kept)


def _spent(work: Callable[[], object]) -> Spent:
    began, cpu = time.perf_counter(), time.thread_time()
    work()
    return time.perf_counter() - began, time.thread_time() - cpu
