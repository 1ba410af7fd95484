"""Mode `train` from start to end: the initial state, the training loop, and the summary at the end."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from xdpx.checkpoints.folders import Ranks
from xdpx.checkpoints.memory_shares import MemoryShares
from xdpx.datasets.inputs.base_input import BaseInput
from xdpx.datasets.plan import Position
from xdpx.engines.spmd import world
from xdpx.engines.spmd.mesh import mesh_text
from xdpx.experiments.running import job_folder
from xdpx.experiments.running.callbacks import (
    SUMMARY,
    CollectingGarbage,
    Decoding,
    EfficientLogging,
    Evaluating,
    Profiling,
    Rounding,
    SkippingAccumulator,
    StoppingEarly,
    Summarising,
    means_of,
)  # fmt: skip
from xdpx.experiments.running.feeding import Feed
from xdpx.experiments.running.parts import Parts, ranks_for
from xdpx.experiments.running.programs import DecodeProgram, EvalProgram, Program
from xdpx.experiments.running.saving import Saving, restore_callbacks
from xdpx.experiments.running.starting import TRAINED_BY, Start, begin
from xdpx.experiments.running.vocabularies import refuse_changed_vocabulary
from xdpx.logger import log
from xdpx.reports.growing_table import GrowingTable
from xdpx.reports.metric_lines import METRICS_FILE, MetricLines
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.training.callbacks.evaluating import EVALUATION
from xdpx.training.callbacks.inspecting import Inspecting
from xdpx.training.callbacks.logging import LOG, Logging
from xdpx.training.callbacks.plotting import Plotting
from xdpx.training.callbacks.profiling import Profiling as UpdateProfiling
from xdpx.training.callbacks.stopping import StopWhenAsked
from xdpx.training.lifecycle import claimed, live
from xdpx.training.loop import Callback, Session, Stop
from xdpx.training.preemption import SIGNALS, Preemption
from xdpx.training.progress import Progress
from xdpx.training.status import Status
from xdpx.utils import commit, io
from xdpx.utils.decisions import SKIPPED_AT_MOST

if TYPE_CHECKING:
    from xdpx.trainer.hooks.adapting import CallbackAdapter

LOG_FILE = "log.txt"
_MOST_CHANGES = 20
_LONGEST_PLACE = 400
"""Maximum length of an input position in a line of the log."""


def train(parts: Parts) -> Stop:
    """Train an experiment to its last update, resuming the job in its folder. Called on all processes.

    Raises:
        ConfigError: the folder holds something else, or the checkpoint is of another model.
        OSError: the disk or the network failed, or another run owns the folder.
    """
    job_folder.refuse_another(parts, parts.folder)
    folder, ranks = parts.folder, ranks_for("life", parts.options)  # saving may talk in the background, separately
    callbacks = _user_callbacks(parts)

    def look() -> None:
        if job_folder.content(folder) == "run":
            job_folder.mend(folder)

    # With several processes, JAX must receive the preemption signal, which our handler would hide from it.
    signals = SIGNALS if ranks.size == 1 else ()
    with Preemption(signals) as preemption, claimed(folder, ranks, then=look) as claim, ExitStack() as opened:
        training = _Training(parts, ranks, preemption, opened, callbacks, _copies(parts))
        return live(training, claim, preemption=preemption, log_file=LOG_FILE, hang_seconds=parts.options.hang_seconds)


@dataclass
class _Training:
    """One training of an experiment, in the form that `training.lifecycle` expects.

    Attributes:
        ranks: communication of the processes, separate from that of saving.
        opened: closes the inputs at the end.
        user_callbacks: callbacks written for the Trainer, and trackers.
        copies: in-memory copies of the state; None for no copies.
        adapter: calls the user callbacks; None if there are none.
        start: the initial state.
        feed: the training input.
        changed: one line for each value of the experiment that differs from those recorded in the job so far.
        evaluated, decoded: inputs that are evaluated and decoded during training.
    """

    parts: Parts
    ranks: Ranks
    preemption: Preemption
    opened: ExitStack
    user_callbacks: Sequence[Any]
    copies: MemoryShares | None = None
    adapter: CallbackAdapter | None = None
    start: Start = field(init=False)
    feed: Feed = field(init=False)
    changed: list[str] = field(default_factory=list)
    evaluated: list[BaseInput] = field(default_factory=list)
    decoded: list[BaseInput] = field(default_factory=list)
    _preempted: world.Preempted = field(default_factory=world.Preempted)
    _id: str = field(default_factory=lambda: secrets.token_hex(8))
    _begun_at: int = field(init=False)

    def begin(self) -> Session | Stop:
        """Restore the newest checkpoint of the job, or initialise a new one."""
        parts, total = self.parts, int(self.parts.train.num_train_steps)
        until = min(total, parts.options.stop_at_step or total)
        self.start = begin(parts, until, self.copies)
        self.changed = [] if self.start.checkpoint is None else job_folder.changes(parts)
        progress = self._progress()
        self._begun_at = progress.num_updates
        if progress.num_updates >= until and not progress.cut_at:
            return Stop(f"all {until} updates were already done")
        reason = StoppingEarly.reason_in(self.start.facts)
        if reason and not self.changed and not progress.cut_at:
            return Stop(f"{reason}, before. To train on, give another early_stopping_fn, or None")
        return Session(parts.engine, self.start.state, progress, until, total)

    def status(self, session: Session) -> Status:
        """Return the status of the running job."""
        name, best = type(self.parts.experiment).__name__, session.progress.best_score
        return Status("running", session.number, session.total, name, until=session.until, best_score=best)

    def settle(self, session: Session) -> None:
        """Open the inputs, restore their positions, and write the description of the job."""
        options, start = self.parts.options, self.start
        self.evaluated = self.parts.eval_inputs() if options.eval_on_test else []
        self.decoded = self.parts.decode_inputs() if options.decode_during_train else []
        self.feed = Feed(self.parts, [*self.evaluated, *self.decoded])
        self.opened.callback(self.feed.close)
        if start.checkpoint is not None:
            refuse_changed_vocabulary(self.parts, self.feed.data, start.facts, start.checkpoint)
            self.feed.restore(start.checkpoint, start.inputs)
        if self.copies is not None:
            self.copies.begin(anew=start.checkpoint is None)
        if self.parts.is_first:
            self._write_down()
        self._tell(session)

    def groups(self, session: Session) -> Generator[tuple[Position, Any]]:
        """Return the batches of one update after another, passing the user callbacks' step events if there are any."""
        groups: Generator[tuple[Position, Any]] = self.preemption.watched(self.feed.groups(session.progress.group))
        return groups if self.adapter is None else self.adapter.groups(_until_left(groups, self.adapter))

    def end(self, session: Session, stop: Stop) -> None:
        """Log how far the training came."""
        log.info(f"step {session.number}: {stop.reason}")

    def _progress(self) -> Progress:
        saved = self.start.facts.get("progress")
        rows = self.parts.rows
        if saved is not None:
            return Progress.from_dict({**saved, "group_size": rows})
        progress = Progress(group_size=rows, total_steps=int(self.parts.train.num_train_steps))
        progress.num_updates = int(self.start.state["step"])  # not 0 if loading rules restored the step
        return progress

    def callbacks(self, session: Session) -> list[Callback]:
        """Return the callbacks in order: each may read what earlier ones computed."""
        parts, train, feed = self.parts, self.parts.train, self.feed
        # A short job that skipped all of its updates has failed, too.
        most = max(2, min(SKIPPED_AT_MOST, session.total))

        def hear(number: int) -> None:
            parts.engine.hear_nonfinite(number)  # the search for the cause is attached later

        accumulator = SkippingAccumulator(
            parts.engine.facts_to_host, windows=(LOG, SUMMARY, EVALUATION), most=most, hear=hear
        )
        lines = MetricLines(self._table_path(METRICS_FILE)) if parts.is_first else None
        tables = [
            GrowingTable(self._table_path(TRAIN_LOG), lines=lines, phase="train"),
            GrowingTable(self._table_path(VALID_LOG), lines=lines, phase="valid"),
        ]
        after = session.number
        interval = train.log_train_output_interval_steps or train.summary_interval_steps
        logging = EfficientLogging(
            tables[0], accumulator, partial(means_of, parts), efficiency=parts.efficiency(), interval=interval
        )
        tests = [EvalProgram(parts, data, "eval_test", after=after) for data in self.evaluated]
        decodes = [DecodeProgram(parts, data, "decode_test", after=after) for data in self.decoded]
        for program in chain[Program](tests, decodes):
            program.weights_of = self._weights_of
        evaluating = Evaluating(parts, tests, feed, accumulator=accumulator, table=tables[1])
        decoding = Decoding(parts, decodes, feed, accumulator)
        ends_not = not parts.options.exit_after_ondemand_checkpoint and parts.options.enable_checkpoint_saving
        self._end_at_signals(tests, decodes, at_all=not ends_not)
        stopping = StoppingEarly(parts, evaluating, decoding, self.ranks)
        kept: list[Callback] = [logging, stopping, evaluating, decoding]
        goes_on = self.start.checkpoint is not None
        saving = Saving(
            parts, feed, accumulator, kept, weights_of=self._weights_of, copies=self.copies, goes_on=goes_on
        )
        callbacks: list[Callback] = [
            logging, Summarising(parts, accumulator, after=after, texts=self._texts(session)), evaluating, decoding,
            stopping, StopWhenAsked(self.preemption, any_asked=self._any_asked, saving=saving if ends_not else None),
            CollectingGarbage(train.gc_interval_steps), Rounding(parts), Profiling(parts),
        ]  # fmt: skip
        saves = parts.options.enable_checkpoint_saving
        if self.user_callbacks:
            adapter = self.adapter = self._adapt(session, logging, evaluating, saving if saves else None)
            kept.append(adapter.middle)
            callbacks = [adapter.first, *callbacks[:4], adapter.middle, *callbacks[4:]]
        if parts.options.inspect_gradient and parts.is_first:
            callbacks.append(Inspecting(parts.folder, "png", accumulator.stopwatch, interval=interval))
        if parts.options.profile and parts.is_first:
            callbacks.append(UpdateProfiling(parts.folder))
        if saves:
            callbacks.append(saving)
        if self.adapter is not None:
            callbacks.append(self.adapter.last)
        if parts.options.plots and parts.is_first:
            callbacks.append(Plotting(partial(_draw, parts.folder), accumulator.stopwatch))
        restore_callbacks(self.start.facts, callbacks)
        return callbacks

    def _weights_of(self, step: int) -> str:
        """Return the id of the weights of a step: of this training, or of the one that it continues from."""
        before = self.start.facts.get(TRAINED_BY) if step == self._begun_at else None
        return str(before or self._id)

    def _any_asked(self, told: bool, number: int) -> bool:
        """Return whether to stop after an update: a single process gets the signal itself, several through JAX."""
        del number
        return told or self._preempted()

    def _end_at_signals(self, *each: Sequence[EvalProgram] | Sequence[DecodeProgram], at_all: bool) -> None:
        """Make a signal end evaluations and decodings before their next batch, on all processes."""

        def end_if_asked(step: int) -> None:
            if self._any_asked(self.preemption.ends_evaluation(), step):
                raise self.preemption.cut_short(step)

        for program in chain(*each) if at_all else ():
            program.before_batch = end_if_asked

    def _adapt(
        self, session: Session, logging: Logging, evaluating: Evaluating, saving: Saving | None
    ) -> CallbackAdapter:
        """Return the adapter that calls the user callbacks. An input has no epochs: the whole training is one."""
        from xdpx.experiments.running.user_callbacks import arguments_of
        from xdpx.trainer.hooks.adapting import CallbackAdapter

        return CallbackAdapter(
            self.user_callbacks, arguments_of(self.parts), logging=logging, evaluating=evaluating, saving=saving,
            epoch_length=lambda epoch: session.total, ranks=ranks_for("callbacks", self.parts.options),
        )  # fmt: skip

    def _table_path(self, name: str) -> str:
        """Return the path of a table; on other processes than the first, tables are kept in memory."""
        return io.join(self.parts.folder, name) if self.parts.is_first else f"memory://xdpx/{id(self)}/{name}"

    def _texts(self, session: Session) -> dict[str, str]:
        """Return the texts for TensorBoard."""
        origins = self.start.provenance
        optimizer = {name: origin for name, origin in origins.items() if name.startswith("opt_state/")}
        model = {name: origin for name, origin in origins.items() if name not in optimizer}
        return {
            "Model": repr(self.parts.task.hparams.model),
            "Model vars provenance": job_folder.provenance_text(model),
            "Opt states provenance": job_folder.provenance_text(optimizer),
            "Total Num Params": str(num_params(self.start.state["params"])),
            "Global batch size": str(session.progress.group_size),
        }

    def _write_down(self) -> None:
        """Write the description of the job, after logging how it differs from the previous one."""
        parts, start, changed = self.parts, self.start, self.changed
        for line in changed[:_MOST_CHANGES]:
            log.info(f"has changed, and applies from here on: {line}")
        if len(changed) > _MOST_CHANGES:
            log.info(f"... and {len(changed) - _MOST_CHANGES} more; {job_folder.MODEL_PARAMS} has them all")
        job_folder.describe(parts)
        if start.checkpoint is None:
            text = job_folder.provenance_text(start.provenance)
            commit.write_text(io.join(parts.folder, job_folder.PROVENANCE), text)

    def _tell(self, session: Session) -> None:
        parts = self.parts
        log.info(f"{type(parts.experiment).__name__}: {num_params(session.state['params']):,} parameters")
        log.info(f"mesh {mesh_text(parts.mesh)}, {parts.ranks.size} processes")
        if self.start.checkpoint is not None:
            place = str(self.feed.state(session.progress.group))  # the position of a user's input may be long
            shown = place if len(place) <= _LONGEST_PLACE else f"{place[:_LONGEST_PLACE]}..."
            log.info(f"continuing from {self.start.checkpoint}, input at {shown}")
        log.info(f"training to step {session.until}, {session.progress.group_size} rows each")


