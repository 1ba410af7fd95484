"""Speaks the events of the hooks around the loop: begin and end of epochs, steps, logging, evaluating, saving."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from math import isfinite
from typing import Any, cast

import torch

from xdpx.dataloaders.feeding import open_epoch
from xdpx.engines.pytorch import collectives
from xdpx.logger import log
from xdpx.optimizers.lr_schedulers.named import steps_on_metric
from xdpx.reports.results import speed_metrics, wanted_metric
from xdpx.trainer.loop import Callback, Session, Step, Stop
from xdpx.trainer.preemption import Preemption, interruption
from xdpx.trainer.stepping import Place, Window
from xdpx.utils.decisions import is_better

AGREE_EVERY = 8
"""Steps between two questions whether any rank was told to stop: asking costs a collective."""


class Flow(Callback):
    """Does what the hooks decide, in the order that callbacks written for the original rely on.

    Args:
        trainer: the Trainer; its `control` is what the hooks decide with.
        trial: of a search, None outside.
        ignore_keys: outputs of the model that evaluations during training leave out.
        preemption: notes a signal, None when signals are not our business.
    """

    def __init__(
        self, trainer: Any, *, trial: Any, ignore_keys: list[str] | None, preemption: Preemption | None
    ) -> None:
        self.trainer, self.trial, self.ignore_keys = trainer, trial, ignore_keys
        self.preemption = preemption
        self.interrupted: Stop | None = None
        self._epoch: int | None = None  # 0-based; None between epochs
        self._grad_norm: Any = None
        self._learning_rate: float | None = None

    def on_start(self, session: Session) -> None:
        """Begin training; evaluate first where that is asked for."""
        self._fire("on_train_begin")
        if self.trainer.args.eval_on_start:
            self.trainer._evaluate(self.trial, self.ignore_keys, skip_scheduler=True)
        self.trainer.window.begin(self.trainer.state.num_input_tokens_seen)

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Take over the facts of an update, tell the hooks, and do what they ask for."""
        trainer, facts, place = self.trainer, step.facts, cast(Place, step.place)
        trainer._tr_loss += facts["loss"]
        self._grad_norm, self._learning_rate = facts["grad_norm"], facts["learning_rate"]
        state = trainer.state
        state.global_step = step.number
        state.epoch = place.epoch - 1 + place.batches / trainer.plan.batches_per_epoch
        trainer.control = trainer.callback_handler.on_step_end(trainer.args, state, trainer.control)
        self._serve()
        self.interrupted = self._interruption(step.number)
        if self.interrupted is None and trainer.control.should_training_stop:
            return Stop(f"asked to stop after step {step.number}")
        return self.interrupted

    def on_end(self, session: Session, stop: Stop) -> None:
        """End the epoch that is still open; save a run that was interrupted."""
        if stop.finished:
            self.end_epoch()
        else:
            self.interrupted = stop
            if self.trainer.saved_step != session.number:
                self.trainer._save_checkpoint(self.trainer.model_wrapped, self.trial)
                self._fire("on_save")

    def groups(self, loader: Any, place: Place) -> Generator[tuple[Place, Window]]:
        """Yield the windows of micro-batches from `place` on, epoch after epoch, with the events of each epoch."""
        trainer = self.trainer
        for epoch in range(place.epoch - 1, trainer.plan.num_epochs):
            self._epoch = epoch
            self._fire("on_epoch_begin")
            found = False
            for reached, window in self._windows(
                loader, epoch, place if epoch == place.epoch - 1 else Place(epoch + 1)
            ):
                found = True
                yield reached, window
                if trainer.control.should_epoch_stop:
                    break
            if not found:
                _warn_of_no_data(trainer)
                trainer.control.should_training_stop = True
            self.end_epoch()
            if trainer.control.should_training_stop:
                return

    def _windows(self, loader: Any, epoch: int, place: Place) -> Iterator[tuple[Place, Window]]:
        """Yield the windows of one epoch, from `place` on."""
        trainer, plan, size = self.trainer, self.trainer.plan, self.trainer.args.gradient_accumulation_steps
        iterator = trainer.window.waiting(open_epoch(trainer, loader, epoch, place.batches))
        batches = place.batches
        for group in range(place.group, plan.steps_per_epoch):
            wanted = min(size, plan.batches_per_epoch - batches)
            samples, num_items = trainer.get_batch_samples(iterator, wanted, trainer.world.device)
            if not samples:
                return
            batches += len(samples)
            yield Place(epoch + 1, group + 1, batches), Window(samples, num_items)

    def end_epoch(self) -> None:
        """Tell the hooks that an epoch is over, if one is open, and do what they ask for."""
        if self._epoch is not None:
            self._fire("on_epoch_end")
            self._serve()
            self._epoch = None

    def _fire(self, event: str) -> None:
        trainer = self.trainer
        trainer.control = getattr(trainer.callback_handler, event)(trainer.args, trainer.state, trainer.control)

    def _serve(self) -> None:
        control = self.trainer.control
        if control.should_log or control.should_evaluate or control.should_save:
            self.trainer._maybe_log_save_evaluate(
                self.trainer._tr_loss, self._grad_norm, self.trainer.model_wrapped, self.trial, self._epoch,
                self.ignore_keys, self.trainer.started, learning_rate=self._learning_rate,
            )  # fmt: skip

    def _interruption(self, number: int) -> Stop | None:
        """Give why to stop here; all ranks agree, for all must take part in the saving."""
        if self.preemption is None:
            return None
        received = self.preemption.received
        if self.trainer.world.size > 1:
            if number % AGREE_EVERY:
                return None
            flag = torch.tensor(float(received is not None), device=self.trainer.args.device)
            received = (received or "a signal on another rank") if collectives.sum_over_ranks(flag) > 0 else None
        return interruption(received, number)


