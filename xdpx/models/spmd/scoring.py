"""Comparison of predictions with labels, shared by all models. V classes or words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal

Metrics = dict[str, tuple[jax.Array, jax.Array]]
"""(mean, weight) by name."""

SMALLEST = 1e-8
"""Lower bound of a sum of weights."""


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the cross entropy (...), in nats, of labels (...) with logits (..., V), float32.

    The label's logit is selected by a comparison instead of a gather, so that a sharded vocabulary stays sharded.
    """
    is_label = labels[..., None] == jnp.arange(logits.shape[-1])
    picked = jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)
    nats: jax.Array = jax.nn.logsumexp(logits.astype(jnp.float32), axis=-1) - picked
    return nats


def smoothed(xent: jax.Array, logits: jax.Array, share: float) -> jax.Array:
    """Return the cross entropy with label smoothing.

    Args:
        xent: cross entropy of the labels, (...).
        logits: shape (..., V).
        share: of the target that is spread over all classes, from 0 to 1.

    Source: Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016, section 7.
    """
    if not share:
        return xent
    log_z = jax.nn.logsumexp(logits.astype(jnp.float32), axis=-1)
    return (1.0 - share) * xent + share * (log_z - jnp.mean(logits, axis=-1))


def smoothing_of(model: Any) -> float:
    """Return the share of label smoothing of a model: its `label_smoothing_prob` in training, 0 in evaluation.

    Raises:
        ConfigError: it is not in [0, 1).
    """
    share: float = model.label_smoothing_prob
    if not 0.0 <= share < 1.0:
        raise refusal("label_smoothing_prob", f"is {share}.", "Give a share from 0 to less than 1, e.g. 0.1.")
    return 0.0 if model.do_eval else share


def mean_of(values: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the weighted mean; 0 if all weights are 0."""
    return jnp.sum(values * weights) / jnp.maximum(jnp.sum(weights), SMALLEST)


def with_rows(weights: jax.Array, batch: Mapping[str, Any]) -> jax.Array:
    """Return the weights with padding rows of a batch set to 0.

    Args:
        weights: shape (B, ...).
        batch: has `eval_sample_weights` (B,) if some rows are padding.
    """
    rows = batch.get("eval_sample_weights")
    if rows is None:
        return weights.astype(jnp.float32)
    return jnp.multiply(weights, rows.astype(jnp.float32).reshape(-1, *[1] * (weights.ndim - 1)))
