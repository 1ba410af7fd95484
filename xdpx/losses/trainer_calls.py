"""Which loss a Trainer trains on, and how it is called: overrides of either generation get the arguments they take."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from xdpx.losses.trainer_counts import targets_of
from xdpx.losses.trainer_loss import CallShape, count_targets, global_count, ignores_count, loss_of, takes
from xdpx.models.pytorch.preparing import bare
from xdpx.optimizers.pytorch.named import fused_backward_of

COUNT = "num_items_in_batch"
HOME = "xdpx.trainer.trainer"
"""Where the methods of a Trainer are that nobody has overridden."""


class LossCalls:
    """Calls `training_step`, `compute_loss` and `compute_loss_func`, whose signatures were looked at once."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._step_counts = takes(trainer.training_step, COUNT)
        self._compute = CallShape.of(trainer.compute_loss)
        self._overridden = type(trainer).compute_loss.__module__ != HOME
        function = trainer.compute_loss_func
        self._function = CallShape.of(function) if function is not None else None
        self.log_takes_start = takes(trainer.log, "start_time")
        self._model_ignores_count = ignores_count(bare(trainer.model))

    def step(self, model: Any, inputs: Any, num_items: Any) -> Any:
        """Call `training_step`."""
        more = (num_items,) if self._step_counts else ()
        return self._trainer.training_step(model, inputs, *more)

    def loss(self, model: Any, inputs: Any, num_items: Any) -> Any:
        """Call `compute_loss` for the loss alone."""
        return self._trainer.compute_loss(model, inputs, **self._compute.extras(num_items))

    def loss_and_outputs(self, model: Any, inputs: Any) -> tuple[Any, Any]:
        """Call `compute_loss` for one batch of an evaluation: the mean over its own targets, and the outputs."""
        extras = self._compute.extras(self._told(inputs), return_outputs=True)
        loss, outputs = self._trainer.compute_loss(model, inputs, **extras)
        return loss, outputs

    def _told(self, inputs: Any) -> Tensor | None:
        """Give the count that an evaluation passes on: to code of users only, for a model averages by itself."""
        return self.count([inputs]) if self._overridden or self._function is not None else None

    def weight(self, inputs: Any, rows: int) -> Tensor | int:
        """Give the number of targets that the loss of a batch of an evaluation is the mean over."""
        told, trainer = self._told(inputs), self._trainer
        if told is not None:
            return told
        return targets_of(inputs, rows, shift=trainer._loss_shifts_labels or trainer.smoother_shifts_labels)

    def function(self, outputs: Any, labels: Any, num_items: Any) -> Any:
        """Call `compute_loss_func`."""
        extras = self._function.extras(num_items) if self._function is not None else {}
        return self._trainer.compute_loss_func(outputs, labels, **extras)

    def count(self, batches: list[Any]) -> Tensor | None:
        """Give the number of targets in some batches of this process; None where no loss asks for it."""
        trainer = self._trainer
        if not trainer.model_accepts_loss_kwargs and self._function is None:
            return None
        return count_targets(batches, shift=trainer._loss_shifts_labels)

    def is_scaled(self, num_items: Any) -> bool:
        """Tell whether a loss is a share of the mean over the whole update, and not a mean over one micro-batch."""
        trainer = self._trainer
        if trainer.loss_is_scaled_for_ga is not None:
            return bool(trainer.loss_is_scaled_for_ga)
        if not self._compute.takes_count:
            return False  # it was never told the count
        if self._function is not None:
            return self._function.takes_count
        return trainer.model_accepts_loss_kwargs and num_items is not None

    def share(self, loss: Tensor, inputs: Any, num_items: Any) -> Tensor:
        """Give a model's own loss as its share of the mean over the update, also when the model ignored the count."""
        own = self.count([inputs]) if self._model_ignores_count and self.is_scaled(num_items) else None
        if own is None:
            return loss
        replicas = max(1, self._trainer.args.n_gpu)  # of DataParallel, whose count is a column and whose loss is a row
        total = num_items.squeeze(-1) if isinstance(num_items, Tensor) else num_items
        shared: Tensor = loss * (own / (total * replicas))
        return shared


@contextmanager
def noting(trainer: Any) -> Generator[None]:
    """Record outputs named `*_loss` also where a user's method calls the model; `loss_of_model` does it elsewhere."""
    own = (getattr(type(trainer), name).__module__ for name in ("compute_loss", "training_step"))
    if all(module == HOME for module in own) or trainer.args.compile_options() is not None:  # compiled anew otherwise
        yield
        return

    def note(model: Any, _: Any, outputs: Any) -> None:
        if model.training:
            trainer.window.note(outputs)

    handle = trainer.model_wrapped.register_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()


def count_over_ranks(trainer: Any, batches: list[Any], device: Any) -> Tensor | None:
    """Give the number of targets in the batches of one update, over all processes when losses are averaged so."""
    count, args = trainer.loss_calls.count(batches), trainer.args
    over_ranks = args.average_tokens_across_devices
    return global_count(count, device, over_ranks=over_ranks, replicas=args.n_gpu)


def loss_of_model(trainer: Any, model: Any, inputs: dict[str, Any], num_items: Any) -> tuple[Any, Any]:
    """Run the model, and give (loss, outputs): of `compute_loss_func`, smoothed, or the model's own."""
    smoothed = trainer.label_smoother is not None or trainer.compute_loss_func is not None
    labels = inputs.pop("labels") if smoothed and "labels" in inputs else None
    if num_items is not None and trainer.model_accepts_loss_kwargs:
        inputs = {**inputs, COUNT: num_items}
    outputs = model(**inputs)
    if model.training:
        trainer.window.note(outputs)
    if trainer.compute_loss_func is not None:
        loss = trainer.loss_calls.function(outputs, labels, num_items)
    elif labels is not None:
        shift = trainer.smoother_shifts_labels
        loss = trainer.label_smoother(outputs, labels, shift_labels=shift, num_items_in_batch=num_items)
    else:
        loss = trainer.loss_calls.share(loss_of(outputs, inputs), inputs, num_items)
    shared = num_items is not None and model.training and trainer.args.average_tokens_across_devices
    spread = max(trainer.args.world_size, trainer.args.n_gpu) if shared else 1
    if spread > 1 and trainer.loss_calls.is_scaled(num_items):
        loss = loss * spread  # gradients and losses are averaged over processes afterwards
    return loss, outputs


def backward(trainer: Any, loss: Tensor) -> None:
    """Add the gradients of a loss, or hand it to an optimizer that takes the backward pass upon itself."""
    fused = fused_backward_of(trainer.optimizer)
    if fused is None:
        trainer.precision.backward(loss)
    else:
        fused(loss, trainer._get_learning_rate())