def log_save_evaluate(trainer: Any, facts: dict[str, Any], *, trial: Any, ignore_keys: list[str] | None) -> None:
    """Log, evaluate and save, as far as `trainer.control` asks for it, in this order.

    Args:
        trainer: the Trainer.
        facts: loss (sum over the updates since the last log), grad_norm, learning_rate; on the device.
        trial: of a search.
        ignore_keys: outputs of the model to leave out of an evaluation.
    """
    if trainer.control.should_log and trainer.state.global_step > trainer._globalstep_last_logged:
        _log_step(trainer, facts)
    with trainer.window.resting():
        _evaluate_and_save(trainer, trial, ignore_keys)


def _evaluate_and_save(trainer: Any, trial: Any, ignore_keys: list[str] | None) -> None:
    args = trainer.args
    if trainer.control.should_evaluate:
        metrics = trainer._evaluate(trial, ignore_keys)
        better = trainer._determine_best_metric(metrics=metrics, trial=trial)
        if args.save_strategy == "best":
            trainer.control.should_save = better
        elif better and args.load_best_model_at_end:  # also between two of the regular saves
            trainer.control.should_save = True
    if trainer.control.should_save:
        trainer._save_checkpoint(trainer.model_wrapped, trial)
        trainer.control = trainer.callback_handler.on_save(args, trainer.state, trainer.control)


def _log_step(trainer: Any, facts: dict[str, Any]) -> None:
    """Log the mean loss of the updates since the last log, over all ranks. Here the host waits for the device."""
    state, window = trainer.state, trainer.window
    steps = state.global_step - trainer._globalstep_last_logged - window.skipped
    total = float(collectives.mean_over_ranks(facts["loss"].detach().clone()))
    facts["loss"].zero_()
    rate = facts["learning_rate"]
    logs = {"loss": total / steps if steps else float("nan")}
    if facts["grad_norm"] is not None:
        logs["grad_norm"] = float(facts["grad_norm"])
    logs["learning_rate"] = trainer._get_learning_rate() if rate is None else rate
    trainer._total_loss_scalar += total
    trainer._globalstep_last_logged = state.global_step
    trainer.store_flos()
    trainer.token_counter.settle(state, trainer.args.device)
    tokens = None if trainer.token_counter.mode == "no" else state.num_input_tokens_seen
    logs |= window.take(tokens, finite=isfinite(total + logs.get("grad_norm", 0.0)))
    more = (trainer.started,) if trainer.loss_calls.log_takes_start else ()
    trainer.log(logs, *more)


def log_numbers(trainer: Any, logs: dict[str, float], started: float | None) -> None:
    """Add epoch and tokens to some numbers, note them in the history, and hand them to the callbacks."""
    state, args = trainer.state, trainer.args
    if state.epoch is not None:
        logs["epoch"] = state.epoch
    if args.include_num_input_tokens_seen != "no":
        logs["num_input_tokens_seen"] = state.num_input_tokens_seen
        if started is not None:
            tokens = state.num_input_tokens_seen - trainer.tokens_before
            logs |= speed_metrics("train", started, num_tokens=tokens)
    state.log_history.append({**logs, "step": state.global_step})
    trainer.control = trainer.callback_handler.on_log(args, state, trainer.control, logs)


def evaluate_in_training(trainer: Any, trial: Any, ignore_keys: list[str] | None, skip_scheduler: bool) -> Any:
    """Evaluate, report to a search, and drive a schedule that follows the evaluation."""
    try:
        metrics = trainer.evaluate(ignore_keys=ignore_keys)
    except (torch.OutOfMemoryError, MemoryError) as error:
        error.add_note("This was an evaluation: lower per_device_eval_batch_size (auto_find_batch_size does not).")
        raise
    trainer._report_to_hp_search(trial, trainer.state.global_step, metrics)
    if steps_on_metric(trainer.lr_scheduler) and not skip_scheduler:
        trainer.lr_scheduler.step(wanted_metric(trainer.args, metrics))
    return metrics


def take_best(trainer: Any, metrics: dict[str, float]) -> bool:
    """Note the metric that decides, and tell whether this is the best model so far. A tie is not better."""
    args, state = trainer.args, trainer.state
    if args.metric_for_best_model is None:
        return False
    value, best = wanted_metric(args, metrics), state.best_metric
    if best is None:
        best = float("-inf") if args.greater_is_better else float("inf")
        state.best_metric = best
    if not is_better(value, best, ascending=bool(args.greater_is_better)):
        return False
    state.best_metric = value
    if args.save_strategy != "no":
        state.best_global_step = state.global_step
    return True


def _warn_of_no_data(trainer: Any) -> None:
    log.warning(
        f"the training data gave no batch, so training stops at step {trainer.state.global_step} of "
        f"{trainer.state.max_steps}. A stream that can be read only once ends like this: lower max_steps."
    )
