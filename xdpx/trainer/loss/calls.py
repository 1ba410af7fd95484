"""Compute the loss of a Trainer: users' overrides are called with the arguments that they accept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.precision import Precision
from xdpx.logger import log
from xdpx.models.pytorch import preparing
from xdpx.optimizers.pytorch.building import fused_backward_of
from xdpx.trainer.data.columns import note_left_out
from xdpx.trainer.loss.counts import targets_of
from xdpx.trainer.loss.measuring import follows_count, mean_over_targets
from xdpx.trainer.loss.misfits import note_misfits
from xdpx.trainer.loss.model_loss import (
    CallShape,
    Count,
    LabelSmoother,
    count_targets,
    global_count,
    loss_of,
    mentions,
    uses,
)
from xdpx.trainer.loss.windows import record_losses
from xdpx.trainer.parts import TrainerRun

COUNT, FUNCTION = "num_items_in_batch", "compute_loss_func"
LOSSES = ("compute_loss", "training_step")
"""Methods that users override to define the loss."""

Inputs = dict[str, Any]


class LossMethods(Protocol):
    """The methods and attributes of a Trainer that define its loss; looked up at each call: users may replace them."""

    compute_loss_func: Callable[..., Tensor] | None
    loss_is_scaled_for_ga: bool | None

    def training_step(self, model: nn.Module, inputs: Inputs, num_items_in_batch: Any = None) -> Tensor:
        """Run forward and backward pass of one micro-batch."""
        ...

    def compute_loss(
        self, model: nn.Module, inputs: Inputs, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of one micro-batch."""
        ...


class Averaged:
    """What the loss of an evaluation is the mean over, by the batches seen: their targets, or else their rows."""

    MOST_BATCHES = 20
    """Number of batches that are examined if none proves it."""

    def __init__(self) -> None:
        self._over_targets: bool | None = None
        self._seen = 0

    @property
    def examines(self) -> bool:
        """Whether another batch is to be examined."""
        return self._over_targets is None and self._seen < self.MOST_BATCHES

    @property
    def over_targets(self) -> bool | None:
        """Whether it is the mean over targets, also if no batch proves it; None if none was examined."""
        return True if self._over_targets is None and self._seen else self._over_targets

    def note(self, over_targets: bool, proven: bool) -> None:
        """Take in what one batch tells (`mean_over_targets`)."""
        self._seen += 1
        if proven:
            self._over_targets = over_targets


