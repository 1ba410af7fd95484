"""The base class of losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xdpx.config.faults import ConfigError, did_you_mean, refusal
from xdpx.logger import log
from xdpx.losses.parameters import LossParameters
from xdpx.metrics import ClassScore, Judged, named
from xdpx.metrics.judging import LABEL_COLUMNS

Batch = Mapping[str, Any]
Gathered = Mapping[str, NDArray[Any] | float]
"""Predictions of a whole split: per-row tensors concatenated along the rows, scalars summed over the batches."""

UNITS = {"nats": 1.0, "bits": 1.0 / float(np.log(2.0))}
"""How many of each are in one nat."""

FITTING = "Choose a model and a loss that belong together, as the configs in examples/families do."


def output_of(model: nn.Module, batch: Batch) -> Tensor:
    """Return what a model gives for a batch, such as logits, in float32.

    Raises:
        ConfigError: it gives something else than a tensor.
    """
    output = model(**batch["net_input"])
    if not isinstance(output, Tensor):
        remedy = "Return the tensor alone: of a model of transformers its .logits."
        raise _another_output(model, type(output).__name__, "a tensor", remedy)
    return output.float()


def outputs_of(model: nn.Module, batch: Batch, *names: str) -> Sequence[Any]:
    """Return the outputs of a model that returns several for a batch, as a tuple.

    Args:
        model: the model.
        batch: its input.
        names: of the outputs that the loss reads, for the message.

    Raises:
        ConfigError: it returns something else, such as one tensor, whose rows must not be taken for the outputs.
    """
    output = model(**batch["net_input"])
    if not isinstance(output, tuple | list) or len(output) != len(names):
        found = f"{len(output)} outputs" if isinstance(output, tuple | list) else type(output).__name__
        raise _another_output(model, found, f"{len(names)} outputs: {', '.join(names)}", FITTING)
    return output


def tensors_of(model: nn.Module, batch: Batch, *names: str) -> list[Tensor]:
    """Return the outputs of a model that returns several tensors for a batch, in float32; arguments as of `outputs_of`.

    Raises:
        ConfigError: it returns something else.
    """
    found = outputs_of(model, batch, *names)
    others = [type(each).__name__ for each in found if not isinstance(each, Tensor)]
    if others:
        raise _another_output(model, others[0], f"{len(names)} tensors: {', '.join(names)}", FITTING)
    return [each.float() for each in found]


def output_with_axes(model: nn.Module, batch: Batch, *axes: str) -> Tensor:
    """Return what a model gives for a batch, in float32: a tensor with these axes, named for the message.

    An axis whose name is a number has that length.

    Raises:
        ConfigError: it gives something else.
    """
    output = output_of(model, batch)
    fits = output.ndim == len(axes) and all(
        size == int(axis) for size, axis in zip(output.shape, axes, strict=True) if axis.isdigit()
    )
    if not fits:
        wanted = f"one of shape ({', '.join(axes)})"
        raise _another_output(model, f"a tensor of shape {tuple(output.shape)}", wanted, FITTING)
    return output


def _another_output(model: nn.Module, found: str, wanted: str, remedy: str) -> ConfigError:
    name = type(getattr(model, "module", model)).__name__
    return refusal("model", f"'{name}' returns {found}, but this loss reads {wanted}.", remedy)


class Loss:
    """Computes from a model and a batch a loss sum and the count to divide it by.

    The sum is in nats, to be minimised; metrics show `loss` in the unit `loss_unit`. The count is the number of samples
    (or tokens) in the sum: the caller divides once, over everything it accumulated.
    """

    Parameters: ClassVar[type[LossParameters]] = LossParameters

    metric_names: ClassVar[Mapping[str, tuple[str, str, object] | None] | None] = None
    """What `metrics` returns: {name or pattern: None, or the condition (key, operator, value) for it}. A config
    that names another metric is refused before training; None here means no check, as does a class that overrides
    `metrics` but not this."""

    header: ClassVar[tuple[str, ...]] = LABEL_COLUMNS
    """Names of the columns that `rows` yields."""

    reads_class_logits: ClassVar[bool] = False
    """Whether the model returns logits (B, C), one row per text, which `disagreement` can compare."""

    reads_softmax: ClassVar[bool] = False
    """Whether these logits become probabilities by a softmax, so that they can be divided by a temperature."""

    row_functions: ClassVar[Sequence[str]] = ()
    """Names of methods that transform each row of logits independently, e.g. into probabilities."""

    compares_rows: ClassVar[bool] = False
    """Whether the rows of a batch affect each other's loss, so that splitting a batch changes the sum."""

    within_batch: ClassVar[Sequence[str]] = ()
    """Names of the metrics of held-out rows that depend on which rows share a batch."""

    spans_processes: ClassVar[bool] = False
    """For a loss that compares rows: whether splitting a batch over processes leaves it unchanged, because it gathers
    the rows of all, or compares only rows that the sampler keeps together."""

    hooks_model: ClassVar[bool] = False
    """Whether it puts hooks on parts of the model, which a compiled model would not call."""

    learns_labels: ClassVar[bool] = False
    """Whether every sample needs a label, so that data without labels are refused before training."""

    asks_each_class: ClassVar[bool] = False
    """Whether probabilities come from one sigmoid per class, not from a softmax over all classes."""

    scored_by_teacher: ClassVar[bool] = False
    """Whether held-out data are also compared with the teacher, because there is nothing else to score."""

    of_any_size: ClassVar[bool] = False
    """Whether it may be large without having run away: its unit is that of the labels, or it is a sum over labels."""

    _has_compared = False

    def __init__(self, parameters: LossParameters) -> None:
        self.parameters: Any = parameters

    @property
    def average(self) -> str | None:
        """How classes are averaged in precision, recall and F1; None if they are not, or if it is fixed."""
        return None

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return (loss sum in nats, count, facts). Facts are sums as well, and stay on the device."""
        raise NotImplementedError

    @classmethod
    def accumulates(cls) -> bool:
        """Return whether `__call__`, of this class or a base class, calls `add_accumulative_summary`."""
        codes = (getattr(vars(kind).get("__call__"), "__code__", None) for kind in cls.__mro__)
        return any(code is not None and "add_accumulative_summary" in code.co_names for code in codes)

    def disagreement(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the distance of two passes' logits (B, C), in nats, summed over rows; if `reads_class_logits`."""
        raise NotImplementedError

    def tell_of_equal_passes(self, first: Tensor, second: Tensor) -> None:
        """Warn if the first two passes of a training are equal bit for bit, although they should differ by dropout.

        Only the first call looks, as a comparison waits for the device.
        """
        if self._has_compared or not torch.is_grad_enabled():
            return
        self._has_compared = True
        if torch.equal(first.detach(), second.detach()):
            log.warning(
                "loss: two passes over the first batch gave the same numbers, because nothing in the model is random "
                "in training: where they should agree in spite of dropout, nothing is learned. Set a dropout above 0, "
                "for BERT e.g. extra_config: {hidden_dropout_prob: 0.1, attention_probs_dropout_prob: 0.1}."
            )

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return what evaluation gathers: tensors with one row per sample, and scalars to be summed over batches."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the loss has accumulated over batches, for resuming; most have none."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    def refuse_labels(self, names: Sequence[str]) -> None:
        """Raise ConfigError before training if the names of the classes contradict what their numbers mean here.

        Or warn, where they probably do.
        """

    @property
    def takes_texts_for_alike(self) -> bool:
        """Whether all texts of a training row are to get similar vectors, whatever its label."""
        return False

    @property
    def reads_numbers(self) -> bool:
        """Whether labels can only be numbers, so that held-out rows may have others than training."""
        return False

    def know_numbers(self, values: Sequence[float]) -> None:
        """Take the number of each label, those of training first; if `reads_numbers`.

        Args:
            values: the numbers, in the order of the classes.
        """
        raise NotImplementedError

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return every metric of a split, computed once from its gathered predictions."""
        raise NotImplementedError

    def keys_by_class(self) -> list[str]:
        """Return the keys that are set and whose values go by the numbers of the classes."""
        return []

    def about_one_class(self, names: Iterable[str], num_classes: int) -> dict[str, int]:
        """Return {metric: number of the class} of those that would be others if classes were numbered otherwise."""
        del names, num_classes
        return {}

    def refuse_grades(self, names: Iterable[str], labels: Sequence[str]) -> None:
        """Raise ConfigError if a metric of these names takes classes for grades that contradict the labels."""

    def each_class(self, gathered: Gathered, labels: Sequence[str] | None) -> list[ClassScore]:
        """Return precision, recall and F1 of each class (or type of entity); an empty list if nothing is classified.

        Args:
            gathered: predictions of the split.
            labels: names of the classes, if known.
        """
        del gathered, labels
        return []

    def judged(self, gathered: Gathered, labels: Sequence[str] | None) -> Judged | None:
        """Return an assessment of each row, to find the worst predictions; None if rows cannot be right or wrong.

        Args:
            gathered: predictions of the split.
            labels: names of the classes, if known.
        """
        del gathered, labels
        return None

    def metric(self, name: str, gathered: Gathered) -> float | None:
        """Return one more metric, which the config names; None if there is none of that name.

        Raises:
            Missing: the predictions lack what it needs.
        """
        return named.compute(name, gathered)

    def scores(self, gathered: Gathered) -> dict[str, float]:
        """Return `metrics`, and in addition those that the config names.

        Raises:
            ConfigError: a metric is unknown, or the data lack what it needs.
        """
        found: Any = self.metrics(gathered)
        if not isinstance(found, dict):
            problem = f"returns {type(found).__name__} from its metrics."
            raise refusal("loss", problem, "Return a dict {name: number}.")
        known = self.parameters
        wanted = [("metrics", name) for name in getattr(known, "metrics", ())]
        for key, name in (*wanted, ("major_metric", getattr(known, "major_metric", None))):
            if isinstance(name, str) and name not in found:
                found[name] = self._asked_for(key, name, gathered, found)
        return dict(found)

    def _asked_for(self, key: str, name: str, gathered: Gathered, found: Mapping[str, float]) -> float:
        try:
            value = self.metric(name, gathered)
        except named.Missing as error:
            raise refusal(key, f"{error}.", "Choose another metric.") from error
        if value is None:
            remedy = did_you_mean(name, found, rest=f"It has: {', '.join(sorted(found))}.")
            raise refusal(key, f"this loss has no '{name}'.", remedy)
        return value

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None) -> Iterator[list[str]] | None:
        """Return the cells that x-pred writes for each sample under `header`; None for class and probability."""
        del predictions, labels
        return None

    def columns(self) -> Sequence[str]:
        """Return the names of the columns that `rows` yields; by default `header`."""
        return self.header

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics of the training log, from the summed facts of some updates (`loss_sum`, `count`, ...)."""
        return {"loss": self.mean_loss(facts)}

    def mean_loss(self, sums: Mapping[str, Any]) -> float:
        """Return loss_sum / count in `loss_unit`; NaN if the count is 0 or the sum is NaN."""
        return self.in_unit(float(sums["loss_sum"]), float(sums["count"]))

    def in_unit(self, nats: float, count: float) -> float:
        """Return the mean, in `loss_unit`, of a sum in nats; NaN if the count is 0."""
        return nats / count * UNITS[getattr(self.parameters, "loss_unit", "nats")] if count else float("nan")
