"""What training, evaluating and predicting give back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class TrainOutput(NamedTuple):
    """What `train` gives back; `training_loss` is the mean over the steps of this very call."""

    global_step: int
    training_loss: float
    metrics: dict[str, float]


class PredictionOutput(NamedTuple):
    """What `predict` gives back: numpy arrays (tuples or dicts of them), rows in the order of the data set."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float] | None


class EvalLoopOutput(NamedTuple):
    """What `evaluation_loop` gives back."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float]
    num_samples: int | None


class EvalPrediction:
    """What `compute_metrics` is called with. Unpacks like a tuple of those parts that are there."""

    def __init__(self, predictions: Any, label_ids: Any, inputs: Any = None, losses: Any = None) -> None:
        self.predictions, self.label_ids, self.inputs, self.losses = predictions, label_ids, inputs, losses
        optional = (part for part in (inputs, losses) if part is not None)
        self.elements = (predictions, label_ids, *optional)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)

    def __getitem__(self, index: int) -> Any:
        return self.elements[index]
