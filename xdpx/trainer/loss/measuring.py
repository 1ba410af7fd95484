"""Measure what a loss is, where its code does not tell: whether it follows the count, and what it is the mean over.

Shapes: B rows, T positions, C classes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.engines.pytorch.tracing_back import buffers_kept
from xdpx.trainer.loss.model_loss import IGNORED, loss_of

ROUNDED = 1e-3
"""Relative difference by which two computations of one loss may differ."""
ROUNDED_SHORT = 2e-2
"""The same in 16 bits."""


def follows_count(model: nn.Module, inputs: Mapping[str, Any], name: str) -> bool | None:
    """Return whether the loss of a model changes with the count; None if this batch does not tell.

    The loss is computed for the count and for twice as much, in evaluation mode, without gradients and with the same
    random numbers. Modes of all modules, buffers and torch's random generators are left as they were.

    Args:
        model: unwrapped; with sharded weights, all processes must call this together.
        inputs: of its forward, with the count under `name`.
        name: of the count.
    """
    cuda = list({weight.device for weight in model.parameters() if weight.device.type == "cuda"})
    losses = []
    with torch.no_grad(), _evaluating(model), buffers_kept(model):
        for factor in (1, 2):
            with torch.random.fork_rng(devices=cuda):
                torch.manual_seed(0)
                losses.append(float(loss_of(model(**{**inputs, name: inputs[name] * factor}), inputs)))
    one, other = losses
    if not torch.isfinite(torch.tensor(losses)).all() or one == 0:  # no targets: their sum is 0 for any count
        return None
    return abs(one - other) > ROUNDED * abs(one)


@contextmanager
def _evaluating(model: nn.Module) -> Generator[None]:
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


def mean_over_targets(loss: Tensor, outputs: Any, labels: Any) -> tuple[bool, bool]:
    """Return (whether a loss is the mean cross-entropy over the targets of its batch, whether the batch proves it).

    A batch proves nothing if the mean over targets equals the mean of the means of its rows, as it does where all rows
    have equally many targets. A loss of another form, or whose logits are not found, is (False, True).

    Args:
        loss: shape ().
        outputs: of the model, which have its logits, (B, ..., C).
        labels: integers (B, ...), `IGNORED` where there is no target.
    """
    close = ROUNDED if loss.dtype == torch.float32 else ROUNDED_SHORT
    for logits in _logits(outputs, labels):
        # Of a label for each row, nothing is to be told apart: all are one row here.
        scores, targets = (logits[None], labels[None]) if labels.dim() == 1 else (logits, labels)
        for shifted in (False, True) if labels.dim() == 2 else (False,):
            sums_B, counts_B = _sums(scores, targets, shifted=shifted)
            there = counts_B > 0
            mean = sums_B.sum() / counts_B.sum()  # NaN without a target, which is close to nothing
            if torch.isclose(loss.float(), mean, rtol=close, atol=0):
                of_rows = (sums_B[there] / counts_B[there]).mean()
                return True, not torch.isclose(of_rows, mean, rtol=2 * close, atol=0)
    return False, True


def _logits(outputs: Any, labels: Any) -> Iterator[Tensor]:
    """Yield the outputs that may be logits, by their shapes: those with a score of each class for each label."""
    if not isinstance(labels, Tensor) or labels.is_floating_point() or not labels.dim():
        return
    found = outputs.values() if isinstance(outputs, Mapping) else outputs
    for each in (found,) if isinstance(found, Tensor) else found if isinstance(found, Iterable) else ():
        if isinstance(each, Tensor) and each.shape[:-1] == labels.shape and int(labels.max()) < each.shape[-1]:
            yield each


def _sums(logits: Tensor, labels: Tensor, *, shifted: bool) -> tuple[Tensor, Tensor]:
    """Return (sum of cross-entropy, number of targets) of each row, (B,), one row at a time: logits may be large."""
    sums = []
    for row, its in zip(logits, labels, strict=True):
        scores, targets = (row[:-1], its[1:]) if shifted else (row, its)
        flat = scores.reshape(-1, scores.shape[-1]).float(), targets.reshape(-1)
        sums.append(functional.cross_entropy(*flat, ignore_index=IGNORED, reduction="sum"))
    targets = labels[:, 1:] if shifted else labels
    return torch.stack(sums), targets.ne(IGNORED).reshape(len(labels), -1).sum(1)
