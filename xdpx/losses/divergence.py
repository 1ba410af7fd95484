"""How far two predictions are apart."""

from __future__ import annotations

from torch import Tensor


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """Give the sum over rows of (KL(p|q) + KL(q|p)) / 2 in nats, of two tables of logits (B, C)."""
    p, q = first.log_softmax(dim=-1), second.log_softmax(dim=-1)
    return ((p.exp() - q.exp()) * (p - q)).sum() / 2.0
