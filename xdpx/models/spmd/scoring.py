"""How predictions are compared with labels: what all models share. V classes or words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

Metrics = dict[str, tuple[jax.Array, jax.Array]]
"""(mean, weight) by name."""

SMALLEST = 1e-8
"""Keeps a sum of weights from zero."""


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the nats of labels (...) under logits (..., V), float32.

    The label is picked by a comparison, not by a gather: a vocabulary that is split over devices stays split.
    """
    is_label = labels[..., None] == jnp.arange(logits.shape[-1])
    picked = jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)
    nats: jax.Array = jax.nn.logsumexp(logits.astype(jnp.float32), axis=-1) - picked
    return nats


def smoothed(xent: jax.Array, logits: jax.Array, share: float) -> jax.Array:
    """Spread a share of the target over all classes.

    Args:
        xent: cross entropy of the labels, (...).
        logits: shape (..., V).
        share: from 0 to 1.

    Source: Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016, section 7.
    """
    if not share:
        return xent
    log_z = jax.nn.logsumexp(logits.astype(jnp.float32), axis=-1)
    return (1.0 - share) * xent + share * (log_z - jnp.mean(logits, axis=-1))


def mean_of(values: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the weighted mean; 0 where nothing counts."""
    return jnp.sum(values * weights) / jnp.maximum(jnp.sum(weights), SMALLEST)


def with_rows(weights: jax.Array, batch: Mapping[str, Any]) -> jax.Array:
    """Let rows that only fill up a batch count nothing.

    Args:
        weights: shape (B, ...).
        batch: has `eval_sample_weights` (B,) if some rows are such.
    """
    rows = batch.get("eval_sample_weights")
    if rows is None:
        return weights.astype(jnp.float32)
    return jnp.multiply(weights, rows.astype(jnp.float32).reshape(-1, *[1] * (weights.ndim - 1)))
