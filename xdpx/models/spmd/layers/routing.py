"""Routing of tokens to experts: top-k gates, a fixed capacity, and a load-balancing loss.

G groups, S tokens per group, E experts, C slots of an expert per group, K experts per token.

Source: Lepikhin et al., "GShard", ICLR 2021, algorithm 1; the loss as in Fedus et al., "Switch Transformers",
JMLR 2022, equations 4 to 6.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

SMALLEST = 1e-9
"""Lower bound of the sum of a token's gates."""


class Routing(NamedTuple):
    """The assignment of tokens to experts.

    Attributes:
        combine: the weight of an expert's slot in a token's output, shape (G, S, E, C); 0 nearly everywhere.
        dispatch: whether the slot contains the token, the same shape, boolean.
        balance: balance loss: 1 for equally busy experts, at most E; a scalar.
        dropped: share of requested slots, from 0 to 1, that exceeded the capacity; a scalar.
    """

    combine: jax.Array
    dispatch: jax.Array
    balance: jax.Array
    dropped: jax.Array


def capacity_of(tokens: int, experts: int, factor: float, least: int = 0) -> int:
    """Return the number of slots of each expert per group.

    Args:
        tokens: number of tokens of a group.
        experts: number of experts.
        factor: slots per token: with K experts per token, K is enough for equally busy experts.
        least: minimum number of slots.
    """
    return max(1, least, min(tokens, int(tokens * factor / experts)))


def gates_of(logits: jax.Array, experts_per_token: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return probabilities, gates and experts of each token.

    Args:
        logits: of the router, shape (G, S, E).
        experts_per_token: K.

    Returns:
        (probabilities (G, S, E), gates (G, S, K) that sum to 1, experts (G, S, K), most probable first).
    """
    probabilities = jax.nn.softmax(logits.astype(jnp.float32), axis=-1)
    gates, chosen = jax.lax.top_k(probabilities, experts_per_token)
    total = jnp.maximum(gates.sum(-1, keepdims=True), SMALLEST)
    return probabilities, gates / total, chosen


def route(logits: jax.Array, counts: jax.Array, *, experts_per_token: int, capacity: int) -> Routing:
    """Return the slots of every token.

    First choices of all tokens have priority over second ones, and earlier tokens over later ones.

    Args:
        logits: of the router, shape (G, S, E).
        counts: whether a token is real, shape (G, S): padding gets no slot.
        experts_per_token: K.
        capacity: C.
    """
    probabilities, gates, chosen = gates_of(logits, experts_per_token)
    wanted = jax.nn.one_hot(chosen, logits.shape[-1], dtype=jnp.float32) * counts[..., None, None]
    place = _places(wanted)
    kept = wanted * (place < capacity)
    slot = jax.nn.one_hot(jnp.sum(place * wanted, axis=-1).astype(jnp.int32), capacity, dtype=jnp.float32)
    combine = jnp.einsum("gsk,gske,gskc->gsec", gates, kept, slot)
    held = jnp.einsum("gske,gskc->gsec", kept, slot) > 0
    dropped = 1.0 - kept.sum() / jnp.maximum(wanted.sum(), 1.0)
    return Routing(combine, held, _balance(probabilities, wanted[:, :, 0], counts), dropped)


def _places(wanted: jax.Array) -> jax.Array:
    """Return the index, from 0, of each token in its expert's queue: rank by rank, and within a rank by position."""
    by_rank = jnp.swapaxes(wanted, 1, 2)
    groups, ranks, tokens, experts = by_rank.shape
    queue = by_rank.reshape(groups, ranks * tokens, experts)
    places = (jnp.cumsum(queue, axis=1) - queue).reshape(by_rank.shape)
    return jnp.swapaxes(places, 1, 2)


def _balance(probabilities: jax.Array, first: jax.Array, counts: jax.Array) -> jax.Array:
    """Return E * sum over experts of (share of tokens with it as first choice) * (its mean probability).

    It is a mean over the groups with tokens: rows that only fill a batch up have none.
    """
    real = jnp.maximum(counts.sum(axis=1, keepdims=True).astype(jnp.float32), 1.0)
    share = first.sum(axis=1) / real
    mean = (probabilities * counts[..., None]).sum(axis=1) / real
    filled = jnp.maximum(jnp.sum(counts.max(axis=1) > 0), 1)
    balance: jax.Array = probabilities.shape[-1] * jnp.sum(share * mean) / filled
    return balance
