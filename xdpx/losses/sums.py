"""A check that a loss of a user returns a sum over rows, not their mean, beside the number of rows."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from xdpx.engines.pytorch.transfer import to_device
from xdpx.losses.base import Batch, Loss

CLEARLY = 0.05
"""Least share of the loss of one half in that of the other, so that a sum of both exceeds either."""
ROUNDED = 1e-3


def gives_mean(loss: Any, model: nn.Module, batch: Batch) -> bool:
    """Return whether a loss gives a mean and the count of rows, so that it would be divided by the count twice.

    The loss of a batch is compared with those of its halves: a sum is theirs together, a mean lies between them. False
    wherever that cannot be told.
    """
    if not isinstance(loss, Loss) or loss.compares_rows:
        return False
    was_training = model.training
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model.eval()
            device = next(model.parameters()).device
            whole, first, second = (to_device(each, device) for each in _with_halves(batch))
            twin = copy.deepcopy(loss)  # which may count its calls
            found = [_numbers(twin(model, each)) for each in (whole, first, second)]
    except Exception:  # of a user's code; the first update raises it in its place
        return False
    finally:
        model.train(was_training)
    (total, count), (one, ones), (other, others) = found
    low, high = min(one, other), max(one, other)
    told_apart = low > CLEARLY * high and min(ones, others) > 0 and count == ones + others
    return told_apart and low * (1 - ROUNDED) <= total <= high * (1 + ROUNDED)


def _numbers(found: Any) -> tuple[float, float]:
    loss_sum, count, _ = found
    return float(loss_sum), float(count)


def _with_halves(batch: Batch) -> tuple[Batch, Batch, Batch]:
    """Return a batch and its halves. Raises ValueError if it does not consist of rows."""
    rows = len(batch["id"])
    if rows < 2:
        raise ValueError("one row has no halves")
    return batch, _part(batch, rows, slice(0, rows // 2)), _part(batch, rows, slice(rows // 2, rows))


def _part(value: Any, rows: int, wanted: slice) -> Any:
    if isinstance(value, Mapping):
        return {name: _part(each, rows, wanted) for name, each in value.items()}
    if isinstance(value, Tensor | np.ndarray | list | tuple):
        if len(value) != rows:
            raise ValueError("not a row for each sample")
        return value[wanted]
    return value
