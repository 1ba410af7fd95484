"""An engine whose update calls the override points of a Trainer, and the groups of micro-batches it is fed with.

`trainer` is the Trainer in every signature here; its file imports this one, so it is typed as Any.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from xdpx.dataloaders.placing import find_batch_size
from xdpx.engines.base import Facts
from xdpx.engines.pytorch.nonfinite import Guard
from xdpx.optimizers.lr_schedulers.named import steps_on_metric


class Place(NamedTuple):
    """A place in the training data: epoch (1-based), and how many groups and batches of it are taken."""

    epoch: int
    group: int = 0
    batches: int = 0


class Window(list[Any]):
    """The micro-batches of one update, with the number of targets in all of them over all ranks, None if unknown."""

    def __init__(self, batches: Iterable[Any], num_items: Any) -> None:
        super().__init__(batches)
        self.num_items = num_items


class OverrideEngine:
    """Implements `engines.base.Updater` on a Trainer. Its state is the wrapped model, which torch changes in place.

    One update is: on_step_begin, then `training_step` on each micro-batch with on_substep_end between, clipping,
    on_pre_optimizer_step, the optimizer, on_optimizer_step, the schedule. An update is whole: whoever asks to stop in
    on_substep_end is heard after it.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.strategy, self.precision = trainer.strategy, trainer.precision
        self._parameters = list(trainer.model_wrapped.parameters())  # walking through a model costs more than clipping
        self._schedule_steps = not steps_on_metric(trainer.lr_scheduler)
        self._guard = Guard.of(trainer.args.nonfinite_steps, trainer.precision)

    def update(self, state: Any, group: Any) -> tuple[Any, Facts]:
        """Take one optimizer update. Facts: loss (of the update), grad_norm before clipping, learning_rate."""
        trainer = self.trainer
        handler, args = trainer.callback_handler, trainer.args
        trainer.current_gradient_accumulation_steps = len(group)
        trainer.control = handler.on_step_begin(args, trainer.state, trainer.control)
        loss = self._accumulate(state, group)
        self.precision.unscale(trainer.optimizer)
        grad_norm = self.strategy.clip(self._parameters, args.max_grad_norm)
        trainer.control = handler.on_pre_optimizer_step(args, trainer.state, trainer.control)
        if self._guard is not None and self._guard.leaves_out(loss, grad_norm, trainer.state.global_step + 1):
            loss, skipped = self._leave_out(loss), True
        else:
            skipped = self.precision.step(trainer.optimizer)
        trainer.window.take_step(loss, grad_norm.new_zeros(()) if skipped else grad_norm)
        trainer.control = handler.on_optimizer_step(args, trainer.state, trainer.control)
        learning_rate = trainer._get_learning_rate()
        if self._schedule_steps and not skipped:
            trainer.lr_scheduler.step()
        for weight in self._parameters:
            weight.grad = None
        return state, {"loss": loss, "grad_norm": grad_norm, "learning_rate": learning_rate}

    def _leave_out(self, loss: Any) -> Any:
        """Leave this update out; give what counts as its loss in sums: nothing."""
        self.precision.leave_out()
        self.trainer.window.skipped += 1
        return loss * 0 if isinstance(loss, float) else loss.new_zeros(())

    def _accumulate(self, model: Any, group: Any) -> Any:
        """Add the gradients of each micro-batch, and give the sum of their losses."""
        trainer, last, total = self.trainer, len(group) - 1, None
        for index, inputs in enumerate(group):
            with self.strategy.accumulating(model, index == last):
                loss = trainer.loss_calls.step(model, inputs, group.num_items)
            total = loss if total is None else total + loss
            trainer.current_flos += trainer.floating_point_ops(inputs)
            trainer.token_counter.add(inputs)
            trainer.window.samples += find_batch_size(inputs) or 0
            if index < last:
                trainer.control = trainer.callback_handler.on_substep_end(trainer.args, trainer.state, trainer.control)
        return total
