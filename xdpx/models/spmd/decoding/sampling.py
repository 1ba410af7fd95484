"""Sampling of the next token. R rows, V ids."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.models.spmd.decoding.greedy import Decoder
from xdpx.models.spmd.decoding.sequences import Decoded, DecodeStep, Prompts, gathered, grown, started


def tempered(logits: jax.Array, temperature: float) -> jax.Array:
    """Divide logits (R, V) by the temperature: below 1 probable tokens become more probable, above 1 less so."""
    return logits / temperature


def among_top_k(logits: jax.Array, k: int) -> jax.Array:
    """Exclude all but the `k` most probable tokens of each row; 0 keeps all. Ties with the last one are kept.

    Source: Fan et al., "Hierarchical Neural Story Generation", ACL 2018, section 5.4.
    """
    if k <= 0 or k >= logits.shape[-1]:
        return logits
    least = jax.lax.top_k(logits, k)[0][..., -1:]
    return jnp.where(logits < least, -jnp.inf, logits)


def among_top_p(logits: jax.Array, p: float) -> jax.Array:
    """Exclude all but the fewest tokens of each row whose probabilities sum to at least `p`; 1 keeps all.

    Ties with the last one are kept.

    Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020, section 3.1.
    """
    if p >= 1.0:
        return logits
    ordered = jnp.sort(logits, axis=-1, descending=True)
    likely = jax.nn.softmax(ordered, axis=-1)
    kept = (jnp.cumsum(likely, axis=-1) - likely < p).at[..., 0].set(True)
    least = jnp.min(jnp.where(kept, ordered, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(logits < least, -jnp.inf, logits)


def drawn(logits: jax.Array, keys: jax.Array, number: jax.Array) -> jax.Array:
    """Draw one id per row, from its own random stream, so that the result does not depend on other rows.

    Args:
        logits: shape (R, V); minus infinity is never drawn.
        keys: one key per row, shape (R,).
        number: index of the new token, so that each position has its own random number.

    Returns:
        Ids, shape (R,).
    """

    def one(key: jax.Array, row: jax.Array) -> jax.Array:
        return jax.random.categorical(jax.random.fold_in(key, number), row)

    drawn_ids: jax.Array = jax.vmap(one)(keys, logits)
    return drawn_ids


def row_keys(key: jax.Array, count: int) -> jax.Array:
    """Return a key for each of `count` rows; that of row r does not depend on the count."""
    keys: jax.Array = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(count))
    return keys


class SampleDecoder(Decoder):
    """Samples tokens, and several continuations per prompt if requested."""

    class HParams(Decoder.HParams):
        """Distribution to sample from; the temperature is applied first, then k, then p.

        Attributes:
            num_samples: continuations per prompt.
            temperature: 0 chooses the most probable token.
            k: sample only from the k most probable tokens; 0: all.
            p: sample only from the most probable tokens that together have this probability; 1: all.
            sort_samples: sort the continuations of each prompt by score, best first.
        """

        num_samples: int = 1
        temperature: float = 1.0
        k: int = 40
        p: float = 1.0
        sort_samples: bool = True

    def __init__(self, hparams: HParams) -> None:
        """Check the options.

        Raises:
            ConfigError: a field is out of its range.
        """
        super().__init__(hparams)
        ranges = {
            "num_samples": (hparams.num_samples >= 1, "1 or more"),
            "temperature": (hparams.temperature >= 0, "0 or more"),
            "k": (hparams.k >= 0, "0 (all tokens) or more"),
            "p": (0 < hparams.p <= 1, "more than 0, at most 1"),
        }
        for name, (fine, allowed) in ranges.items():
            if not fine:
                raise refusal(f"SampleDecoder.{name}", f"is {getattr(hparams, name)}.", f"Use {allowed}.")

    @property
    def rows_per_prompt(self) -> int:
        """Number of continuations of each prompt."""
        return int(self.hparams.num_samples)

    def decode(self, step: DecodeStep, prompts: Prompts, key: jax.Array) -> Decoded:
        """Continue every prompt by sampled tokens."""
        rows = started(step, prompts, self.limits, times=self.rows_per_prompt)
        keys = row_keys(key, rows.lengths.shape[0])
        found = gathered(
            grown(step, rows, lambda logits, number: self._next(logits, keys, number), self.limits), prompts
        )
        return _likeliest_first(found) if self.hparams.sort_samples else found

    def _next(self, logits: jax.Array, keys: jax.Array, number: jax.Array) -> jax.Array:
        known = self.hparams
        if known.temperature == 0:
            return jnp.argmax(logits, axis=-1)
        return drawn(among_top_p(among_top_k(tempered(logits, known.temperature), known.k), known.p), keys, number)


def _likeliest_first(found: Decoded) -> Decoded:
    order = jnp.argsort(-found.scores, axis=1, stable=True)

    def sorted_by_score(each: jax.Array) -> jax.Array:
        return jnp.take_along_axis(each, order.reshape(*order.shape, *[1] * (each.ndim - 2)), axis=1)

    return Decoded(
        sorted_by_score(found.output_ids),
        sorted_by_score(found.decode_lengths),
        sorted_by_score(found.logprobs),
        sorted_by_score(found.scores),
        found.prefix_lengths,
    )