class LossCalls:
    """Calls `training_step`, `compute_loss` and `compute_loss_func`, which users may replace at any time.

    Args:
        methods: the Trainer that has them.
        run: its arguments, facts about the model's loss, and the accumulator of logs.
        overridden: names of those that are overridden by the user.
    """

    def __init__(self, methods: LossMethods, run: TrainerRun, *, overridden: Collection[str]) -> None:
        self._methods, self._run, self._overridden = methods, run, overridden
        self._facts = run.loss_facts
        self._measured = False  # whether the model's use of the count was
        self._asked_function = self._has_stepped = False
        self._evaluated = Averaged()
        self._shapes: dict[str, tuple[Callable[..., Any], CallShape]] = {}

    def _shape(self, name: str) -> CallShape:
        """Return what a method or function of the Trainer takes; it is inspected once, unless it is replaced."""
        function = getattr(self._methods, name)
        known = self._shapes.get(name)
        if known is None or known[0] != function:
            known = self._shapes[name] = function, CallShape.of(function)
        return known[1]

    @property
    def step_counts(self) -> bool:
        """Whether `training_step` takes the number of targets, as it does since transformers 4.46."""
        return self._shape("training_step").takes_count

    @property
    def _compute(self) -> CallShape:
        return self._shape("compute_loss")

    @property
    def _function(self) -> CallShape | None:
        return None if self._methods.compute_loss_func is None else self._shape("compute_loss_func")

    def step(self, model: nn.Module, inputs: Inputs, num_items: Count) -> Tensor:
        """Call `training_step`."""
        more = (num_items,) if self.step_counts else ()
        loss = self._methods.training_step(model, inputs, *more)
        if loss is None:
            raise TypeError("training_step: returned None. Return the loss of the micro-batch, detached, for the log.")
        if not self._has_stepped:
            self._has_stepped = True
            self._warn_of_left_out()
        return loss

    def _warn_of_left_out(self) -> None:
        """Warn of what users' own methods, which have computed the first loss, do not use."""
        own, smoother = " and ".join(sorted(self._overridden)), self._facts.smoother
        if not own:
            return
        if isinstance(smoother, LabelSmoother) and not smoother.is_used:
            log.warning(
                f"label_smoothing_factor: has no effect, because your own {own} does not smooth. Call "
                "self.label_smoother(outputs, labels) there, or leave the factor out.",
                once=True,
            )
        called = self._asked_function or any(mentions(getattr(self._methods, each), FUNCTION) for each in LOSSES)
        if self._function is not None and not called:
            log.warning(
                f"compute_loss_func: is never called, because your own {own} computes the loss. Leave it out, or let "
                "the method call it.",
                once=True,
            )

    def loss(self, model: nn.Module, inputs: Inputs, num_items: Count) -> Tensor:
        """Return the loss of `compute_loss`: one number, which depends on weights."""
        loss = self._computed(model, inputs, self._compute.extras(num_items))
        if not isinstance(loss, Tensor) or (loss.dim() and not 1 <= loss.numel() <= max(1, self._run.args.n_gpu)):
            raise TypeError(_no_loss(loss, self._source_of_loss()))  # DataParallel returns one for each GPU
        if not loss.requires_grad:
            raise RuntimeError(WITHOUT_GRADIENT)
        return loss.reshape(()) if loss.dim() and loss.numel() == 1 else loss

    def _computed(self, model: nn.Module, inputs: Inputs, extras: dict[str, Any]) -> Any:
        """Call `compute_loss`; add to its errors what of the data does not fit."""
        given = dict(inputs) if isinstance(inputs, Mapping) else {}  # labels may be taken out before the loss
        try:
            return self._methods.compute_loss(model, inputs, **extras)
        except Exception as error:
            note_misfits(error, model, given)
            if isinstance(error, KeyError) and self._run.args.remove_unused_columns:
                note_left_out(error)
            raise

    def loss_and_outputs(self, model: nn.Module, inputs: Inputs) -> tuple[Tensor, Any]:
        """Return (loss, outputs) of `compute_loss` in an evaluation; the loss is the mean over the batch's targets."""
        extras = self._compute.extras(self._told(inputs), return_outputs=True)
        labels = inputs.get("labels") if isinstance(inputs, Mapping) else None  # read before users' code removes them
        answer = self._computed(model, inputs, extras)
        if not isinstance(answer, tuple | list) or len(answer) != 2 or not isinstance(answer[0], Tensor):
            raise TypeError(
                f"compute_loss: returned {_described(answer)} when asked for the outputs too (evaluation). Return "
                "(loss, outputs) when return_outputs is true."
            )
        loss, outputs = answer
        if loss.dim() > 1:
            log.warning(
                f"{self._source_of_loss()} {_described(loss)} in an evaluation, whose mean counts as the loss. If "
                "these are logits, return the loss before them.",
                once=True,
            )
        self.examine(loss, outputs, labels)
        return loss, outputs

    def _source_of_loss(self) -> str:
        """Return the beginning of a sentence that tells what a loss is."""
        if "compute_loss" in self._overridden:
            return "compute_loss: returned"
        if self._function is not None:
            return "compute_loss_func: returned"
        return "the model: its loss, the first of its outputs or the one called loss, is"

    def _told(self, inputs: Inputs) -> Tensor | None:
        """Return the count passed on in an evaluation: only to users' code, since a model averages by itself."""
        own = "compute_loss" in self._overridden or self._function is not None
        return self.count([inputs]) if own else None

    def examine(self, loss: Tensor, outputs: Any, labels: Any) -> None:
        """Note whether the loss of a batch of an evaluation is the mean over its targets, until a batch proves it."""
        if loss.dim() or not self._evaluated.examines or self._surely_averages_targets():
            return
        if torch.isfinite(loss):  # the mean over no target is NaN
            self._evaluated.note(*mean_over_targets(loss, outputs, labels))

    def _surely_averages_targets(self) -> bool:
        """Return whether losses of evaluations are, by the code, means over the targets of their batches."""
        compute, function, facts = self._methods.compute_loss, self._methods.compute_loss_func, self._facts
        if "compute_loss" in self._overridden:
            return facts.accepts_count and self._compute.takes_count and uses(compute, COUNT)
        if function is not None:
            return self._shape("compute_loss_func").takes_count and uses(function, COUNT)
        return facts.smoother is not None or facts.averages_targets

    @property
    def averages_targets(self) -> bool | None:
        """Whether the losses of evaluations on this process are means over targets; None if unknown."""
        return self._surely_averages_targets() or self._evaluated.over_targets

    def targets(self, inputs: Inputs, rows: int) -> Tensor | int:
        """Return the number of targets of a batch of an evaluation; that of its rows if no targets can be counted."""
        told, facts = self._told(inputs), self._facts
        if told is not None:
            return told
        return targets_of(inputs, rows, shift=facts.shifts_labels or facts.smoother_shifts_labels)

    def count(self, batches: list[Inputs]) -> Tensor | None:
        """Return the number of targets in some batches of this process; None if no loss uses it."""
        if not self._facts.accepts_count and self._function is None:
            return None
        return count_targets(batches, shift=self._facts.shifts_labels)

    def count_over_ranks(self, batches: list[Inputs], device: torch.device) -> Tensor | None:
        """Return the number of targets in the batches of one update, over all processes if losses are averaged so."""
        count, args = self.count(batches), self._run.args
        if count is None:
            return None
        return global_count(count, device, over_ranks=args.average_tokens_across_devices, replicas=args.n_gpu)

    def is_scaled(self, num_items: Count) -> bool:
        """Return whether a loss is a share of the mean over the whole update, and not a mean over one micro-batch."""
        said = self._methods.loss_is_scaled_for_ga
        if said is not None:
            return bool(said)
        if not self._compute.takes_count:
            return False  # the count was not passed to it
        if self._function is not None:
            return self._function.takes_count
        return self._facts.accepts_count and num_items is not None and not self._facts.averages_rows

    def warn_of_unused_count(self) -> None:
        """Warn if losses that are means over a micro-batch will count as shares of the mean over the update."""
        steps, compute = self._run.args.gradient_accumulation_steps, self._methods.compute_loss
        if steps == 1 or not self._compute.takes_count or uses(compute, COUNT):
            return
        if self._methods.loss_is_scaled_for_ga is None and self._facts.accepts_count and self._function is None:
            log.warning(
                f"{type(self._methods).__name__}.compute_loss: does not use the num_items_in_batch that it receives. "
                f"As in the original, its result is taken to be divided by "
                f"gradient_accumulation_steps ({steps}) already. "
                "If it is the mean over its batch, loss and gradient are that many times too large: set "
                "loss_is_scaled_for_ga = False in the class.",
                once=True,
            )

    def warn_of_count(self, model: nn.Module) -> None:
        """Warn if the count of a causal model has the first label of each row, which nothing predicts.

        The original counts so where transformers has recorded no type of loss, as for GPT2LMHeadModel.
        """
        facts, own = self._facts, "compute_loss" not in self._overridden and self._function is None
        divides = facts.accepts_count and not facts.ignores_count
        if own and divides and facts.smoother_shifts_labels and not facts.shifts_labels:
            log.warning(
                f"{type(model).__name__}: in training, its loss and gradient are divided by one label per row too many "
                "(the first, which nothing predicts), as in the original; eval_loss is not. To train with the mean "
                'over all targets, set model.loss_type = "ForCausalLM" before the Trainer is made.',
                once=True,
            )

    def warn_of_unused_smoothing(self) -> None:
        """Warn if labels were to be smoothed, but a function of the user computes the loss."""
        if self._facts.smoother is not None and self._function is not None:
            log.warning(
                "label_smoothing_factor: has no effect, because compute_loss_func computes the loss. Smooth there, "
                "e.g. by label_smoothing of torch's cross_entropy.",
                once=True,
            )

    def of_model(self, model: nn.Module, inputs: Inputs, num_items: Count) -> tuple[Tensor, Any]:
        """Run the model; return (loss, outputs), the loss of `compute_loss_func`, smoothed, or the model's own."""
        function, facts, args = self._methods.compute_loss_func, self._facts, self._run.args
        if not isinstance(inputs, Mapping):
            raise TypeError(
                f"a batch is a {type(inputs).__name__}, not a dict of arguments of the model's forward. Let the "
                "data_collator return such a dict, or override compute_loss."
            )
        smoothed = facts.smoother is not None or function is not None
        labels = inputs.pop("labels") if smoothed and "labels" in inputs else None
        if labels is not None:
            inputs = preparing.with_decoder_inputs(model, inputs, labels)
        if num_items is not None and facts.accepts_count:
            inputs = {**inputs, COUNT: num_items}
        outputs = model(**inputs)
        if model.training:
            record_losses(self._run.accumulator, outputs)
        if function is not None:
            self._asked_function = True
            if labels is None:
                _miss_labels(inputs)
            loss = function(outputs, labels, **(self._function.extras(num_items) if self._function is not None else {}))
        elif labels is not None and facts.smoother is not None:
            shift = facts.smoother_shifts_labels
            loss = facts.smoother(outputs, labels, shift_labels=shift, num_items_in_batch=num_items)
        else:
            loss = self._share(model, outputs, inputs, num_items)
        shared = num_items is not None and model.training and args.average_tokens_across_devices
        spread = max(args.world_size, args.n_gpu) if shared else 1
        if spread > 1 and self.is_scaled(num_items):
            loss = loss * spread  # gradients and losses are averaged over processes later
        return loss, outputs

    def _share(self, model: nn.Module, outputs: Any, inputs: Inputs, num_items: Count) -> Tensor:
        """Return a model's own loss as its share of the mean over the update, even if the model ignored the count."""
        loss = loss_of(outputs, inputs)
        if num_items is None or not self.is_scaled(num_items):
            return loss
        if model.training and not self._measured:
            self._measure(model, loss, outputs, inputs)
        alone = self._run.accumulation == 1 and self._run.args.world_size == 1 and self._run.args.n_gpu < 2
        if alone or not self._facts.ignores_count or not self.is_scaled(num_items):
            return loss  # of `alone`, it has all targets of the update
        own = self.count([inputs])
        if own is None:
            return loss
        replicas = max(1, self._run.args.n_gpu)  # with DataParallel the count is a column and the loss a row
        total = num_items.squeeze(-1) if isinstance(num_items, Tensor) else torch.tensor(num_items)
        share = loss * (own / (total.clamp(min=1) * replicas))
        return torch.where(own > 0, share, torch.zeros_like(share))  # the mean over no target is NaN

    def _measure(self, model: nn.Module, loss: Tensor, outputs: Any, inputs: Inputs) -> None:
        """Note whether a model uses the count, on the first micro-batch of a training that tells, where it matters.

        The code of a model misleads: its forward may hand the count on to what does not use it.
        """
        args, strategy, facts = self._run.args, self._run.parts.strategy, self._facts
        matters = args.gradient_accumulation_steps > 1 or args.world_size > 1
        if not matters or args.n_gpu > 1 or strategy.writes_own_state or facts.sums_rows or COUNT not in inputs:
            return
        follows = follows_count(preparing.bare(model), inputs, COUNT)
        votes = 0 if follows is None else 1 if follows else -1
        if strategy.shards:  # all processes run its layers together, so that all must stop measuring at once
            votes = int(collectives.sum_over_ranks(torch.tensor(votes, device=args.device)))
        if not votes:
            return
        self._measured, facts.ignores_count = True, votes < 0
        labels = inputs.get("labels")
        ragged = isinstance(labels, Tensor) and labels.dim() > 1 and not labels.is_floating_point()
        facts.averages_rows = facts.ignores_count and ragged and not mean_over_targets(loss, outputs, labels)[0]

    @contextmanager
    def noting(self, model: nn.Module) -> Generator[None]:
        """Record outputs named `*_loss` if a user's method calls the model; otherwise `of_model` does it."""
        if not self._overridden or self._run.args.compile_options() is not None:  # a hook would cause recompilation
            yield
            return

        def note(model: nn.Module, _: object, outputs: object) -> None:
            if model.training:
                record_losses(self._run.accumulator, outputs)

        handle = model.register_forward_hook(note)
        try:
            yield
        finally:
            handle.remove()