def _copies(parts: Parts) -> MemoryShares | None:
    """Return the in-memory copies of the state; None if they are not wanted."""
    interval = parts.options.memory_copy_interval
    if not interval or not parts.options.enable_checkpoint_saving:
        return None
    ranks, report = ranks_for("copies", parts.options), world.Talk("copies").report
    return MemoryShares(parts.folder, ranks, interval=interval, report=report)


def _user_callbacks(parts: Parts) -> list[Any]:
    """Return callbacks and trackers. The modules that these need are only imported if there are any."""
    experiment, options = parts.experiment, parts.options
    if not any((experiment.CALLBACKS, experiment.REPORT_TO, options.callbacks, options.report_to)):
        return []
    from xdpx.experiments.running.user_callbacks import user_callbacks_of

    return user_callbacks_of(parts)


def _until_left(groups: Generator[tuple[Position, Any]], adapter: CallbackAdapter) -> Generator[tuple[Position, Any]]:
    """Yield the groups until a callback ends the epoch, which is the only one."""
    with closing(groups):
        while not adapter.left:  # asked first: a group that is taken is counted as read, and would be trained on never
            item = next(groups, None)
            if item is None:
                return
            yield item


def num_params(params: object) -> int:
    """Return the number of parameters."""
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _draw(folder: str) -> None:
    from xdpx.reports.figures import draw_run

    draw_run(folder)
