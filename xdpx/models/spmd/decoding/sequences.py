"""Extend rows of ids token by token: common code of greedy decoding, sampling and beam search.

B prompts, R rows (B times the samples or beams of each), P prompt slots, N new tokens at most, L = P + N slots, V ids.
The token at position p of a row is in slot p: the first new token of a row directly follows its own prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.models.spmd.decoding.cache import repeated_rows

NEVER = -1e9
"""A log-probability, in nats, below every real one, which can be added to another."""

NO_LOG_PROBABILITY = 1.0
"""Placeholder at tokens that the model did not choose: no log-probability is positive."""


class DecodeStep(Protocol):
    """A language model over new tokens: `step(cache, ids, positions, wanted) -> (logits, cache)`.

    `cache` is None for the prompts; `ids` and `positions` have shape (R, T); `wanted` (R,) is the index, among the T
    tokens of each row, of the one whose logits (R, V) are returned.
    """

    def __call__(
        self, cache: Mapping[str, Any] | None, ids: jax.Array, positions: jax.Array, wanted: jax.Array, /
    ) -> tuple[jax.Array, Any]:
        """Return the logits (R, V) of the next token, and the cache with these tokens in it."""
        ...


class Prompts(NamedTuple):
    """Starts of rows: `ids` (B, P), with anything after the prompt, and `lengths` (B,), each from 1 to P."""

    ids: jax.Array
    lengths: jax.Array


class Decoded(NamedTuple):
    """Decoded output; S samples or beams per prompt, best first if they are ordered.

    Attributes:
        output_ids: prompt, new tokens, then padding; shape (B, S, L).
        decode_lengths: number of tokens of the prompt and new ones, including the end of sequence; shape (B, S).
        logprobs: of each new token under the unmodified model, in nats; NO_LOG_PROBABILITY elsewhere; shape (B, S, L).
        scores: of the whole continuation: the sum of its logprobs, divided by the length norm for beams; shape (B, S).
        prefix_lengths: number of tokens of the prompt; shape (B,).
    """

    output_ids: jax.Array
    decode_lengths: jax.Array
    logprobs: jax.Array
    scores: jax.Array
    prefix_lengths: jax.Array


@dataclass(frozen=True)
class Limits:
    """Limits of rows. All counts are of new tokens, whatever the length of the prompt.

    Attributes:
        most: maximum number of new tokens.
        least: minimum number of new tokens before an end of sequence.
        ends: ids that end a row; (): every row gets `most` tokens.
        padding: the id after the end of a row.
    """

    most: int
    least: int = 0
    ends: tuple[int, ...] = ()
    padding: int = 0

    def ended(self, ids: jax.Array) -> jax.Array:
        """Return which ids end their row, in the same shape."""
        return jnp.isin(ids, jnp.asarray(self.ends, ids.dtype)) if self.ends else jnp.zeros(ids.shape, bool)

    def allowed(self, scores: jax.Array, number: jax.Array) -> jax.Array:
        """Return the scores without ends of sequence while new token `number`, counted from 0, is before the minimum.

        Args:
            scores: logits or log-probabilities, shape (..., V).
            number: a scalar.

        Raises:
            ConfigError: an end of sequence is not an id of the model, so that no row would ever end.
        """
        unknown = [end for end in self.ends if not 0 <= end < scores.shape[-1]]
        if unknown:
            problem = f"is {unknown[0]}, but the ids of the model are 0 to {scores.shape[-1] - 1}."
            raise refusal("decoder_tpl.eos_id", problem, "Give the tokenizer's, or None: no row ends early.")
        if not self.ends or self.least <= 0:
            return scores
        end = jnp.zeros(scores.shape[-1], bool).at[jnp.asarray(self.ends)].set(True)
        return jnp.where(end & (number < self.least), -jnp.inf, scores)


class DecodingRows(NamedTuple):
    """Rows during decoding.

    `number` new tokens have been added; `logits` (R, V) are for the next one; `ids` and `logprobs` have shape (R, L),
    `lengths` and `ended` (R,).
    """

    number: jax.Array
    cache: Any
    logits: jax.Array
    ids: jax.Array
    logprobs: jax.Array
    lengths: jax.Array
    ended: jax.Array


Choose = Callable[[jax.Array, jax.Array], jax.Array]
"""`choose(logits (R, V), number) -> ids (R,)`."""


def started(step: DecodeStep, prompts: Prompts, limits: Limits, *, times: int) -> DecodingRows:
    """Process all prompts in one pass, and return `times` rows of each.

    Args:
        step: the model.
        prompts: B of them.
        limits: limits of the lengths.
        times: samples or beams per prompt; those of prompt b are rows b * times and following.
    """
    prompt_ids, prompt_lengths = prompts
    positions = jnp.broadcast_to(jnp.arange(prompt_ids.shape[1], dtype=jnp.int32), prompt_ids.shape)
    logits, cache = step(None, prompt_ids, positions, prompt_lengths - 1)
    inside = positions < prompt_lengths[:, None]
    ids = jnp.pad(jnp.where(inside, prompt_ids, limits.padding), ((0, 0), (0, limits.most)))
    ids = jnp.where(jnp.arange(ids.shape[1]) < prompt_lengths[:, None], ids, limits.padding)
    logits, ids, lengths = (jnp.repeat(each, times, axis=0) for each in (logits, ids, prompt_lengths))
    return DecodingRows(
        number=jnp.zeros((), jnp.int32),
        cache=repeated_rows(cache, times),
        logits=logits.astype(jnp.float32),
        ids=ids,
        logprobs=jnp.full(ids.shape, NO_LOG_PROBABILITY, jnp.float32),
        lengths=lengths.astype(jnp.int32),
        ended=jnp.zeros(lengths.shape, bool),
    )


def grown(step: DecodeStep, rows: DecodingRows, choose: Choose, limits: Limits) -> DecodingRows:
    """Return the rows after adding tokens until each has ended, or has the maximum number."""

    def unfinished(rows: DecodingRows) -> jax.Array:
        return (rows.number < limits.most) & ~jnp.all(rows.ended)

    def lengthened(rows: DecodingRows) -> DecodingRows:
        chosen = choose(limits.allowed(rows.logits, rows.number), rows.number)
        chosen = jnp.where(rows.ended, limits.padding, chosen).astype(rows.ids.dtype)
        after = _with_token(rows, chosen, limits)
        # Rows that have ended are computed along, at their last position.
        logits, cache = step(rows.cache, chosen[:, None], (after.lengths - 1)[:, None], jnp.zeros_like(chosen))
        return after._replace(logits=logits.astype(jnp.float32), cache=cache, number=rows.number + 1)

    return jax.lax.while_loop(unfinished, lengthened, rows)


def _with_token(rows: DecodingRows, chosen: jax.Array, limits: Limits) -> DecodingRows:
    index = jnp.arange(chosen.shape[0])
    likely = jax.nn.log_softmax(rows.logits)[index, chosen]
    slots = jnp.where(rows.ended, rows.ids.shape[1], rows.lengths)
    return rows._replace(
        ids=rows.ids.at[index, slots].set(chosen, mode="drop"),
        logprobs=rows.logprobs.at[index, slots].set(likely, mode="drop"),
        lengths=rows.lengths + ~rows.ended,
        ended=rows.ended | limits.ended(chosen),
    )


def gathered(rows: DecodingRows, prompts: Prompts) -> Decoded:
    """Return the rows grouped by prompt."""
    prompt_count = prompts.lengths.shape[0]
    ids, logprobs, lengths = (
        each.reshape(prompt_count, -1, *each.shape[1:]) for each in (rows.ids, rows.logprobs, rows.lengths)
    )
    chosen = logprobs != NO_LOG_PROBABILITY
    return Decoded(ids, lengths, logprobs, jnp.where(chosen, logprobs, 0.0).sum(-1), prompts.lengths)
