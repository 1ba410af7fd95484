"""What every loss can answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, nearest
from xdpx.losses.parameters import LossParameters
from xdpx.metrics import ClassScore, Judged, named
from xdpx.metrics.judging import LABEL_COLUMNS

Batch = Mapping[str, Any]
Gathered = Mapping[str, NDArray[Any] | float]
"""Predictions of a whole split: per-row tensors joined along the rows, single numbers summed over the batches."""

UNITS = {"nats": 1.0, "bits": 1.0 / float(np.log(2.0))}
"""How many of each are in one nat."""


def output_of(model: nn.Module, batch: Batch) -> Tensor:
    """Return what a model gives for a batch, such as logits, in float32.

    Raises:
        ConfigError: it gives something else than a tensor.
    """
    output = model(**batch["net_input"])
    if not isinstance(output, Tensor):
        name = type(getattr(model, "module", model)).__name__
        problem = f"'{name}' returns {type(output).__name__}, but this loss reads a tensor."
        remedy = "Return the tensor alone: of a model of transformers its .logits."
        raise ConfigError(THIS_RUN, [Fault("model", problem, remedy)])
    return output.float()


class Loss:
    """Maps a model and a batch to a sum and the count it is to be divided by.

    The sum is in nats, to be minimised; metrics show `loss` in the unit that `loss_unit` says. The count is the number
    of samples (or tokens) that the sum runs over: the caller divides once, over everything it accumulated.
    """

    Parameters: ClassVar[type[LossParameters]] = LossParameters

    metric_names: ClassVar[Mapping[str, tuple[str, str, object] | None] | None] = None
    """What `metrics` gives: {name or pattern: None, or (key, operator, value) under which it is there}. A config that
    names another metric is refused before training; with None nothing is checked. A class that overrides `metrics` and
    says nothing here is not checked either."""

    header: ClassVar[tuple[str, ...]] = LABEL_COLUMNS
    """Names of the columns that `rows` gives."""

    reads_class_logits: ClassVar[bool] = False
    """Whether a model gives logits (B, C), a row for each text, which `disagreement(first, second)` compares, in nats
    summed over rows."""

    reads_softmax: ClassVar[bool] = False
    """Whether those logits become probabilities by one softmax, so that a temperature may divide them."""

    row_functions: ClassVar[Sequence[str]] = ()
    """Names of its methods that make something of each row of logits by itself, such as probabilities."""

    compares_rows: ClassVar[bool] = False
    """Whether the rows of a batch act on each other's loss, so that a batch in two halves gives another sum."""

    spans_processes: ClassVar[bool] = False
    """Of a loss that compares rows: whether it is the same when processes share a batch, because it gathers the rows of
    all of them, or compares only what a sampler keeps together."""

    hooks_model: ClassVar[bool] = False
    """Whether hooks are put onto parts of the model for a pass, which a compiled one would not call."""

    learns_labels: ClassVar[bool] = False
    """Whether every sample must have a label, so that data without any are refused before training."""

    asks_each_class: ClassVar[bool] = False
    """Whether probabilities are those of a sigmoid for each class, not of one softmax over all."""

    def __init__(self, parameters: LossParameters) -> None:
        self.parameters: Any = parameters

    @property
    def average(self) -> str | None:
        """How classes are averaged in precision, recall and F1; None where they are not, or it is fixed."""
        return None

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return (loss sum in nats, count, facts). Facts are sums too, left on the device."""
        raise NotImplementedError

    @classmethod
    def accumulates(cls) -> bool:
        """Tell whether `__call__`, of this class or of one that it extends, collects summaries over an evaluation."""
        codes = (getattr(vars(kind).get("__call__"), "__code__", None) for kind in cls.__mro__)
        return any(code is not None and "add_accumulative_summary" in code.co_names for code in codes)

    def disagreement(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the distance of two passes' logits (B, C), in nats summed over rows: if `reads_class_logits`."""
        raise NotImplementedError

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return what evaluation gathers: tensors with one row per sample, and single numbers that add up."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return what the loss has learned from the batches it saw, to resume with. Most learn nothing."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Compute every metric of a split, once, from its gathered predictions."""
        raise NotImplementedError

    def each_class(self, gathered: Gathered, labels: Sequence[str] | None) -> list[ClassScore]:
        """Return how well each class (or type of entity) is told in a split; none where nothing is classified.

        Args:
            gathered: its predictions.
            labels: names of the classes, where they are known.
        """
        del gathered, labels
        return []

    def judged(self, gathered: Gathered, labels: Sequence[str] | None) -> Judged | None:
        """Return how each row of a split was predicted, to find the worst; None where rows cannot be right or wrong.

        Args:
            gathered: its predictions.
            labels: names of the classes, where they are known.
        """
        del gathered, labels
        return None

    def metric(self, name: str, gathered: Gathered) -> float | None:
        """Compute one more metric that a config asks for by name; None when there is none of that name.

        Raises:
            Missing: the predictions lack what it needs.
        """
        return named.compute(name, gathered)

    def scores(self, gathered: Gathered) -> dict[str, float]:
        """Return `metrics`, and beside them those that a config asks for by name.

        Raises:
            ConfigError: there is no metric of a name, or the data lack what it needs.
        """
        found = self.metrics(gathered)
        known = self.parameters
        for key, names in (("metrics", getattr(known, "metrics", ())), ("major_metric", [_major_metric(known)])):
            for name in names:
                if name is not None and name not in found:
                    found[name] = self._asked_for(key, name, gathered, found)
        return found

    def _asked_for(self, key: str, name: str, gathered: Gathered, found: Mapping[str, float]) -> float:
        try:
            value = self.metric(name, gathered)
        except named.Missing as error:
            raise ConfigError(THIS_RUN, [Fault(key, f"{error}.", "Choose another metric.")]) from error
        if value is None:
            near = nearest(name, found)
            hint = f"Did you mean '{near}'? " if near else ""
            problem, remedy = f"this loss has no '{name}'.", f"{hint}It has: {', '.join(sorted(found))}."
            raise ConfigError(THIS_RUN, [Fault(key, problem, remedy)])
        return value

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None) -> Iterator[list[str]] | None:
        """Return what x-pred writes for each sample under `header`; None where it is the class and its probability."""
        del predictions, labels
        return None

    def columns(self) -> Sequence[str]:
        """Name the columns that `rows` gives; by default those of `header`."""
        return self.header

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Compute what the training log shows from the summed facts of some updates (`loss_sum`, `count`, ...)."""
        return {"loss": self.mean_loss(facts)}

    def mean_loss(self, sums: Mapping[str, Any]) -> float:
        """Return loss_sum / count in `loss_unit`; nan when nothing was counted, and nan when the sum is."""
        return self.in_unit(float(sums["loss_sum"]), float(sums["count"]))

    def in_unit(self, nats: float, count: float) -> float:
        """Return the mean of a sum of nats in `loss_unit`; nan when nothing was counted."""
        return nats / count * UNITS[getattr(self.parameters, "loss_unit", "nats")] if count else float("nan")


def _major_metric(parameters: LossParameters) -> str | None:
    """Return the metric that decides what is best; None where the parameters do not tell."""
    name = getattr(parameters, "major_metric", None)
    return name if isinstance(name, str) else None
