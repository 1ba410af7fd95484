"""Steps over embeddings whose gradient is rows: those of the tokens of a batch. V vocabulary, R rows, H hidden size."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class RowsAsDense:
    """Shows an optimizer dense gradients in place of rows, for the time of one step.

    So the weights move exactly as with dense gradients. Each (V, H) is kept and cleared row by row, never filled anew.
    """

    def __init__(self) -> None:
        self._dense: dict[nn.Parameter, Tensor] = {}

    @contextmanager
    def during_step(self, groups: list[dict[str, Any]]) -> Generator[None]:
        """Put dense gradients (V, H) in place of rows; afterwards the rows again, as the step has left them."""
        shown = [
            (weight, weight.grad.coalesce())
            for group in groups
            for weight in group["params"]
            if weight.grad is not None and weight.grad.is_sparse
        ]
        for weight, rows in shown:
            weight.grad = self._filled(weight, rows)
        try:
            yield
        finally:
            for weight, rows in shown:
                index_R = rows.indices()[0]
                rows.values().copy_(weight.grad[index_R])
                weight.grad[index_R] = 0.0
                weight.grad = rows

    def _filled(self, weight: nn.Parameter, rows: Tensor) -> Tensor:
        dense = self._dense.get(weight)
        if dense is None:
            dense = self._dense[weight] = torch.zeros_like(weight, requires_grad=False)
        dense[rows.indices()[0]] = rows.values()
        return dense
