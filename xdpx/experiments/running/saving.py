"""When checkpoints are written, what they contain, and which ones are kept."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from xdpx.checkpoints import folders, spmd_files, spmd_folders, spmd_shares
from xdpx.checkpoints.memory_shares import MemoryShares
from xdpx.config.faults import first_line
from xdpx.engines.spmd import transfer
from xdpx.experiments.running.feeding import Feed
from xdpx.experiments.running.parts import Parts
from xdpx.experiments.running.starting import TRAINED_BY
from xdpx.experiments.running.vocabularies import VOCABULARIES, vocabularies_of
from xdpx.logger import log
from xdpx.tasks.spmd.train_fields import duration
from xdpx.training.accumulation import MetricAccumulator
from xdpx.training.callbacks.saving import Checkpointing
from xdpx.training.loop import Callback, Session, Stop
from xdpx.utils import io
from xdpx.utils.decisions import due

SAVED_AT = "saved_at"
"""Key of the time when a checkpoint was written, in seconds since 1970."""


class Saving(Checkpointing):
    """Saves at step 0, at intervals, on request, and at the end.

    Args:
        copies: in-memory copies of the state between two saves; None for no copies.
        goes_on: whether the run was resumed from its own checkpoint or copy.
        weights_of: returns the id of the weights of a step.
    """

    def __init__(
        self, parts: Parts, feed: Feed, accumulator: MetricAccumulator, callbacks: Sequence[Callback], *,
        weights_of: Callable[[int], str], copies: MemoryShares | None = None, goes_on: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(accumulator, callbacks, copies)
        self._parts, self._feed, self._copies, self._goes_on = parts, feed, copies, goes_on
        self._parent = io.join(parts.folder, spmd_folders.PARENT)
        self._weights_of, self._vocabularies = weights_of, vocabularies_of(feed.data)
        self._last: int | None = None
        self._cut_at = ""  # of the progress that was saved last

    def on_start(self, session: Session) -> None:
        """Save a new run before its first update; a resumed run already has its starting point on disk or in memory."""
        if io.isdir(io.join(self._parent, spmd_folders.folder_name(session.number))) and session.number:
            self._last, self._cut_at = session.number, session.progress.cut_at
        elif not self._goes_on:
            self._save(session)

    def save(self, session: Session) -> None:
        """Save the current step if it is due, the last one, or requested."""
        wanted = due(session.number, self._parts.train.save_interval_steps) or session.number == session.until
        if wanted or self._asked:
            self._save(session)

    def on_end(self, session: Session, stop: Stop) -> None:
        """Save the final state, and wait until it is written."""
        self._save(session)
        spmd_files.wait()
        self._copying.wait()
        self._parts.ranks.barrier()
        self._rotate(session.number)
        self._forget_copies()

    def _save(self, session: Session) -> None:
        self._asked = False
        if self._is_last(session):
            return
        with self._writing(session):
            spmd_files.wait()
            if self._last is not None and self._last != session.number:
                self._rotate(self._last)
            spmd_files.save(
                session.state, self._parent, step=session.number, facts=self._facts(session),
                train_input=self._feed.state(session.progress.group), ranks=self._parts.ranks,
                background=self._parts.options.jax_fully_async_checkpoint,
            )  # fmt: skip
        self._last, self._cut_at = session.number, session.progress.cut_at

    def _is_last(self, session: Session) -> bool:
        return (self._last, self._cut_at) == (session.number, session.progress.cut_at)

    def _is_saved(self, session: Session) -> bool:
        return self._is_last(session) and not self._parts.options.jax_fully_async_checkpoint

    def _copy_of(self, session: Session) -> Callable[[], object] | None:
        copies, step, engine = self._copies, session.number, self._parts.engine
        if copies is None or not copies.has_room(lambda: spmd_shares.bytes_here(session.state)):
            return None
        finite, copied = engine.finite(session.state), engine.copied(session.state)
        shards = spmd_shares.shards_of(session.state if copied is None else copied)
        fetched = spmd_shares.on_host(shards) if copied is None else None  # as the next update is donated the state
        facts = {"facts": self._facts(session), "inputs": self._feed.state(session.progress.group)}

        def write() -> None:
            """Write the copy as soon as the devices have computed it."""
            try:
                found = fetched or spmd_shares.on_host(shards)
                told, whole = transfer.plain(facts), bool(np.asarray(finite))
            except jax.errors.JaxRuntimeError as error:  # of an update before it: the training ends by the same error
                log.info(f"no copy of step {step} is kept in memory: {first_line(error)}")
                return
            if whole:
                copies.save(step, found.items(), told)

        return write

    def _facts(self, session: Session) -> dict[str, Any]:
        return {
            "progress": session.progress.as_dict(),
            "callbacks": self._states(),
            "mesh": {name: int(size) for name, size in self._parts.mesh.shape.items()},
            SAVED_AT: time.time(),
            TRAINED_BY: self._weights_of(session.number),
            VOCABULARIES: self._vocabularies,
        }

    def _rotate(self, current: int) -> None:
        """Delete checkpoints that need not be kept. Does so on one process only, while nothing is being written."""
        train = self._parts.train
        if not self._parts.is_first or not train.save_max_to_keep:
            return
        pinned: set[int] = set()
        if train.save_keep_interval_duration is not None:
            seconds = duration(train.save_keep_interval_duration).total_seconds()
            pinned = spread(times_of(self._parent), seconds)
        spmd_folders.rotate(self._parent, keep_last=train.save_max_to_keep, current=current, pinned=pinned)


def times_of(parent: str) -> dict[int, float]:
    """Return step -> time when its checkpoint was written; without those whose metadata are damaged."""
    found = {}
    for step in spmd_folders.steps(parent):
        with contextlib.suppress(FileNotFoundError, folders.DamagedCheckpoint):
            facts = spmd_folders.read_metadata(io.join(parent, spmd_folders.folder_name(step)))["facts"]
            found[step] = float(facts.get(SAVED_AT, 0.0))
    return found


def spread(times: Mapping[int, float], seconds: float) -> set[int]:
    """Return the steps to keep because they are `seconds` apart, starting with the first one."""
    kept: set[int] = set()
    last: float | None = None
    for step in sorted(times):
        if last is None or times[step] - last >= seconds:
            kept.add(step)
            last = times[step]
    return kept


def restore_callbacks(facts: Mapping[str, Any], callbacks: Sequence[Callback]) -> None:
    """Restore the state that each callback had when a checkpoint was written; new callbacks have none."""
    saved = facts.get("callbacks", {})
    for callback in callbacks:
        if callback.name and callback.name in saved:
            callback.load_state_dict(saved[callback.name])
