"""The plain supervised task."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from xdpx.config.faults import refusal, wrong_return
from xdpx.config.loading import Run
from xdpx.config.registry import made
from xdpx.engines import base
from xdpx.losses.base import Batch, Loss
from xdpx.models.pytorch.base import Model
from xdpx.tasks.parameters import DataParameters, NetworkParameters


def network_of(run: Run) -> Model:
    """Build the network of a run."""
    network: Model = run.build("model")
    return network


class Task(base.Task):
    """One model, one loss: a batch in; a loss sum, a count and facts, or predictions, out."""

    shuffles_held_out: ClassVar[bool] = False
    """Whether partial evaluations (`max_eval_steps`) use rows drawn from the whole split, not the first ones."""

    hooks_model: ClassVar[bool] = False
    """Whether `train_step` puts hooks on parts of the model, which a compiled model would not call."""
    may_share_weights: ClassVar[bool] = True
    """Whether weights may be sharded over processes (`strategy: fsdp`): the model is used only within `train_step` or
    `valid_step`, and gradients flow only through what these return."""

    class Parameters(DataParameters, NetworkParameters):
        """Keys of every task: network, loss and data."""

    def __init__(self, parameters: Parameters, model: nn.Module, loss: Loss) -> None:
        self.parameters = parameters
        self.model = model
        self.loss = loss

    @classmethod
    def built(cls, run: Run, loss: Any) -> Task:
        """Return the task of a run, with the network that it trains."""
        return made("task", cls, run.parameters("task"), network_of(run), loss)

    def idle_keys(self) -> dict[str, str]:
        """Return the keys that change nothing in this training, and why: here those of the network."""
        return self.model.idle_keys() if isinstance(self.model, Model) else {}

    def load_pretrained(self, read_weights: base.ReadWeights) -> None:
        """Load the pretrained weights that the model's config names."""
        self.model.load_pretrained(read_weights)

    def train_step(self, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return (loss sum in nats, count, facts) of one micro-batch; the caller divides and runs the backward pass."""
        return self.loss(self.model, batch)

    @staticmethod
    def train_metrics(facts: Mapping[str, float]) -> dict[str, float]:
        """Return metrics for the training log in addition to the loss's, from the summed facts of some updates."""
        del facts
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save beside the weights, for resuming."""
        return self.loss.state_dict()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.loss.load_state_dict(saved)

    def valid_step(self, batch: Batch) -> dict[str, Tensor]:
        """Return the predictions of one batch: tensors with a row per sample, and scalars to be summed over batches.

        A loss that accumulates summaries in `__call__` is also called, because `predictions` does not do so.

        Raises:
            ConfigError: the output of the processor does not match the inputs of the model.
        """
        try:
            found: Any = self.loss.predictions(self.model, batch)
            if not isinstance(found, dict):
                remedy = "Return a dict of tensors with a row per sample."
                raise wrong_return("loss", self.loss, "predictions", f"{type(found).__name__}", remedy)
            if "target" in batch and self.loss.accumulates():
                self.loss(self.model, batch)
            return found
        except TypeError as error:
            self._refuse_misfit(batch["net_input"], error)
            raise

    def _refuse_misfit(self, given: Mapping[str, Any], error: TypeError) -> None:
        taken = inspect.signature(self.model.forward).parameters
        named = {name: one for name, one in taken.items() if one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}}
        required = {name for name, one in named.items() if one.default is one.empty}
        takes_any = any(one.kind is one.VAR_KEYWORD for one in taken.values())
        if required <= given.keys() and (takes_any or given.keys() <= named.keys()):
            return
        problem = f"'{self.parameters.model}' takes {', '.join(named)}, but the processor gives {', '.join(given)}."
        remedy = "Choose a model for this kind of text (single or pair), or preprocess with another processor."
        raise refusal("model", problem, remedy) from error

    def row_functions(self) -> Sequence[tuple[object, str]]:
        """Return (object, method name) of the functions that turn logits into predictions, row by row."""
        return [(self.loss, name) for name in self.loss.row_functions]

    def header(self) -> list[str]:
        """Return the names of the columns that `rows` yields."""
        columns: Any = self.loss.columns()
        if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
            raise wrong_return("loss", self.loss, "columns", f"{columns!r:.80}", "Return a list of texts.")
        return list(columns)

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None = None) -> Iterator[list[str]]:
        """Yield the cells of each sample, as text.

        Args:
            predictions: `prob` (N, C), `pred` (N) and optionally `target` (N), as numpy arrays.
            labels: names of the classes; without them classes are shown as numbers.

        Yields:
            The predicted class, all probabilities as a Python list, and the probability of the target (of the
            predicted class where there is no target).
        """
        own = self.own_rows(predictions, labels)
        if own is not None:
            yield from own
            return
        prob = np.asarray(predictions["prob"], dtype=np.float64).round(6)
        pred = np.asarray(predictions["pred"])
        target = np.asarray(predictions.get("target", pred))
        if pred.ndim == 2:
            yield from _rows_of_several(prob, pred, target, labels)
            return
        known = (target >= 0) & (target < prob.shape[1])
        wanted = np.take_along_axis(prob, np.where(known, target, 0)[:, None], axis=1)[:, 0]
        wanted = np.where(known, wanted, math.nan)
        names = labels or [str(index) for index in range(prob.shape[1])]
        for choice, shares, share in zip(pred.tolist(), prob.tolist(), wanted.tolist(), strict=True):
            yield [names[choice], str(shares), str(share)]

    def own_rows(
        self, predictions: Mapping[str, Any], labels: Sequence[str] | None = None
    ) -> Iterator[list[str]] | None:
        """Return the rows of a loss that makes them itself; None if they are classes and probabilities."""
        own = self.loss.rows(predictions, labels)
        return None if own is None else self._checked(own)

    def _checked(self, rows: Any) -> Iterator[list[str]]:
        """Yield rows of cells. Raises ConfigError: a user's loss yields other cells than its header names."""
        header = self.header()
        if not isinstance(rows, Iterable):
            remedy = "Yield the cells of each sample, or return None for class and probability."
            raise wrong_return("loss", self.loss, "rows", f"{rows!r:.80}", remedy)
        for row in rows:
            fits = isinstance(row, list | tuple) and len(row) == len(header)
            if not fits or not all(isinstance(cell, str) for cell in row):
                remedy = f"Yield {len(header)} texts for each sample: {', '.join(header)} (its header)."
                raise wrong_return("loss", self.loss, "rows", f"{row!r:.80}", remedy)
            yield list(row)


def _rows_of_several(prob: Any, pred: Any, target: Any, labels: Sequence[str] | None) -> Iterator[list[str]]:
    """Yield the labels of each row (joined by commas), all probabilities, and those of the row's targets, as lists."""
    names = labels or [str(index) for index in range(prob.shape[1])]
    for found, shares, wanted in zip(pred.astype(bool), prob, target.astype(bool), strict=True):
        chosen = ",".join(name for name, there in zip(names, found, strict=True) if there)
        yield [chosen, str(shares.tolist()), str(shares[wanted].tolist())]
