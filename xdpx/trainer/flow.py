"""Fires the callback events around the loop: begin and end of epochs, steps, logging, evaluating, saving."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from math import isfinite, isnan
from typing import Any, Protocol

import torch
from torch import Tensor

from xdpx.datasets.plan import Position
from xdpx.engines.pytorch import collectives, nonfinite
from xdpx.engines.pytorch.update import LOSS
from xdpx.logger import log
from xdpx.reports.noted_pictures import write_pictures
from xdpx.reports.results import plain_numbers, speed_metrics, wanted_metric
from xdpx.reports.run_tables import beside
from xdpx.trainer.data.agreement import StreamOrders
from xdpx.trainer.data.plan import FOR_EVER
from xdpx.trainer.data.randomness import StateWatch
from xdpx.trainer.evaluation import Evaluation
from xdpx.trainer.hooks.state import TrainerControl, TrainerState
from xdpx.trainer.loss.model_loss import num_positional, takes
from xdpx.trainer.loss.windows import READ, WAITED, DataClock, over_ranks
from xdpx.trainer.parts import Midway, TrainerRun
from xdpx.trainer.stepping import FINITE_LOSS, Group
from xdpx.training.callbacks.evaluating import warn_of_nan
from xdpx.training.callbacks.logging import LOG
from xdpx.training.callbacks.stopping import StopWhenAsked
from xdpx.training.loop import Callback, Interrupted, Session, Step, Stop
from xdpx.training.preemption import Preemption
from xdpx.utils.decisions import is_better
from xdpx.utils.distributed_utils import any_process
from xdpx.utils.pulse import pulse

AGREE_EVERY = 8
"""Steps between two checks whether any rank was asked to stop: each check costs a collective."""


class FlowMethods(Protocol):
    """Methods of a Trainer that users override to change what happens between updates."""

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> tuple[list[Any], Any]:
        """Return the batches of the next update, and the number of targets in them."""
        ...

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log some metrics."""
        ...

    def store_flos(self) -> None:
        """Add the FLOPs since the last call to the state."""
        ...

    def _maybe_log_save_evaluate(
        self, tr_loss: Tensor, grad_norm: Any, model: Any, trial: Any, epoch: Any, ignore_keys_for_eval: Any,
        start_time: float, learning_rate: float | None = None,
    ) -> None: ...  # fmt: skip

    def _evaluate(self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = False) -> dict[str, float]: ...

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool: ...

    def _save_checkpoint(self, model: Any, trial: Any) -> None: ...

    def _load_rng_state(self, checkpoint: str) -> None: ...

    def _get_learning_rate(self) -> float: ...