WITHOUT_GRADIENT = (
    "compute_loss: the loss does not depend on any weight that is trained. Either all weights that it depends on are "
    "frozen (requires_grad=False), or the loss was detached from them (by detach, item, argmax, NumPy). With "
    "checkpointed activations over frozen embeddings, call model.enable_input_require_grads()."
)


def _described(answer: Any) -> str:
    if isinstance(answer, Tensor):
        return f"a tensor of shape {tuple(answer.shape)}"
    if isinstance(answer, tuple):
        return f"a tuple of {len(answer)}"
    return f"{answer!r:.100}"


def _no_loss(answer: Any, source: str) -> str:
    """Return the error message for what came in the place of a loss, which `source` begins."""
    advice = "Return one number as a tensor, e.g. the mean over the batch."
    if isinstance(answer, tuple):
        advice = "Return (loss, outputs) only when return_outputs is true, and the loss alone otherwise."
    return f"{source} {_described(answer)}. {advice}"


def _miss_labels(inputs: Inputs) -> None:
    log.warning(
        "Trainer: `compute_loss_func` is defined but `labels=None`. Your custom loss function will still be called "
        f"with labels=None. The batch has {', '.join(inputs)}.",
        once=True,
        under="transformers.trainer",
    )


def backward(
    loss: Tensor, optimizer: torch.optim.Optimizer, precision: Precision, learning_rate: Callable[[], float]
) -> None:
    """Add the gradients of a loss; an optimizer with a fused backward pass does it itself."""
    fused = fused_backward_of(optimizer)
    if fused is None:
        precision.backward(loss)
    else:
        fused(loss, learning_rate())
