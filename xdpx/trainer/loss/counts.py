"""Counters of a Trainer that do not synchronise with the device: tokens, FLOPs, the loss over a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from xdpx.engines.pytorch import collectives
from xdpx.logger import log
from xdpx.trainer.loss.model_loss import count_targets


class TokenCounter:
    """Counts input tokens, all of them or those that are not padding (`include_num_input_tokens_seen`).

    Args:
        mode: "no", "all" or "non_padding".
        name: of the model's main input.
        pad_id: id of the padding token, for batches without an attention mask.
    """

    def __init__(self, mode: str, name: str, pad_id: int | None) -> None:
        self.mode, self._name, self._pad_id = mode, name, pad_id
        self._new: Any = 0

    def add(self, inputs: Any) -> None:
        """Count the tokens of a micro-batch; the sum may stay on the device."""
        if self.mode == "no":
            return
        if self._name not in inputs:
            log.warning(
                "Tried to track the number of tokens seen, however the current model is not configured properly to "
                f"know what item is the input: batches have no '{self._name}'. To fix this, add a `main_input_name` "
                "attribute to the model class you are using.",
                once=True,
                under="transformers.trainer",
            )
            return
        self._new = self._new + self._count(inputs)

    def _count(self, inputs: Any) -> Any:
        if self.mode == "non_padding":
            if "attention_mask" in inputs:
                return inputs["attention_mask"].sum()
            if self._pad_id is not None:
                return (inputs[self._name] != self._pad_id).sum()
            log.warning(
                "Could not determine method to count non-padding tokens, falling back to counting all tokens.",
                once=True,
                under="transformers.trainer",
            )
        return inputs[self._name].numel()

    def settle(self, state: Any, device: Any) -> None:
        """Add the count of all processes to the state; on all processes."""
        if self.mode == "no":
            return
        new, self._new = self._new, 0
        if not isinstance(new, int) or collectives.num_processes() > 1:  # otherwise the host knows it already
            new = int(collectives.sum_over_ranks(torch.as_tensor(new, device=device, dtype=torch.int64)))
        state.num_input_tokens_seen += new


def operations_per_token(model: Any) -> int:
    """Return the FLOPs of a forward and a backward pass per input token; 0 if unknown."""
    if not hasattr(model, "num_parameters"):
        return 0
    return 6 * int(model.num_parameters(exclude_embeddings=True))


class LossTally:
    """The loss over a dataset, independent of batches and ranks: its sum over targets or rows, over their number."""

    def __init__(self, device: torch.device) -> None:
        exact = torch.float32 if device.type == "mps" else torch.float64  # MPS has no double precision
        # by targets: sum and number; by rows: the same; processes that saw a mean over targets, and one over rows
        self._sums = torch.zeros(6, dtype=exact, device=device)
        self._empty = True

    def add(self, loss: torch.Tensor, targets: torch.Tensor | int, rows: int) -> None:
        """Add the mean loss of a batch; a batch without targets (its mean is NaN) adds nothing."""
        self._empty = False
        number = torch.as_tensor(targets, device=self._sums.device, dtype=self._sums.dtype)
        numbers = torch.stack((number, torch.where(number > 0, float(rows), 0.0).to(number)))
        weighted = torch.where(numbers > 0, loss.to(self._sums) * numbers, torch.zeros_like(numbers))
        self._sums[:4] += torch.stack((weighted, numbers), dim=1).flatten()

    def mean(self, *, over_targets: bool | None) -> float | None:
        """Return the mean over all ranks; on all ranks. None if no batch had a loss.

        Args:
            over_targets: whether losses are means over the targets of their batches; None if this process does not
                know. They count by rows, as in the original, if a process says that they are not, or none knows.
        """
        if over_targets is not None and not self._empty:
            self._sums[4 if over_targets else 5] += 1
        *sums, over, against = collectives.sum_over_ranks(self._sums).tolist()
        total, count = sums[:2] if over and not against else sums[2:]
        if self._empty and not count:
            return None
        return float(total / count) if count else float("nan")


def targets_of(inputs: Any, rows: int, *, shift: bool) -> torch.Tensor | int:
    """Return the number of targets of a batch; the number of rows for float labels, or if they cannot be counted."""
    labels = inputs.get("labels") if isinstance(inputs, Mapping) else None
    if isinstance(labels, torch.Tensor) and labels.is_floating_point():
        return rows
    count = count_targets([inputs], shift=shift)
    return rows if count is None else count
