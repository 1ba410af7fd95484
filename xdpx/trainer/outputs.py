"""Return values of training, evaluating and predicting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class TrainOutput(NamedTuple):
    """The return value of `train`; `training_loss` is the mean over the steps of this call."""

    global_step: int
    training_loss: float
    metrics: dict[str, float]


class PredictionOutput(NamedTuple):
    """The return value of `predict`: numpy arrays (or tuples or dicts of them), rows in data set order."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float] | None


class EvalLoopOutput(NamedTuple):
    """The return value of `evaluation_loop`."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float]
    num_samples: int | None


class EvalPrediction:
    """The argument of `compute_metrics`. Unpacks like a tuple of the parts that are not None."""

    def __init__(self, predictions: Any, label_ids: Any, inputs: Any = None, losses: Any = None) -> None:
        self.predictions, self.label_ids, self.inputs, self.losses = predictions, label_ids, inputs, losses
        optional = (part for part in (inputs, losses) if part is not None)
        self.elements = (predictions, label_ids, *optional)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)

    def __getitem__(self, index: int) -> Any:
        return self.elements[index]
