"""Mode `train`, start to end: what to begin with, the stretch of the loop, and what is told at the end."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from xdpx.checkpoints.folders import attempt
from xdpx.config.faults import ConfigError, Fault
from xdpx.engines.spmd.mesh import mesh_text
from xdpx.experiments.running import job_folder
from xdpx.experiments.running.callbacks import (
    EVALUATION,
    SUMMARY,
    CollectingGarbage,
    Decoding,
    EfficientLogging,
    Evaluating,
    Profiling,
    SkippingLedger,
    StoppingEarly,
    StoppingTogether,
    Summarising,
    means_of,
)  # fmt: skip
from xdpx.experiments.running.feeding import Feed
from xdpx.experiments.running.parts import Parts
from xdpx.experiments.running.programs import DecodeProgram, EvalProgram
from xdpx.experiments.running.saving import Saving, restore_callbacks
from xdpx.experiments.running.starting import Start, begin
from xdpx.logger import log
from xdpx.reports.growing_table import GrowingTable
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.runs.callbacks.logging import LOG
from xdpx.runs.callbacks.plotting import Plotting
from xdpx.runs.status import RunState, Status
from xdpx.trainer.loop import Callback, Session, Stop, fit
from xdpx.trainer.preemption import SIGNALS, Preemption
from xdpx.trainer.progress import Progress
from xdpx.utils import commit, io
from xdpx.utils.distributed_utils import is_master

LOG_FILE = "log.txt"


def train(parts: Parts) -> Stop:
    """Train an experiment to its last update, from wherever its job folder stands; on all processes.

    Raises:
        ConfigError: the folder holds something else, or the checkpoint another model.
        OSError: the disk or the network failed, or another run owns the folder.
    """
    if job_folder.content(parts.folder) == "something else":
        remedy = "Choose a folder that does not exist, is empty, or holds this job."
        fault = Fault("job_log_dir", f"'{parts.folder}' holds files that are no job.", remedy)
        raise ConfigError(type(parts.experiment).__name__, [fault])
    alone = parts.ranks.size == 1
    # Several processes are told of a preemption by JAX, which a handler of ours would hide from it.
    with Preemption(SIGNALS if alone else ()) as preemption, owned(parts), log_file(parts):
        start = begin(parts)
        return _Training(parts, start, preemption).go()


@contextmanager
def owned(parts: Parts) -> Generator[None]:
    """Own the folder of the job, by its first process; where it cannot, all of them say so."""
    lease = commit.Lease(parts.folder)
    error = attempt(lease.acquire) if parts.is_first else None
    told = parts.ranks.broadcast("" if error is None else str(error))
    if told:
        raise error or OSError(told)
    try:
        yield
    finally:
        if parts.is_first:
            lease.release()


@contextmanager
def log_file(parts: Parts) -> Generator[None]:
    """Write lines to the job's log, by its first process."""
    if not parts.is_first:
        yield
        return
    with log.to_file(io.join(parts.folder, LOG_FILE)):
        yield