class Flow(Callback):
    """Carries out what the callbacks set in `control`, in the order that callbacks for the original rely on.

    Args:
        methods: the methods that users override.
        run: holds the `control` that the callbacks set.
        trial: of a search; None outside of one.
        ignore_keys: outputs of the model that evaluations during training leave out.
        preemption: records signals to stop.
    """

    def __init__(
        self, methods: FlowMethods, run: TrainerRun, *, trial: object, ignore_keys: list[str] | None,
        preemption: Preemption,
    ) -> None:  # fmt: skip
        self._methods, self._run, self._trial, self._ignore_keys = methods, run, trial, ignore_keys
        self._preemption = preemption
        self._asked = StopWhenAsked(preemption, any_asked=self._any_asked) if preemption.listens else None
        self._filters = run.args.filters_losses
        own = type(methods)._maybe_log_save_evaluate
        self._hears_all = not own.__module__.startswith("xdpx.")  # an override is called also when nothing is due
        self._epoch: int | None = None  # 0-based; None between epochs
        self._has_random_state = self._has_place = False  # of the checkpoint that is continued
        self._stops_at_start = False
        self._interruption: Interrupted | None = None  # of the evaluation at the start
        self._data_clock = DataClock()
        self._watch: StateWatch | None = None  # where a signal may cut reading off
        self._orders = StreamOrders("train_dataset")
        self._counts_tokens = False  # at every step, where users' code may read their number
        self._guard: Callable[[], object]  # of the session

    def on_start(self, session: Session) -> None:
        """Fire `on_train_begin`, evaluate if `eval_on_start` is set, and end an epoch that was left complete."""
        run, self._guard = self._run, session.guard
        self._watch = StateWatch() if self._preemption.listens and self._preemption.alone else None
        run.preemption = self._preemption if self._preemption.listens and not self._hears_all else None
        # Users' code may read the state and set the control, and so differently on each process.
        told = [self._methods, *run.callback_handler.callbacks]
        own_code = any_process(any(not type(each).__module__.startswith("xdpx.") for each in told))
        self._counts_tokens = own_code and run.token_counter.mode != "no"
        run.asks_alike = run.parts.world.size == 1 or not own_code
        run.fire("on_train_begin")
        if run.args.eval_on_start:
            self._evaluate_at_start()
        run.accumulator.stopwatch.start()
        self._go_on_midway(session)
        left = run.continued.open_epoch if run.continued else None
        is_over = session.number >= session.until or self._stops_at_start
        if left is not None and (left < session.progress.epoch - 1 or is_over):
            self._restore_random_state()
            self._epoch = left
            self.end_epoch()
            self._stops_at_start = run.control.should_training_stop

    def _evaluate_at_start(self) -> None:
        """Evaluate before the first update. A new training that a signal ends here saves its start."""
        run = self._run
        midway = run.continued.midway if run.continued else None
        if midway is not None and not midway.at_start:
            return  # what was cut short evaluates the same weights
        if midway is not None:
            self._restore_random_state()
            run.scored = midway.scored
        try:
            with _ending_at_signals(run):
                self._methods._evaluate(self._trial, self._ignore_keys, skip_scheduler=True)
        except Interrupted as interruption:
            if run.continued is not None:
                raise
            run.midway, self._interruption = Midway(asdict(run.control), None, dict(run.scored), True), interruption

    def _go_on_midway(self, session: Session) -> None:
        """Do again what callbacks asked for at the step of the checkpoint, if a signal cut its evaluation short."""
        run = self._run
        midway = run.continued.midway if run.continued else None
        if run.continued is None or midway is None or midway.at_start:
            return
        self._restore_random_state()
        run.control, run.open_epoch = TrainerControl(**midway.control), run.continued.open_epoch
        self._epoch = run.open_epoch if midway.ended_epoch is None else midway.ended_epoch
        run.scored = midway.scored
        self._serve(ended_epoch=midway.ended_epoch)
        self._epoch = None
        self._stops_at_start = run.control.should_training_stop

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Record the facts of an update, fire `on_step_end`, and log, evaluate or save as the callbacks ask."""
        run, facts, place = self._run, step.facts, step.place
        more: dict[str, float] = {WAITED: self._data_clock.take()}
        if read := self._orders.take():
            more[READ] = read
        run.accumulator.add(step.number, {**facts, **more})
        loss = facts[LOSS]
        if self._filters:  # replace NaN or infinity by the mean of the other micro-batches, or else since the last log
            loss = torch.where(loss.isfinite(), loss, facts.get(FINITE_LOSS, loss))
            loss = torch.where(loss.isfinite(), loss, run.loss_sum / (step.number - run.logged_step))
        run.loss_sum += loss
        run.grad_norm, run.learning_rate, run.place = facts["grad_norm"], facts["learning_rate"], place
        run.state.global_step = step.number
        run.state.epoch = place.epoch - 1 + place.batches / run.plan.batches_per_epoch
        if self._counts_tokens:
            run.token_counter.settle(run.state, run.args.device)
        run.fire("on_step_end")
        run.agree()
        self._serve()
        interrupted = None if self._asked is None else self._asked.on_step(session, step)
        if interrupted is None and run.control.should_training_stop:
            return Stop(f"asked to stop after step {step.number}")
        return interrupted

    def on_end(self, session: Session, stop: Stop) -> None:
        """End the epoch that is still open; if the run was interrupted, save a checkpoint instead."""
        if stop.finished:
            self.end_epoch()
            return
        run = self._run
        if run.saved_step == session.number or (run.continued is not None and not run.has_read):
            return  # the latter began with a checkpoint, and has taken no update
        self._guard()
        if run.reading and run.before_read is not None:
            run.before_read[0].put_back()  # the resumed run reads this data anew
        self._methods._save_checkpoint(run.model_wrapped, self._trial)
        run.fire("on_save")

    def groups(self, loader: object, place: Position) -> Generator[tuple[Position, Group]]:
        """Yield the micro-batches of each update from `place` on, and fire the events of each epoch."""
        run = self._run
        if self._interruption is not None:
            raise self._interruption
        if self._stops_at_start:
            return
        for epoch in range(place.epoch - 1, run.plan.num_epochs):
            self._epoch = run.open_epoch = epoch
            run.fire("on_epoch_begin")
            found = False
            for reached, group in self._groups_of(
                loader, epoch, place if epoch == place.epoch - 1 else Position(epoch + 1)
            ):
                found = True
                yield reached, group
                if run.control.should_epoch_stop:
                    break
            if not found:
                _warn_of_no_data(run.state)
                run.control.should_training_stop = True
            self.end_epoch()
            if run.control.should_training_stop:
                return

    def _groups_of(self, loader: Any, epoch: int, place: Position) -> Iterator[tuple[Position, Group]]:
        """Yield the micro-batches of the updates of one epoch, from `place` on."""
        run, plan = self._run, self._run.plan
        iterator = self._data_clock.timed(self._orders.noted(loader, self._epoch_of(loader, epoch, place.batches)))
        batches, num_asked = place.batches, num_positional(self._methods.get_batch_samples)
        last, endless = plan.steps_per_epoch, plan.num_epochs == FOR_EVER
        for group in count(place.group):
            size = run.args.gradient_accumulation_steps  # a callback may change it
            last = last if size == plan.accumulation else FOR_EVER
            if group >= last or (batches >= plan.batches_per_epoch and not endless):
                return
            wanted = size if endless else min(size, plan.batches_per_epoch - batches)
            asked: tuple[Any, ...] = (iterator, wanted, run.parts.world.device)
            if self._watch is not None:
                run.before_read = self._watch.before(), loader.ahead, loader.collating.states()
            with self._preemption.waiting():
                run.reading = True  # also after a signal has cut it off
                samples, num_items = self._methods.get_batch_samples(*asked[:num_asked])
                run.reading, run.has_read = False, True
            if self._watch is not None:
                self._watch.after()
            if not samples:
                return
            batches += len(samples)
            yield Position(epoch + 1, group + 1, batches), Group(samples, num_items)

    def _epoch_of(self, loader: Any, epoch: int, taken: int) -> Iterator[Any]:
        """Begin an epoch (from 0) after `taken` batches; if a run is resumed, restore its random state first."""
        loader.set_epoch(epoch)
        if self._run.continued is not None and not self._has_place:
            self._has_place = True
            self._restore_random_state()
            loader.start_at(taken, self._run.continued.loader)
        batches: Iterator[Any] = loader.trained_on()
        return batches

    def _restore_random_state(self) -> None:
        """Restore the random state of the checkpoint that is continued, if there is one, once."""
        if self._run.continued is not None and not self._has_random_state:
            self._has_random_state = True
            self._methods._load_rng_state(self._run.continued.path)

    def end_epoch(self) -> None:
        """If an epoch is open, fire `on_epoch_end` and do what the callbacks ask for."""
        if self._epoch is not None:
            self._run.open_epoch = None
            self._run.fire("on_epoch_end")
            self._run.agree()
            self._serve(ended_epoch=self._epoch)
            self._epoch = None

    def _serve(self, *, ended_epoch: int | None = None) -> None:
        """Log, evaluate and save as callbacks ask; `ended_epoch`: whose end was just signalled, None after a step."""
        run, control = self._run, self._run.control
        if control.should_evaluate or control.should_save:
            self._guard()
        if self._hears_all or control.should_log or control.should_evaluate or control.should_save:
            told: tuple[Any, ...] = (
                run.loss_sum, run.grad_norm, run.model_wrapped, self._trial, self._epoch, self._ignore_keys,
                run.started,
            )  # fmt: skip
            serve = self._methods._maybe_log_save_evaluate
            more: dict[str, Any] = {"learning_rate": run.learning_rate} if takes(serve, "learning_rate") else {}
            try:
                with pulse.doing("logging, evaluating or saving"):
                    serve(*told[: num_positional(serve)], **more)
            except Interrupted:
                asked = {**asdict(run.control), "should_evaluate": True}  # also if some of several sets are done
                run.midway = Midway(asked, ended_epoch, dict(run.scored))
                raise

    def _any_asked(self, told: bool, number: int) -> bool:
        """Return whether any rank was asked to stop; the same on all ranks, since all take part in saving."""
        if self._run.parts.world.size == 1:
            return told
        if number % AGREE_EVERY:
            return False
        return bool(collectives.sum_over_ranks(torch.tensor(float(told), device=self._run.args.device)) > 0)


def log_save_evaluate(
    run: TrainerRun, methods: FlowMethods, facts: dict[str, Any], *, trial: object, ignore_keys: list[str] | None
) -> None:
    """Log, evaluate and save, in this order, each only if the control asks for it.

    Args:
        run: of the Trainer.
        methods: the methods that users override.
        facts: loss (sum over the updates since the last log), grad_norm, learning_rate; on the device.
        trial: of a search.
        ignore_keys: outputs of the model to leave out of an evaluation.
    """
    if run.control.should_log and run.state.global_step > run.logged_step:
        _log_step(run, methods, facts)
        run.agree()
    with run.accumulator.stopwatch.paused():
        if run.control.should_evaluate:
            run.token_counter.settle(run.state, run.args.device)  # an evaluation logs their number, too
            with _ending_at_signals(run):
                metrics = methods._evaluate(trial, ignore_keys)
            better = methods._determine_best_metric(metrics=metrics, trial=trial)
            if run.args.save_strategy == "best":
                run.control.should_save = better
            elif better and run.args.load_best_model_at_end:  # also between two of the regular saves
                run.control.should_save = True
            run.agree()
        if run.control.should_save:
            methods._save_checkpoint(run.model_wrapped, trial)
            run.fire("on_save")
            run.agree()


@contextmanager
def _ending_at_signals(run: TrainerRun) -> Generator[None]:
    """Let a signal end the evaluation inside; `run.scored` are then the sets of it that a resumed run leaves out."""
    scored, run.scored = run.scored, {}
    if run.preemption is None:
        yield
        return
    run.evaluation = Evaluation(run.exportable, run.preemption, run.state.global_step, scored)
    try:
        with run.evaluation.taking_back():
            yield
    except Interrupted:
        run.scored = run.evaluation.scored
        raise
    finally:
        run.evaluation = None


def _log_step(run: TrainerRun, methods: FlowMethods, facts: dict[str, Any]) -> None:
    """Log the mean loss of the updates since the last log, over all ranks. Here the host waits for the device."""
    args, state, window = run.args, run.state, run.accumulator.take(LOG)
    left_out = int(window.sums.get("left_out", 0))
    steps = state.global_step - run.logged_step - left_out
    total = float(collectives.mean_over_ranks(facts["loss"].detach().clone()))
    facts["loss"].zero_()
    rate = facts["learning_rate"]
    logs: dict[str, Any] = {"loss": total / steps if steps else float("nan")}
    finite = isfinite(total)
    if args.filters_losses:
        true = float(collectives.mean_over_ranks(torch.tensor(window.sums.get(LOSS, 0.0), device=args.device)))
        run.true_total += true
        finite = isfinite(true)
        logs |= {} if finite else {"loss_unfiltered": true / steps if steps else float("nan")}
    if facts["grad_norm"] is not None:
        logs["grad_norm"] = float(facts["grad_norm"])
    logs["learning_rate"] = methods._get_learning_rate() if rate is None else rate
    run.loss_total += total
    run.logged_step = state.global_step
    run.left_out += left_out
    methods.store_flos()
    run.token_counter.settle(state, args.device)
    tokens = None if run.token_counter.mode == "no" else state.num_input_tokens_seen - run.logged_tokens
    run.logged_tokens = state.num_input_tokens_seen
    if not run.parts.precision.skipped:  # else the loss scale left the update out, and goes down
        finite = finite and isfinite(logs.get("grad_norm", 0.0))
    if not finite:
        run.warn_of_nonfinite(f"loss or gradient is NaN or infinite, at step {state.global_step} or shortly before it")
    logs |= over_ranks(window, tokens)
    logs |= beside(logs, log.take_summaries())
    texts, pictures = log.take_notes()
    logs |= texts | write_pictures(str(args.output_dir), pictures, state.global_step)
    more = (run.started,) if takes(methods.log, "start_time") else ()
    methods.log(logs, *more)


def log_numbers(run: TrainerRun, logs: dict[str, float], started: float | None) -> None:
    """Add epoch and token counts to the metrics, append them to the log history, and fire `on_log`."""
    state = run.state
    if state.epoch is not None:
        logs["epoch"] = state.epoch
    if run.args.include_num_input_tokens_seen != "no":
        logs["num_input_tokens_seen"] = state.num_input_tokens_seen
        if started is not None:
            tokens = state.num_input_tokens_seen - run.tokens_before
            logs |= speed_metrics("train", started, num_tokens=tokens)
    if run.evaluation is not None:
        run.evaluation.counts()
    state.log_history.append(plain_numbers({**logs, "step": state.global_step}))  # a tensor would keep its graph
    run.fire("on_log", logs)


def take_best(run: TrainerRun, metrics: dict[str, float]) -> bool:
    """Record `metric_for_best_model`; return whether this is the best model so far. A tie is not better."""
    args, state = run.args, run.state
    if args.metric_for_best_model is None:
        return False
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"evaluate: returned {metrics!r:.60}, but metric_for_best_model is looked up in it. Let your override "
            "return the metrics, e.g. those of super().evaluate()."
        )
    value, best = wanted_metric(args.metric_for_best_model, metrics), state.best_metric
    if best is None:
        best = float("-inf") if args.greater_is_better else float("inf")
        state.best_metric = best
        if isnan(value):
            warn_of_nan("metric_for_best_model", str(args.metric_for_best_model))
    if not is_better(value, best, ascending=bool(args.greater_is_better)):
        return False
    if not nonfinite.all_finite(run.model.parameters()):
        run.warn_of_nonfinite(f"weights are NaN or infinite at step {state.global_step}")
        return False  # metrics of predicted labels do not show it
    state.best_metric = value
    if args.save_strategy != "no":
        state.best_global_step = state.global_step
    return True


def _warn_of_no_data(state: TrainerState) -> None:
    log.warning(
        "There seems not to be a single sample in your epoch_iterator, stopping training at step "
        f"{state.global_step}! This is expected if you're using an IterableDataset and set num_steps "
        f"({state.max_steps}) higher than the number of available samples: lower max_steps.",
        under="transformers.trainer",
    )
