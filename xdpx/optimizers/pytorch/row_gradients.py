"""Steps with sparse gradients of embeddings: the rows of a batch's tokens. V vocabulary, R rows, H hidden size."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class RowsAsDense:
    """Replaces sparse gradients by dense ones during a step.

    So the update equals that with dense gradients. Each dense (V, H) buffer is reused: only its used rows are reset.
    """

    def __init__(self) -> None:
        self._dense: dict[nn.Parameter, Tensor] = {}

    @contextmanager
    def during_step(self, groups: list[dict[str, Any]]) -> Generator[None]:
        """Replace sparse gradients by dense ones (V, H) in the block; then restore the rows, as changed by the step."""
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
