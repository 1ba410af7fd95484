"""`x-train`, start to end: look at what is there, build, begin or continue, train, and leave everything told."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run, fingerprint
from xdpx.engines.base import Batch
from xdpx.logger import log
from xdpx.reports.growing_table import GrowingTable
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.runs import environment, listeners, resuming, run_folder
from xdpx.runs.assembly import Parts, build_parts, plan_of
from xdpx.runs.callbacks.evaluating import EVALUATION, Evaluating, score_of
from xdpx.runs.callbacks.hooks import Hooks
from xdpx.runs.callbacks.inspecting import Inspecting
from xdpx.runs.callbacks.logging import LOG, Logging
from xdpx.runs.callbacks.plotting import Plotting
from xdpx.runs.callbacks.saving import Saving, restore
from xdpx.runs.callbacks.stopping import Stopping, StopWhenAsked
from xdpx.runs.evaluation import evaluate
from xdpx.runs.ledger import Ledger
from xdpx.runs.parameters import TrainParameters
from xdpx.runs.rules import draw_figures, draw_gradients, evaluation_plan, save_policy, stop_rules
from xdpx.runs.snapshot import SNAPSHOT, write_changed_snapshot, write_snapshot
from xdpx.runs.status import STATUS_FILE, RunState, Status, read_status
from xdpx.trainer.loop import Callback, Session, Stop, fit
from xdpx.trainer.preemption import Preemption
from xdpx.trainer.progress import Progress
from xdpx.utils import commit, io


def train(run: Run) -> Stop:
    """Train as `run` says, and say why it ended. `Stop.finished` is false when a signal interrupted it.

    Raises:
        ConfigError: what was asked for cannot be done.
        OSError: the disk or the network failed, or another run owns save_dir.
        Diverged: the loss is no number any more.
    """
    if run.values.get("auto_suffix"):
        run = replace(run, values={**run.values, "save_dir": run_folder.with_suffix(run.values["save_dir"])})
    settings: TrainParameters = run.parameters("command")
    done = resuming.already_done(run, settings)
    if done:
        log.info(done)
        return Stop(done)
    refuse_if_occupied(run, settings)
    with Preemption() as preemption, _owned(settings.save_dir) as lease:
        checkpointer = Checkpointer(settings.save_dir, guard=lease.check)
        step = resuming.step_to_continue(run, settings, checkpointer)
        saved = resuming.load(checkpointer, step) if step is not None else {}
        parts = build_parts(run, settings, saved=saved.get("metadata", {}))
        return _Training(run, settings, parts, checkpointer, preemption).go(saved)


@contextmanager
def _owned(folder: str) -> Generator[commit.Lease]:
    """Own a folder; leave no empty one behind where there was none, when nothing came of it."""
    new = not io.exists(folder)
    try:
        with commit.Lease(folder) as lease:
            yield lease
    finally:
        if new and io.isdir(folder) and not io.listdir(folder):
            io.remove(folder)


def refuse_if_occupied(run: Run, settings: TrainParameters) -> None:
    """Raise ConfigError when save_dir holds something that this run may not continue, replace or join."""
    found = run_folder.content(settings.save_dir)
    if found == "something else" or (found == "run" and not (settings.resume or settings.overwrite)):
        raise ConfigError(run.source, [run_folder.occupied(settings.save_dir, found)])


@dataclass
class _Training:
    """What the steps of one `x-train` share."""

    run: Run
    settings: TrainParameters
    parts: Parts
    checkpointer: Checkpointer
    preemption: Preemption
    until: int = 0  # the last update of this stretch
    hooks: Hooks | None = None  # of the callbacks that the config lists

    def go(self, saved: Mapping[str, Any]) -> Stop:
        """Begin, or continue from a full state. An overwritten run goes only when this one works."""
        engine, progress = self.parts.engine, self._progress(saved)
        self.until = resuming.stage_end(
            read_status(self.settings.save_dir) if saved else None,
            now=progress.num_updates,
            total=self.parts.total,
            train_steps=self.settings.train_steps,
        )
        with log.early() as early:
            self._describe(progress, continued=bool(saved))
            state = engine.restore(saved["engine"]) if saved else engine.start(self.parts.seed)
            try_out(self.run, self.parts, state)
            self._claim_folder(progress, continued=bool(saved))
            early.open_file(io.join(self.settings.save_dir, self.settings.log_file) if self.settings.log_file else None)
            with self._status_told(progress):
                self._write_down(progress, continued=bool(saved))
                return self._fit(state, progress, saved)

    def _fit(self, state: object, progress: Progress, saved: Mapping[str, Any]) -> Stop:
        callbacks = self._callbacks()
        if saved:
            restore(saved, callbacks)
        session = Session(self.parts.engine, state, progress, self.until, self.parts.total)
        groups = self.parts.groups(progress)
        groups = groups if self.hooks is None else self.hooks.groups(groups)
        stop = fit(session, self.preemption.watched(groups), callbacks)
        self._tell_end(progress, stop)
        return stop

    def _progress(self, saved: Mapping[str, Any]) -> Progress:
        group_size = self.settings.batch_size * self.settings.update_freq
        if saved:
            progress = Progress.from_dict(saved["progress"])
            resuming.carry_over(progress, group_size=group_size)
        else:
            progress = Progress(group_size=group_size)
        return progress

    def _claim_folder(self, progress: Progress, *, continued: bool) -> None:
        """Put the first file of this run into save_dir; only then delete what an overwritten run left there."""
        folder = self.settings.save_dir
        refuse_if_occupied(self.run, self.settings)
        self._status("running", progress).write(folder)
        commit.sweep(folder)
        if not continued:
            left = run_folder.clear(folder, but=(STATUS_FILE,))
            if left:
                log.warning(f"{folder}: left alone what no run writes: {', '.join(left)}")

    def _status(self, state: RunState, progress: Progress, reason: str = "") -> Status:
        return Status(
            state, progress.num_updates, self.parts.total, fingerprint(self.run),
            until=self.until, train_steps=self.settings.train_steps, best_score=progress.best_score, reason=reason,
        )  # fmt: skip

    @contextmanager
    def _status_told(self, progress: Progress) -> Generator[None]:
        """Leave "failed" in status.json when training ends by an exception."""
        try:
            yield
        except BaseException as error:
            with suppress(OSError):  # the disk may be what failed; what is told is the error itself
                reason = f"{type(error).__name__}: {error}"
                self._status("failed", progress, reason).write(self.settings.save_dir)
            raise

    def _versions(self) -> dict[str, str]:
        return environment.versions((*environment.PACKAGES, *self.parts.engine.packages))

    def _describe(self, progress: Progress, *, continued: bool) -> None:
        for line in environment.commit_lines():
            log.info(line)
        log.info(", ".join(f"{name} {number}" for name, number in self._versions().items()))
        log.info(f"device {self.parts.engine.device_text}, seed {self.parts.seed}")
        if self.settings.fp16_backend == "apex":
            log.info("fp16_backend apex: torch's own mixed precision is used, and opt_level has no effect")
        if continued:
            place = f"step {progress.num_updates}, epoch {progress.epoch}, after {progress.group} updates of it"
            log.info(f"continuing at {place}")
        log.info(f"training to step {self.until} of {self.parts.total}, {progress.group_size} samples each")

    def _write_down(self, progress: Progress, *, continued: bool) -> None:
        """Leave what this run is: parameters, code, and what the trained model cannot do without."""
        folder, step = self.settings.save_dir, progress.num_updates if continued else None
        resuming.record_parameters(self.run, folder, step)
        if step is None or not io.exists(io.join(folder, SNAPSHOT)):
            write_snapshot(io.join(folder, SNAPSHOT), config=self.run.source)
        else:
            write_changed_snapshot(folder, step, config=self.run.source)
        for name in run_folder.RESOURCES:
            source = io.join(self.settings.data_dir, name)
            if io.isfile(source) and not io.exists(io.join(folder, name)):
                io.copy(source, io.join(folder, name))
        for name, text in self.parts.texts.items():
            commit.write_text(io.join(folder, name), text)

    def _callbacks(self) -> list[Callback]:
        """Give the callbacks in their order: each reads what those before it left."""
        parts, settings = self.parts, self.settings
        ledger = Ledger(parts.engine, windows=(LOG, EVALUATION), may_overflow=settings.fp16)
        tables = [GrowingTable(io.join(settings.save_dir, name)) for name in (TRAIN_LOG, VALID_LOG)]
        metrics = parts.train_metrics
        logging = Logging(tables[0], ledger, metrics, interval=settings.log_interval)
        evaluating = Evaluating(
            evaluation_plan(settings), self._held_out, parts.loss, table=tables[1], ledger=ledger, metrics=metrics
        )
        kept: list[Callback] = [logging, evaluating, Stopping(stop_rules(settings), logging)]
        saving = None
        if settings.save:
            policy = save_policy(settings)
            saving = Saving(self.checkpointer, policy, callbacks=kept, ledger=ledger, metadata=self._metadata)
        if settings.callbacks:
            self.hooks = self._listening(logging, evaluating, saving)
            kept.insert(2, self.hooks.middle)
        callbacks = [*kept, StopWhenAsked(self.preemption), *([saving] if saving else [])]
        if self.hooks is not None:
            callbacks = [self.hooks.first, *callbacks, self.hooks.last]
        if settings.inspect_gradient:
            callbacks.append(Inspecting(partial(draw_gradients, settings), ledger.stopwatch))
        return [*callbacks, Plotting(partial(draw_figures, settings), ledger.stopwatch)]

    def _held_out(self) -> Iterable[Batch]:
        """Give the batches to score on; whoever listens hears of each."""
        held_out = self.parts.held_out
        return held_out() if self.hooks is None else self.hooks.scored(held_out)()

    def _listening(self, logging: Logging, evaluating: Evaluating, saving: Saving | None) -> Hooks:
        """Make the callbacks that the config lists, and give what calls them."""
        from xdpx.runs.hook_arguments import RunArguments

        settings, data = self.settings, self.parts.data
        return Hooks(
            listeners.build(settings.callbacks), RunArguments(settings, self.run.values, self.parts.total),
            logging=logging, evaluating=evaluating, saving=saving, epoch_length=data.groups_in,
            processing_class=data.processor,
        )  # fmt: skip

    def _metadata(self) -> dict[str, Any]:
        """Give what says where a checkpoint comes from."""
        return {
            "versions": self._versions(),
            "device": self.parts.engine.device_text,
            "fingerprint": fingerprint(self.run),
            "seed": self.parts.seed,
            "total": self.parts.total,
            "plan": plan_of(self.run),
            "data": dict(self.parts.data.digests),
        }

    def _tell_end(self, progress: Progress, stop: Stop) -> None:
        log.info(f"step {progress.num_updates}: {stop.reason}")
        closing = self.parts.engine.closing_line()
        if closing:
            log.info(closing)
        if progress.best_score is not None:
            log.info(f"best {self.settings.major_metric} {progress.best_score:.6g}, at step {progress.best_step}")
        if not stop.finished:
            how = "run the same command" if self.settings.resume == "auto" else "set resume: true"
            log.info(f"to continue, {how}." if self.settings.save else "nothing was saved, because save is false.")
        self._status("finished" if stop.finished else "preempted", progress, stop.reason).write(self.settings.save_dir)


def try_out(run: Run, parts: Parts, state: object) -> None:
    """Score one batch, so that what is wrong with scoring is found now, and not after the first hour.

    Raises:
        ConfigError: the model does not take what the processor gives, or there is no such metric.
    """
    with closing(parts.held_out()) as batches:
        batch = next(batches)
    score_of(evaluate(parts.engine, state, [batch], parts.loss), run.values["major_metric"])
    log.take_accumulated()  # of this trial, which is no evaluation
    log.take_summaries()
