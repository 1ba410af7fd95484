"""The callbacks that come with every Trainer, and early stopping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdpx.logger import log
from xdpx.reports.run_tables import evaluated
from xdpx.reports.trackers.console import Bars, Printing
from xdpx.trainer.arguments import IntervalStrategy, SaveStrategy
from xdpx.trainer.hooks.events import LOGGER, TrainerCallback
from xdpx.trainer.hooks.state import ExportableState, TrainerControl, TrainerState
from xdpx.utils.decisions import due, is_better

if TYPE_CHECKING:
    from xdpx.trainer.arguments import TrainingArguments as Arguments


class DefaultFlowCallback(TrainerCallback):
    """Requests logging, evaluation and saving according to the strategies of the arguments, and ends the training."""

    def on_step_end(
        self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> TrainerControl:
        """Request what is due by number of steps; at the last step always an evaluation and a checkpoint."""
        step, last = state.global_step, state.global_step >= state.max_steps
        if last:
            control.should_training_stop = True
        if step == 1 and args.logging_first_step:
            control.should_log = True
        if args.logging_strategy == IntervalStrategy.STEPS and due(step, state.logging_steps):
            control.should_log = True
        evaluates = args.eval_strategy == IntervalStrategy.STEPS and args.eval_delay <= step
        if evaluates and (last or due(step, state.eval_steps)):
            control.should_evaluate = True
        saves = args.save_strategy == SaveStrategy.STEPS
        if saves and (last or due(step, state.save_steps)):
            control.should_save = True
        return control

    def on_epoch_end(
        self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> TrainerControl:
        """Request what is due at the end of every epoch."""
        if args.logging_strategy == IntervalStrategy.EPOCH:
            control.should_log = True
        if args.eval_strategy == IntervalStrategy.EPOCH and args.eval_delay <= state.epoch:
            control.should_evaluate = True
        if args.save_strategy == SaveStrategy.EPOCH:
            control.should_save = True
        return control


class ProgressCallback(Bars, TrainerCallback):
    """Shows progress bars, with logs printed above them."""


class PrinterCallback(Printing, TrainerCallback):
    """Prints logs, for use without progress bars."""


class MisusedCallback(ValueError, AssertionError):
    """The arguments do not fit a callback. Also an AssertionError, since that is what the original raises."""


class EarlyStoppingCallback(TrainerCallback, ExportableState):
    """Ends the training if `metric_for_best_model` has not improved for some evaluations.

    Args:
        early_stopping_patience: number of evaluations in a row without improvement.
        early_stopping_threshold: smallest difference that counts as an improvement.
    """

    def __init__(self, early_stopping_patience: int = 1, early_stopping_threshold: float | None = 0.0) -> None:
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold = early_stopping_threshold
        self.early_stopping_patience_counter = 0

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        """Refuse arguments without a metric or evaluations to compare. Raises ValueError."""
        if args.metric_for_best_model is None:
            raise MisusedCallback("EarlyStoppingCallback: set metric_for_best_model, e.g. to 'eval_loss'; it is None.")
        if args.eval_strategy == IntervalStrategy.NO:
            raise MisusedCallback("EarlyStoppingCallback: set eval_strategy to 'steps' or 'epoch'; it is 'no'.")
        if not args.load_best_model_at_end:
            log.warning(
                "Using EarlyStoppingCallback without load_best_model_at_end=True. Once training is finished, the best "
                "model will not be loaded automatically. Set load_best_model_at_end=True to end with the best.",
                under=LOGGER,
            )

    def on_evaluate(
        self, args: Arguments, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: object
    ) -> None:
        """Compare with the best score so far, which is updated in `state` afterwards."""
        name, metrics = evaluated(args.metric_for_best_model), metrics or {}
        if name not in metrics:
            there = ", ".join(sorted(metrics))
            log.warning(
                f"early stopping required metric_for_best_model, but did not find {name} so early stopping is disabled "
                f"for this evaluation, which does not count. There is {there}.",
                once=True,
                under=LOGGER,
            )
            return
        self.check_metric_value(args, state, control, metrics[name])
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True

    def check_metric_value(
        self, args: Arguments, state: TrainerState, control: TrainerControl, metric_value: float
    ) -> None:
        """Count an evaluation that does not improve on the best one by more than the threshold."""
        best, margin = state.best_metric, max(self.early_stopping_threshold or 0.0, 0.0)
        better = best is None or is_better(metric_value, best, ascending=bool(args.greater_is_better), by=margin)
        self.early_stopping_patience_counter = 0 if better else self.early_stopping_patience_counter + 1

    def state(self) -> dict[str, Any]:
        """Return patience, threshold and count."""
        limits = ("early_stopping_patience", "early_stopping_threshold")
        counter = {"early_stopping_patience_counter": self.early_stopping_patience_counter}
        return {"args": {name: getattr(self, name) for name in limits}, "attributes": counter}
