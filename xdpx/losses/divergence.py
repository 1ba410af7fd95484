"""How far two predictions are apart."""

from __future__ import annotations

from torch import Tensor


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """Give the sum over rows of (KL(p|q) + KL(q|p)) / 2 in nats, of the logarithms of probabilities, (B, C) each."""
    return ((first.exp() - second.exp()) * (first - second)).sum() / 2.0
