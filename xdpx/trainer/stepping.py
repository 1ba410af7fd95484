"""An engine whose update calls the override points of a Trainer, and the groups of micro-batches it is fed with.

`trainer` is the Trainer in every signature here; its file imports this one, so it is typed as Any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from xdpx.engines.base import Facts, Predictions
from xdpx.engines.pytorch import collectives
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
    """Implements `engines.base.Engine` on a Trainer. Its state is the wrapped model, which torch changes in place.

    One update is: on_step_begin, then `training_step` on each micro-batch with on_substep_end between, clipping,
    on_pre_optimizer_step, the optimizer, on_optimizer_step, the schedule. An update is whole: whoever asks to stop in
    on_substep_end is heard after it.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.strategy, self.precision = trainer.strategy, trainer.precision
        self._parameters = list(trainer.model_wrapped.parameters())  # walking through a model costs more than clipping
        self._schedule_steps = not steps_on_metric(trainer.lr_scheduler)

    def start(self, seed: int) -> Any:
        """Give the prepared model; the Trainer has set the seed and built it."""
        del seed
        return self.trainer.model_wrapped

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
        skipped = self.precision.step(trainer.optimizer)
        trainer.control = handler.on_optimizer_step(args, trainer.state, trainer.control)
        learning_rate = trainer._get_learning_rate()
        if self._schedule_steps and not skipped:
            trainer.lr_scheduler.step()
        for weight in self._parameters:
            weight.grad = None
        return state, {"loss": loss, "grad_norm": grad_norm, "learning_rate": learning_rate}

    def _accumulate(self, model: Any, group: Any) -> Any:
        """Add the gradients of each micro-batch, and give the sum of their losses."""
        trainer, last, total = self.trainer, len(group) - 1, None
        for index, inputs in enumerate(group):
            with self.strategy.accumulating(model, index == last):
                loss = trainer.loss_calls.step(model, inputs, group.num_items)
            total = loss if total is None else total + loss
            trainer.current_flos += trainer.floating_point_ops(inputs)
            trainer.token_counter.add(inputs)
            if index < last:
                trainer.control = trainer.callback_handler.on_substep_end(trainer.args, trainer.state, trainer.control)
        return total

    def score(self, state: Any, batch: Any) -> Predictions:
        """Give loss, logits and labels of one batch."""
        loss, logits, labels = self.trainer.prediction_step(state, batch, prediction_loss_only=False)
        return {"loss": loss, "logits": logits, "labels": labels}

    def snapshot(self, state: Any) -> dict[str, Any]:
        """Give weights, optimizer and schedule on the host; on all processes."""
        optimizer = self.strategy.optimizer_state(state, self.trainer.optimizer)
        schedule = self.trainer.lr_scheduler.state_dict()
        return {"weights": self.strategy.weights(state), "optimizer": optimizer, "schedule": schedule}

    def restore(self, saved: Mapping[str, Any]) -> Any:
        """Fill model, optimizer and schedule with what `snapshot` gave."""
        model = self.with_weights(saved["weights"])
        self.strategy.load_optimizer_state(model, self.trainer.optimizer, saved["optimizer"])
        self.trainer.lr_scheduler.load_state_dict(saved["schedule"])
        return model

    def weights(self, state: Any) -> dict[str, Any]:
        """Give the weights on the host."""
        return dict(self.strategy.weights(state))

    def with_weights(self, weights: Mapping[str, Any]) -> Any:
        """Fill the model, and give it."""
        self.strategy.load_weights(self.trainer.model_wrapped, weights, strict=True)
        return self.trainer.model_wrapped

    def gradient_sizes(self, state: Any) -> dict[str, tuple[float, float]]:
        """Give (mean, largest) absolute gradient of each weight that has one now."""
        grads = {name: each.grad for name, each in state.named_parameters() if each.grad is not None}
        return {name: (float(grad.abs().mean()), float(grad.abs().max())) for name, grad in grads.items()}

    def facts_to_host(self, facts: Facts) -> dict[str, float]:
        """Wait for the device, and give plain floats."""
        return {name: float(value) for name, value in facts.items()}

    def predictions_to_host(self, predictions: Predictions) -> dict[str, Any]:
        """Give numpy arrays for tensors."""
        arrays: dict[str, Any] = collectives.map_tensors(lambda each: each.detach().cpu().numpy(), dict(predictions))
        return arrays
