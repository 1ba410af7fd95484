"""Findings of x-check about the run itself: write permission, disk space, memory, duration."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TYPE_CHECKING

from xdpx.commands import batch
from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run
from xdpx.config.user_modules import load_user_modules
from xdpx.datasets.examining.examination import Examination
from xdpx.datasets.findings.finding import Finding
from xdpx.utils import io
from xdpx.utils.memory import available_memory
from xdpx.utils.progress import format_bytes, format_seconds

if TYPE_CHECKING:
    from xdpx.runs.outlook import Outlook

BYTES_PER_TOKEN = 10
"""Bytes of disk per token, for a store and the temporary files written before it is complete."""
STATES_KEPT = 2
"""Full training states on disk at the moment one is replaced."""
LITTLE_MEMORY = 0.8
"""Share of the available memory above which a warning is given."""
LONG = 24 * 3600.0


def about_place(run: Run, seen: Examination | None) -> Iterator[Finding]:
    """Yield findings on whether the run may write to its folder, and whether the disk has enough space.

    Args:
        run: of x-prepro or x-train.
        seen: the examination of its data.
    """
    folder = batch.output_folder(run)
    if not folder:
        return
    if not io.is_writable(folder):
        yield Finding(
            "permission", "fault", folder, "cannot be written.", "Choose another folder, or ask for permission."
        )
        return
    if run.command == "x-prepro" and seen is not None and seen.tallies:
        needed = BYTES_PER_TOKEN * sum(tally.tokens + 4 * tally.texts for tally in seen.tallies.values())
        yield from _about_room(folder, needed / seen.part)


def _about_room(folder: str, needed: float) -> Iterator[Finding]:
    free = free_bytes(folder)
    if free is not None and free < needed:
        problem = f"{format_bytes(free)} are free on this disk, but about {format_bytes(needed)} are needed."
        yield Finding("disk", "fault", folder, problem, "Free some space, or choose another folder.")


def free_bytes(folder: str) -> float | None:
    """Return the free bytes on the disk of a folder, which may not exist yet; None for remote storage."""
    if not io.islocal(folder):
        return None
    place = io.abspath(folder)
    while not io.isdir(place) and io.parent(place) != place:
        place = io.parent(place)
    return float(io.local_files.usable_space(place))


def about_training(run: Run, *, measure: bool) -> tuple[Outlook | None, list[Finding]]:
    """Take a few updates in a subprocess, and return an estimate for the whole training, with findings.

    Args:
        run: of x-train.
        measure: whether to take them; without, (None, []) is returned.
    """
    if not measure:
        return None, []
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=load_user_modules) as pool:
            outlook = pool.submit(_look_ahead, run).result()
    except ConfigError as error:
        return None, [Finding("refused", "fault", error.source, str(fault), "") for fault in error.faults]
    except (BrokenProcessPool, OSError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        problem = f"a first update failed here: {reason}"
        remedy = "Lower batch_size (update_freq keeps the product) or max_len, if memory is short."
        return None, [Finding("memory", "fault", run.source, problem, remedy)]
    return outlook, list(_judged(run, outlook))


def _look_ahead(run: Run) -> Outlook:
    from xdpx.runs.outlook import look_ahead

    return look_ahead(run)


def _judged(run: Run, outlook: Outlook) -> Iterator[Finding]:
    folder = str(run.values["save_dir"])
    if run.values.get("save", True):
        yield from _about_room(folder, STATES_KEPT * (outlook.weights_bytes + outlook.state_bytes))
    memory = available_memory()
    if "GPU" not in outlook.memory and outlook.peak_bytes > LITTLE_MEMORY * (memory + outlook.peak_bytes):
        problem = f"a few updates took {format_bytes(outlook.peak_bytes)} of memory; {format_bytes(memory)} are left."
        yield Finding("memory", "warning", run.source, problem, "Lower batch_size; update_freq keeps the product.")
    if outlook.seconds > LONG:
        problem = f"all {outlook.updates:,} updates will take about {format_seconds(outlook.seconds)} on this machine."
        yield Finding("time", "note", run.source, problem, "Lower max_epoch or max_update, if that is too long.")
