"""`x-train` from start to end: inspect save_dir, build, begin or continue, train, and record the outcome."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from xdpx.checkpoints import background
from xdpx.checkpoints.checkpointer import Checkpointer, NoCheckpoint
from xdpx.checkpoints.folders import Ranks
from xdpx.checkpoints.memory_copies import MemoryCopies
from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run, fingerprint
from xdpx.config.registry import are_shipped
from xdpx.config.spmd_keys import SPMD
from xdpx.datasets.plan import Position
from xdpx.datasets.store import rebuilt
from xdpx.engines.base import Batch
from xdpx.inference import own_code
from xdpx.logger import log
from xdpx.reports.growing_table import GrowingTable, UnwrittenTable
from xdpx.reports.metric_lines import METRICS_FILE, MetricLines
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.reports.trackers.choosing import own_trackers
from xdpx.runs import changed_keys, devices, resuming, run_folder, side_files
from xdpx.runs.assembly import Parts, build_parts, label_names, plan_of
from xdpx.runs.library_folder import LibraryFolder
from xdpx.runs.parameters import TrainParameters
from xdpx.runs.rules import draw_figures, evaluation_plan, save_policy, stop_rules
from xdpx.runs.snapshot import SNAPSHOT, write_changed_snapshot, write_snapshot
from xdpx.tasks.scoring import evaluate
from xdpx.trainer.hooks import listed
from xdpx.trainer.hooks.adapting import CallbackAdapter
from xdpx.training import environment
from xdpx.training.accumulation import LOOKED_AT, MetricAccumulator
from xdpx.training.callbacks.estimating import Estimating
from xdpx.training.callbacks.evaluating import EVALUATION, Evaluating, score_of
from xdpx.training.callbacks.inspecting import Inspecting
from xdpx.training.callbacks.logging import LOG, Logging
from xdpx.training.callbacks.plotting import Plotting
from xdpx.training.callbacks.profiling import Profiling
from xdpx.training.callbacks.saving import Saving, restore
from xdpx.training.callbacks.stopping import Stopping, StopWhenAsked
from xdpx.training.lifecycle import Unclaimed, claimed, live
from xdpx.training.loop import Callback, Session, Stop
from xdpx.training.preemption import Preemption
from xdpx.training.progress import Progress
from xdpx.training.status import STATUS_FILE, Status, read_status
from xdpx.utils import commit, io
from xdpx.utils.distributed_utils import any_process, by_the_first, get_world_size, is_master
from xdpx.utils.progress import format_bytes
from xdpx.utils.seeds import states


def train(run: Run) -> Stop:
    """Train as `run` says, and return why it ended. `Stop.finished` is false when a signal interrupted it.

    Raises:
        ConfigError: the settings cannot be carried out.
        OSError: the disk or the network failed, or another run owns save_dir.
        Diverged: the loss or the gradient norm is NaN or infinite.
    """
    settings: TrainParameters = run.parameters("command")
    ranks = devices.join(settings)
    if not settings.auto_suffix:
        return _train_in(settings.save_dir, run, ranks)
    names = run_folder.with_suffix(settings.save_dir)
    while True:
        folder = by_the_first(lambda: next(names))
        try:
            return _train_in(folder, replace(run, values={**run.values, "save_dir": folder}), ranks, new=True)
        except (commit.LeaseHeld, Unclaimed, _Taken) as error:
            log.info(f"{error} Trying the next name.")


class _Taken(OSError):
    """Raised if another run has claimed a folder since it was found free."""


def _train_in(folder: str, run: Run, ranks: Ranks, *, new: bool = False) -> Stop:
    """Train in a folder; with `new`, raise _Taken before doing anything if another run has claimed it meanwhile."""
    settings: TrainParameters = run.parameters("command")
    if not new:
        done = by_the_first(lambda: resuming.already_done(run, settings))
        if done:
            if is_master():
                own_code.warn_of_changes(folder, [run], so=own_code.SO_OF_FINISHED)
            log.info(done)
            return Stop(done)
        by_the_first(lambda: refuse_if_occupied(run, settings))
        if settings.resume:
            run = changed_keys.in_its_own_unit(run, folder)

    def look() -> None:
        found = run_folder.content(folder)
        if new and found != "nothing":
            raise _Taken(f"{folder}: another run took it first.")
        if found == "run":
            side_files.mend(folder)

    with Preemption() as preemption, claimed(folder, ranks, then=look) as claim:
        training = _Training(run, settings, Checkpointer(folder, writes=is_master()), preemption, ranks)
        if settings.save and settings.memory_copy_interval:
            training.copies = MemoryCopies(folder, ranks, interval=settings.memory_copy_interval)
        return live(
            training, claim, preemption=preemption, log_file=settings.log_file, hang_seconds=settings.hang_seconds
        )


def refuse_if_occupied(run: Run, settings: TrainParameters) -> None:
    """Raise ConfigError when save_dir holds something that this run may not continue, replace or join."""
    found = run_folder.content(settings.save_dir)
    if found == "something else" or (found == "run" and not (settings.resume or settings.overwrite)):
        raise ConfigError(run.source, [run_folder.occupied(settings.save_dir, found)])


@dataclass
class _Training:
    """An `x-train` run, implementing the `Training` protocol of `training.lifecycle`."""

    run: Run
    settings: TrainParameters
    checkpointer: Checkpointer
    preemption: Preemption
    ranks: Ranks
    saved: Mapping[str, Any] = field(default_factory=dict)  # the full state that it continues from
    changed: changed_keys.Changes = field(default_factory=dict)  # since that was saved
    judging: Sequence[str] = ()  # what of it makes scores incomparable with earlier ones
    copies: MemoryCopies | None = None  # of its state; None if they are not wanted
    adapter: CallbackAdapter | None = None  # of the callbacks that the config lists
    parts: Parts = field(init=False)

    def begin(self) -> Session:
        """Build everything, begin or restore a full state, and score one batch so that faults show now."""
        run, settings = self.run, self.settings
        if self.copies is not None and settings.resume:
            self.copies.bring_back()
        step = by_the_first(lambda: resuming.step_to_continue(run, settings, self.checkpointer))
        saved = resuming.load(self.checkpointer, step) if step is not None else {}
        by_the_first(lambda: side_files.bring_back(settings.save_dir, saved.get("metadata", {}).get("texts", {})))
        changed = self.changed = changed_keys.changes(run, saved, settings.save_dir) if saved else {}
        if saved:
            changed_keys.refuse(run, changed, settings.save_dir)
        progress = resuming.progress_of(saved, group_size=settings.batch_size * settings.update_freq)
        parts = self.parts = build_parts(run, settings, progress=progress, saved=saved.get("metadata", {}))
        changed_keys.refuse_finished(changed, progress, parts.total)
        if {"loss", "task"} & changed.keys():
            saved = changed_keys.without_facts(saved)
        others = rebuilt(settings.data_dir, saved.get("metadata", {}).get("scored", {}))
        self.judging = [*changed_keys.judges(run, changed), *others]
        if self.judging:
            saved = changed_keys.without_scores(saved)
        self.saved, engine = saved, parts.engine
        until = resuming.stage_end(
            by_the_first(lambda: read_status(settings.save_dir) if saved else None),
            now=progress.num_updates,
            total=parts.total,
            train_steps=settings.train_steps,
        )
        self._describe(progress, until)
        state = engine.restore(saved["engine"]) if saved else engine.start(parts.seed)
        if saved and not engine.is_finite(state):
            raise NoCheckpoint(resuming.not_finite(settings.save_dir, progress.num_updates))
        changed_keys.refuse_overruled(run, changed, parts.texts)
        try_out(run, parts, state)
        by_the_first(lambda: refuse_if_occupied(run, settings))
        return Session(engine, state, progress, until, parts.total)

    def status(self, session: Session) -> Status:
        """Return the current status, as of a running training."""
        return Status(
            "running", session.number, session.total, fingerprint(self.run), until=session.until,
            train_steps=self.settings.train_steps, best_score=session.progress.best_score,
            data={**self.parts.data.digests, **self.parts.scored},
        )  # fmt: skip

    def settle(self, session: Session) -> None:
        """Delete the files of an overwritten run, now that this one works; then write parameters and code."""
        by_the_first(lambda: self._settle(session))
        if self.copies is not None:
            self.copies.begin(anew=not self.saved)

    def _settle(self, session: Session) -> None:
        folder = self.settings.save_dir
        commit.sweep(folder)
        if not self.saved:
            left = run_folder.clear(folder, but=(STATUS_FILE,))
            if left:
                log.warning(f"{folder}: kept what no run writes: {', '.join(left)}")
        self._write_down(session.number if self.saved else None)

    def callbacks(self, session: Session) -> list[Callback]:
        """Return the callbacks in their order: each may read results of those before it."""
        callbacks = self._callbacks()
        if self.saved:
            restore(self.saved, callbacks)
        self.saved = {}  # its arrays are the engine's by now, and need not be kept twice
        return callbacks

    def groups(self, session: Session) -> Generator[tuple[Position, Any]]:
        """Return the groups of batches; the adapter, if any, sends callbacks the events of epochs and steps."""
        groups = self.preemption.watched(self.parts.groups(session.progress))
        return groups if self.adapter is None else self.adapter.groups(groups)

    def end(self, session: Session, stop: Stop) -> None:
        """Log how far training came, and how to continue."""
        progress = session.progress
        log.info(f"training ended at step {progress.num_updates}: {stop.reason}")
        closing = self.parts.engine.closing_line()
        if closing:
            log.info(closing)
        if progress.best_score is not None:
            log.info(f"best {self.settings.major_metric} {progress.best_score:.6g}, at step {progress.best_step}")
        if not stop.finished:
            how = "run the same command" if self.settings.resume == "auto" else "set resume: true"
            log.info(f"to continue, {how}." if self.settings.save else "nothing was saved, because save is false.")

    def _versions(self) -> dict[str, str]:
        return environment.versions((*environment.PACKAGES, *self.parts.engine.packages))

    def _describe(self, progress: Progress, until: int) -> None:
        for line in environment.commit_lines():
            log.info(line)
        log.info(", ".join(f"{name} {number}" for name, number in self._versions().items()))
        log.info(f"device {self.parts.engine.device_text}, seed {self.parts.seed}")
        if self.settings.fp16_backend == "apex":
            log.info("fp16_backend apex: torch's own mixed precision is used, and opt_level has no effect")
        if self.saved:
            place = f"step {progress.num_updates}, epoch {progress.epoch}, after {progress.group} updates of it"
            log.info(f"continuing at {place}")
            if self.changed:
                told = "\n".join(f"  {line}" for line in changed_keys.lines(self.run, self.changed))
                log.info(f"parameters that differ from the checkpoint; they apply from here on:\n{told}")
                data = self.parts.data
                length = data.groups_in(progress.epoch)
                changed_keys.warn_of_order(self.run, self.changed, progress, length=length, shards=len(data.shards))
            if self.judging and progress.best_score is not None:
                told = f"{', '.join(self.judging)} changed: scores cannot be compared, so the best score is reset"
                # A key was changed on purpose, and is listed above; a file may have been without a thought of this run.
                if set(self.judging) <= self.changed.keys():
                    log.info(told)
                elif is_master():
                    log.warning(told)
                progress.forget_best()
        log.info(f"training to step {until} of {self.parts.total}, {progress.group_size} samples each")

    def _write_down(self, step: int | None) -> None:
        """Write parameters, code, and the files that the trained model needs.

        Args:
            step: the step it continues from; None for a new run.
        """
        folder = self.settings.save_dir
        resuming.record_parameters(self.run, folder, step)
        if step is None or not io.exists(io.join(folder, SNAPSHOT)):
            write_snapshot(io.join(folder, SNAPSHOT), config=self.run.source)
        else:
            write_changed_snapshot(folder, step, config=self.run.source)
        kept = side_files.keep(folder, self.settings.data_dir)
        for name, text in self.parts.texts.items():
            commit.write_text(io.join(folder, name), text)
        side_files.seal(folder, [*kept, *self.parts.texts])

    def _callbacks(self) -> list[Callback]:
        parts, settings = self.parts, self.settings
        tolerated = (
            LOOKED_AT if settings.nonfinite_steps == "keep" else ("grad_norm",) if settings.precision == "fp16" else ()
        )
        accumulator = MetricAccumulator(parts.engine.facts_to_host, windows=(LOG, EVALUATION), tolerated=tolerated)
        tables = self._tables()
        metrics = parts.train_metrics
        logging = Logging(tables[0], accumulator, metrics, interval=settings.log_interval)
        evaluating = Evaluating(
            evaluation_plan(settings), self._held_out, parts.loss, table=tables[1], accumulator=accumulator,
            metrics=metrics, labels=label_names(settings.data_dir), preemption=self.preemption,
        )  # fmt: skip
        kept: list[Callback] = [
            logging,
            evaluating,
            Stopping(stop_rules(settings, loss_of_any_size=parts.loss.of_any_size), logging),
        ]
        saving = None
        if settings.save:
            policy = save_policy(settings)
            saving = Saving(
                self.checkpointer, policy, callbacks=kept, accumulator=accumulator, metadata=self._metadata,
                values=changed_keys.lasting(self.run.values), background=self._background(), copies=self.copies,
            )  # fmt: skip
        user_callbacks = [*own_trackers(settings.report_to), *listed.build(settings.callbacks)]
        if user_callbacks:
            self.adapter = self._adapt(user_callbacks, logging, evaluating, saving)
            kept.insert(2, self.adapter.middle)
        callbacks = [*kept, StopWhenAsked(self.preemption), *([saving] if saving else [])]
        if self.adapter is not None:
            callbacks = [self.adapter.first, *callbacks, self.adapter.last]
        if not is_master():
            return callbacks
        if saving is not None and settings.engine != SPMD:
            callbacks.append(
                LibraryFolder(
                    settings.save_dir, settings.data_dir, loss=parts.loss, labels=label_names(settings.data_dir),
                    processor=parts.data.processor,
                )
            )  # fmt: skip
        if settings.inspect_gradient:
            watch = accumulator.stopwatch
            callbacks.append(Inspecting(settings.save_dir, settings.figext, watch, interval=settings.log_interval))
        if settings.profile:
            callbacks.append(Profiling(settings.save_dir, settings.figext))
        callbacks.append(Estimating(peak_memory))
        if settings.plots:
            callbacks.append(Plotting(partial(draw_figures, settings), accumulator.stopwatch))
        return callbacks

    def _tables(self) -> list[GrowingTable]:
        """Return the logs of training and of evaluations, whose rows also go to metrics.jsonl."""
        if not is_master():
            return [UnwrittenTable(), UnwrittenTable()]
        folder = self.settings.save_dir
        lines = MetricLines(io.join(folder, METRICS_FILE))
        return [
            GrowingTable(io.join(folder, TRAIN_LOG), lines=lines, phase="train"),
            GrowingTable(io.join(folder, VALID_LOG), lines=lines, phase="valid"),
        ]

    def _background(self) -> background.Background | None:
        """Return the background writer of states; None unless the settings ask for it."""
        return background.Background() if self.settings.save_in_background else background.asked_for()

    def _held_out(self) -> Iterable[Batch]:
        """Return the batches to evaluate; callbacks get an event for each."""
        held_out = self.parts.held_out
        return held_out() if self.adapter is None else self.adapter.scored(held_out)()

    def _adapt(
        self, user_callbacks: Sequence[Any], logging: Logging, evaluating: Evaluating, saving: Saving | None
    ) -> CallbackAdapter:
        """Return the adapter that calls the trackers and the callbacks in the config."""
        from xdpx.runs.callback_arguments import RunArguments

        settings, data = self.settings, self.parts.data
        return CallbackAdapter(
            user_callbacks, RunArguments(settings, self.run.values, self.parts.total),
            logging=logging, evaluating=evaluating, saving=saving, epoch_length=data.groups_in,
            processing_class=data.processor, ranks=self.ranks,
        )  # fmt: skip

    def _metadata(self) -> dict[str, Any]:
        """Return the metadata that tells where a checkpoint comes from."""
        return {
            "versions": self._versions(),
            "device": self.parts.engine.device_text,
            "fingerprint": fingerprint(self.run),
            "seed": self.parts.seed,
            "total": self.parts.total,
            "plan": plan_of(self.run),
            "data": dict(self.parts.data.digests),
            "scored": dict(self.parts.scored),
            "texts": dict(self.parts.texts),
        }


def peak_memory() -> str:
    """Return the peak memory of this process as text: of its GPU if it uses one, else of the host."""
    from xdpx.engines.pytorch.memory import peak_bytes

    count, where = peak_bytes()
    return f"{format_bytes(count)} of {where}memory"


def try_out(run: Run, parts: Parts, state: object) -> None:
    """Score one batch, so that a fault in scoring shows now, and not at the first evaluation.

    Raises:
        ConfigError: the model does not accept the processor's batches, or the metric does not exist.
    """
    with closing(parts.held_out()) as batches:
        first = list(islice(batches, 1))  # none if there are more processes than batches
    before = states()
    score_of(evaluate(parts.engine, state, first, parts.loss), run.values["major_metric"])
    drawn = run.values["engine"] != SPMD and any_process(states() != before)
    if drawn and not any_process(not first):  # sharded weights are gathered by all processes, or by none
        _warn_of_chance(parts, state, first[0])
    own = not type(parts.loss).__module__.startswith("xdpx.")
    if own and first and run.values["engine"] != SPMD and get_world_size() == 1:
        _warn_of_mean(parts, state, first[0])
    log.take_accumulated()  # discards what this trial recorded
    log.take_summaries()


def _warn_of_chance(parts: Parts, state: Any, batch: Batch) -> None:
    """Warn of a user's network whose scores differ each time; asked for where scoring has drawn random numbers."""
    from xdpx.engines.pytorch.tracing_back import buffers_kept  # imports torch, which --dry avoids
    from xdpx.inference.mixed_rows import warn_of_chance

    engine, task = parts.engine, state.task
    own = [type(part).__name__ for part in (task.model, parts.loss, task) if not are_shipped(part)]
    if own:
        with buffers_kept(task.model):
            warn_of_chance(lambda each: engine.predictions_to_host(engine.score(state, each)), batch, what=own[0])


def _warn_of_mean(parts: Parts, state: object, batch: Batch) -> None:
    """Warn of a user's loss that gives a mean as its sum."""
    from xdpx.losses.sums import gives_mean  # imports torch, which --dry avoids

    model, _ = parts.engine.model_and_optimizer(state)
    if gives_mean(parts.loss, model, batch):
        log.warning(
            f"loss: {type(parts.loss).__name__} returns a mean and the number of rows, by which it is "
            "divided again: loss, gradients and clip_norm are off by that factor. Return a sum (reduction='sum') and "
            "the number of rows; or a mean and the count 1."
        )
