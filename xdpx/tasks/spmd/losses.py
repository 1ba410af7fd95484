"""The losses of x-train on JAX: the same sums, facts and predictions. B rows, P tokens of a row, V classes or words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.models.spmd.scoring import cross_entropy

Batch = Mapping[str, Any]
"""Arrays of the device: `target` and `weights`, which are 0 where a batch was only filled up."""

BEST = 5


class CrossEntropy:
    """The loss `cross_entropy` on JAX, including R-Drop.

    Args:
        parameters: those of the loss of x-train.

    Attributes:
        passes: number of forward passes per batch, each with its own dropout, whose logits `train` takes.
        facts: names of the facts that `train` returns.
    """

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters
        self.passes = 2 if parameters.use_r_dropout else 1
        self.facts: tuple[str, ...] = ("correct", *(("ce_loss", "kl_loss") if parameters.use_r_dropout else ()))

    def train(self, logits: Sequence[jax.Array], batch: Batch) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
        """Return (sum in nats, number of rows, facts) from the logits (B, V) of each pass."""
        weights, target = batch["weights"], batch["target"]
        sums = [jnp.sum(cross_entropy(each, target) * weights) for each in logits]
        facts = {"correct": jnp.sum((jnp.argmax(logits[0], axis=-1) == target) * weights)}
        if self.passes == 1:
            return sums[0], jnp.sum(weights), facts
        likelihood, disagreement = (sums[0] + sums[1]) / 2.0, jnp.sum(_divergence(*logits) * weights)
        facts |= {"ce_loss": likelihood, "kl_loss": disagreement}
        return likelihood + self.parameters.kl_alpha * disagreement, jnp.sum(weights), facts

    def predictions(self, logits: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        """Return prob (B, V), pred (B), and for labelled batches loss_sum and count."""
        prob = jax.nn.softmax(logits, axis=-1)
        found = {"prob": prob, "pred": self._predict(prob)}
        if "target" in batch:
            sums = jnp.sum(cross_entropy(logits, batch["target"]) * batch["weights"])
            found |= {"loss_sum": sums, "count": jnp.sum(batch["weights"])}
        return found

    def _predict(self, prob: jax.Array) -> jax.Array:
        threshold = self.parameters.predict_threshold
        if threshold is None:
            return jnp.argmax(prob, axis=-1)
        negative = self.parameters.negative_classes_in_f1 or [0]
        others = prob.at[:, jnp.asarray(negative)].set(-1.0)
        return jnp.where(others.max(axis=-1) >= threshold, jnp.argmax(others, axis=-1), negative[0])


class TokenCrossEntropy:
    """The loss `causal_lm` on JAX: sums over the predicted tokens.

    Args:
        parameters: those of the loss of x-train.
    """

    passes = 1
    facts: tuple[str, ...] = ("correct",)

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    def train(self, logits: Sequence[jax.Array], batch: Batch) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
        """Return (sum in nats, number of tokens, facts) from the logits (B, P, V) of the one pass."""
        weights, target = batch["weights"], batch["target"]
        correct = jnp.sum((jnp.argmax(logits[0], axis=-1) == target) * weights)
        return jnp.sum(cross_entropy(logits[0], target) * weights), jnp.sum(weights), {"correct": correct}

    def predictions(self, logits: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        """Return sums only: loss_sum, count, correct."""
        loss_sum, count, facts = self.train([logits], batch)
        return {"loss_sum": loss_sum, "count": count, **facts}


class MaskedTokens(TokenCrossEntropy):
    """The loss `masked_lm` on JAX, which also counts tokens among the five most likely."""

    def predictions(self, logits: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        """Return sums only: loss_sum, count, correct, top5_correct."""
        best = jax.lax.top_k(logits, min(BEST, logits.shape[-1]))[1] == batch["target"][..., None]
        among = jnp.sum(best.any(axis=-1) * batch["weights"])
        return {**super().predictions(logits, batch), "top5_correct": among}


def _divergence(first: jax.Array, second: jax.Array) -> jax.Array:
    """Return (KL(p|q) + KL(q|p)) / 2 of each row in nats."""
    p, q = jax.nn.log_softmax(first, axis=-1), jax.nn.log_softmax(second, axis=-1)
    return jnp.sum((jnp.exp(p) - jnp.exp(q)) * (p - q), axis=-1) / 2.0
