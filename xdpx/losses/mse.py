"""Regression by mean squared error. B rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from xdpx.config.faults import refusal
from xdpx.losses.arithmetic import DeviceConstant
from xdpx.losses.base import Batch, Gathered, Loss, output_of
from xdpx.losses.parameters import RegressionParameters
from xdpx.metrics import Judged, judge_numbers, mean_squared_error, pearson, ratio, spearman
from xdpx.metrics.judging import NUMBER_COLUMNS
from xdpx.metrics.named import OF_SCORES


class MeanSquaredError(Loss):
    """The squared difference between prediction and label.

    Its unit is that of the labels, squared; `loss_unit` has no effect.
    """

    learns_labels: ClassVar[bool] = True
    of_any_size: ClassVar[bool] = True

    class Parameters(RegressionParameters):
        """Keys of `mse`."""

    parameters: Parameters

    metric_names = {**dict.fromkeys(("loss", "pearson", "spearman")), **OF_SCORES}
    header: ClassVar[tuple[str, ...]] = NUMBER_COLUMNS

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._label_values = DeviceConstant(parameters.label_values or [])

    @property
    def reads_numbers(self) -> bool:
        """True: a number is right wherever it is from."""
        return True

    def know_numbers(self, values: Sequence[float]) -> None:
        """Take the number of each label, those of training first."""
        self._label_values = DeviceConstant(values)

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum of squares over the rows of the batch, their number, and no facts."""
        score = output_of(model, batch)
        return (score - self._wanted(batch, score)).square().sum(), len(score), {}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return score (B,), and for labelled batches target (B,), the number that is wanted, loss_sum and count."""
        score = output_of(model, batch)
        if "target" not in batch:
            return {"score": score}
        wanted = self._wanted(batch, score)
        loss_sum = (score - wanted).square().sum()
        return {"score": score, "target": wanted, "loss_sum": loss_sum, "count": torch.tensor(len(score))}

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss (mean squared error), and the Pearson and Spearman correlations."""
        target, score = np.asarray(gathered["target"]), np.asarray(gathered["score"])
        return {
            "loss": mean_squared_error(target, score),
            "pearson": pearson(target, score),
            "spearman": spearman(target, score),
        }

    def judged(self, gathered: Gathered, labels: Sequence[str] | None) -> Judged:
        """Return an assessment of each row by its absolute error."""
        del labels
        return judge_numbers(np.asarray(gathered["target"]), np.asarray(gathered["score"]))

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss, the mean squared error, of the training batches."""
        return {"loss": ratio(facts["loss_sum"], facts["count"], empty=float("nan"))}

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None) -> Iterator[list[str]]:
        """Return the predicted number of each row, as text."""
        del labels
        return ([f"{score:.6g}"] for score in np.asarray(predictions["score"]).tolist())

    def _wanted(self, batch: Batch, score: Tensor) -> Tensor:
        if score.dim() != 1:  # else rows would silently be broadcast against columns
            problem = f"gives numbers of shape {tuple(score.shape)[1:]} for each row, and loss mse compares one."
            remedy = "Choose a regression model: cnn_regression, re2_regression or bert_regression."
            raise refusal("model", problem, remedy)
        return self._label_values.like(score)[batch["target"]]