class _Training:
    """What the steps of one training share."""

    def __init__(self, parts: Parts, start: Start, preemption: Preemption) -> None:
        self.parts, self.start, self.preemption = parts, start, preemption
        self.progress = self._progress()
        self.until = int(parts.train.num_train_steps)

    def go(self) -> Stop:
        """Train, unless all updates were taken before."""
        if self.progress.num_updates >= self.until:
            stop = Stop(f"all {self.until} updates were taken before")
            log.info(stop.reason)
            return stop
        self._status("running")
        try:
            stop = self._fit()
        except BaseException as error:
            with suppress(OSError):  # the disk may be what failed; what is told is the error itself
                self._status("failed", f"{type(error).__name__}: {error}")
            raise
        log.info(f"step {self.progress.num_updates}: {stop.reason}")
        self._status("finished" if stop.finished else "preempted", stop.reason)
        return stop

    def _fit(self) -> Stop:
        parts, feed = self.parts, self._feed()
        try:
            if self.start.checkpoint is not None:
                feed.restore(self.start.checkpoint)
            self._tell(feed)
            session = Session(parts.engine, self.start.state, self.progress, self.until, self.until)
            callbacks = self._callbacks(feed)
            restore_callbacks(self.start.facts, callbacks)
            groups: Any = feed.groups(self.progress.group)
            return fit(session, self.preemption.watched(groups) if parts.ranks.size == 1 else groups, callbacks)
        finally:
            feed.close()

    def _feed(self) -> Feed:
        self.evaluated = self.parts.eval_inputs() if self.parts.options.eval_on_test else []
        self.decoded = self.parts.decode_inputs() if self.parts.options.decode_during_train else []
        return Feed(self.parts, [*self.evaluated, *self.decoded])

    def _progress(self) -> Progress:
        saved = self.start.facts.get("progress")
        if saved is not None:
            return Progress.from_dict(saved)
        rows = next(iter(self.parts.spec.values())).shape[0] * self.parts.train.accumulate_batches
        progress = Progress(group_size=rows, total_steps=int(self.parts.train.num_train_steps))
        progress.num_updates = int(self.start.state["step"])  # not 0 when rules said to go on counting
        return progress

    def _callbacks(self, feed: Feed) -> list[Callback]:
        """Give the callbacks in their order: each reads what those before it left."""
        parts, train = self.parts, self.parts.train
        ledger = SkippingLedger(parts.engine, windows=(LOG, SUMMARY, EVALUATION), may_overflow=False)
        tables = [GrowingTable(self._table_path(name)) for name in (TRAIN_LOG, VALID_LOG)]
        after = self.progress.num_updates
        logging = EfficientLogging(
            tables[0], ledger, partial(means_of, parts), efficiency=parts.efficiency(),
            interval=train.log_train_output_interval_steps or train.summary_interval_steps,
        )  # fmt: skip
        tests = [EvalProgram(parts, data, "eval_test", after=after) for data in self.evaluated]
        decodes = [DecodeProgram(parts, data, "decode_test", after=after) for data in self.decoded]
        evaluating = Evaluating(parts, tests, feed, ledger=ledger, table=tables[1])
        decoding = Decoding(parts, decodes, ledger)
        saving = Saving(parts, feed, ledger, [logging])
        goes_on = not parts.options.exit_after_ondemand_checkpoint and parts.options.enable_checkpoint_saving
        callbacks: list[Callback] = [
            logging, Summarising(parts, ledger, after=after, texts=self._texts()), evaluating, decoding,
            StoppingEarly(parts, evaluating, decoding), StoppingTogether(self.preemption, saving if goes_on else None),
            CollectingGarbage(train.gc_interval_steps), Profiling(parts),
        ]  # fmt: skip
        if parts.options.enable_checkpoint_saving:
            callbacks.append(saving)
        if parts.options.plots and parts.is_first:
            callbacks.append(Plotting(partial(_draw, parts.folder), ledger.stopwatch))
        return callbacks

    def _table_path(self, name: str) -> str:
        """Give where a table goes: those of other processes than the first are kept in memory."""
        return io.join(self.parts.folder, name) if self.parts.is_first else f"memory://xdpx/{id(self)}/{name}"

    def _texts(self) -> dict[str, str]:
        """Give what TensorBoard tells of the job."""
        origins = self.start.provenance
        optimizer = {name: origin for name, origin in origins.items() if name.startswith("opt_state/")}
        model = {name: origin for name, origin in origins.items() if name not in optimizer}
        return {
            "Model": repr(self.parts.task.hparams.model),
            "Model vars provenance": job_folder.provenance_text(model),
            "Opt states provenance": job_folder.provenance_text(optimizer),
            "Total Num Params": str(num_params(self.start.state["params"])),
            "Global batch size": str(self.progress.group_size),
        }

    def _tell(self, feed: Feed) -> None:
        parts = self.parts
        if parts.is_first:
            job_folder.describe(parts)
            if self.start.checkpoint is None:
                text = job_folder.provenance_text(self.start.provenance)
                commit.write_text(io.join(parts.folder, job_folder.PROVENANCE), text)
        log.info(f"{type(parts.experiment).__name__}: {num_params(self.start.state['params']):,} parameters")
        log.info(f"mesh {mesh_text(parts.mesh)}, {parts.ranks.size} processes")
        if self.start.checkpoint is not None:
            log.info(f"continuing from {self.start.checkpoint}, input at {feed.state()}")
        log.info(f"training to step {self.until}, {self.progress.group_size} rows each")

    def _status(self, state: RunState, reason: str = "") -> None:
        if self.parts.is_first and is_master():
            number, best = self.progress.num_updates, self.progress.best_score
            name = type(self.parts.experiment).__name__
            status = Status(state, number, self.until, name, until=self.until, best_score=best, reason=reason)
            status.write(self.parts.folder)


def num_params(params: Any) -> int:
    """Count the numbers in the weights."""
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _draw(folder: str) -> None:
    from xdpx.reports.figures import draw_run

    draw_run(folder)
