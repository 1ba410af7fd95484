"""Sampling: which of the likely tokens comes next. R rows, V ids."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def tempered(logits: jax.Array, temperature: float) -> jax.Array:
    """Divide logits (R, V) by the temperature: below 1 the likely tokens become likelier, above 1 less so."""
    return logits / temperature


def among_top_k(logits: jax.Array, k: int) -> jax.Array:
    """Rule out all but the `k` likeliest tokens of each row; 0 keeps all. Ties with the last one stay.

    Source: Fan et al., "Hierarchical Neural Story Generation", ACL 2018, section 5.4.
    """
    if k <= 0 or k >= logits.shape[-1]:
        return logits
    least = jax.lax.top_k(logits, k)[0][..., -1:]
    return jnp.where(logits < least, -jnp.inf, logits)


def among_top_p(logits: jax.Array, p: float) -> jax.Array:
    """Rule out all but the fewest tokens of each row whose probabilities add up to at least `p`; 1 keeps all.

    Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020, section 3.1.
    """
    if p >= 1.0:
        return logits
    order = jnp.argsort(-logits, axis=-1)
    likely = jax.nn.softmax(jnp.take_along_axis(logits, order, axis=-1), axis=-1)
    before = jnp.cumsum(likely, axis=-1) - likely
    kept = (before < p).at[..., 0].set(True)
    back = jnp.argsort(order, axis=-1)
    return jnp.where(jnp.take_along_axis(kept, back, axis=-1), logits, -jnp.inf)


def drawn(logits: jax.Array, keys: jax.Array, number: jax.Array) -> jax.Array:
    """Draw one id per row, from a stream of its own: what a row gets does not depend on its neighbours.

    Args:
        logits: shape (R, V); minus infinity is never drawn.
        keys: one key per row, shape (R,).
        number: of the new token, so that each position draws anew.

    Returns:
        Ids, shape (R,).
    """

    def one(key: jax.Array, row: jax.Array) -> jax.Array:
        return jax.random.categorical(jax.random.fold_in(key, number), row)

    drawn_ids: jax.Array = jax.vmap(one)(keys, logits)
    return drawn_ids


def row_keys(key: jax.Array, count: int) -> jax.Array:
    """Give a key for each of `count` rows: row r gets the same one whatever the count."""
    keys: jax.Array = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(count))
    return keys
