"""Beam search: the most probable continuations.

B prompts, K beams, C candidates per step, L slots, V ids. With `length_norm="power"` the result is that of
transformers' `generate(num_beams=K, length_penalty=alpha)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.models.spmd.decoding.cache import chosen_rows
from xdpx.models.spmd.decoding.greedy import Decoder
from xdpx.models.spmd.decoding.sequences import NEVER, Decoded, DecodeStep, DecodingRows, Limits, Prompts, started

LengthNorm = Callable[[jax.Array], jax.Array]
"""Maps a number of new tokens to the divisor of the sum of their log-probabilities."""


def power_norm(alpha: float) -> LengthNorm:
    """Return division by length^alpha, as in transformers."""
    return lambda length: length.astype(jnp.float32) ** alpha


def gnmt_norm(alpha: float) -> LengthNorm:
    """Return division by ((5 + length) / 6)^alpha.

    Source: Wu et al., "Google's Neural Machine Translation System", 2016, equation 14.
    """
    return lambda length: ((5.0 + length) / 6.0) ** alpha


@dataclass(frozen=True)
class BeamSearch:
    """Options of a search.

    Attributes:
        beams: number of continuations kept for each prompt, during the search and in the result.
        candidates: number considered per step; at least one more per end of sequence than there are beams.
        norm: length normalisation.
        early_exit: a prompt is done once it has `beams` finished continuations; else once no running beam can beat the
            worst of them at its present length.
        limits: limits of the lengths.
    """

    beams: int
    candidates: int
    norm: LengthNorm
    early_exit: bool
    limits: Limits


class Beams(NamedTuple):
    """Continuations of each prompt: `scores` (B, K), `ids` and `logprobs` (B, K, L), `lengths` (B, K)."""

    scores: jax.Array
    ids: jax.Array
    logprobs: jax.Array
    lengths: jax.Array


class _Search(NamedTuple):
    """State of a search: `running` beams, `finished` ones (`whole` (B, K) is true at those that exist)."""

    number: jax.Array
    cache: Any
    logits: jax.Array
    running: Beams
    finished: Beams
    whole: jax.Array
    hopeful: jax.Array
    open: jax.Array


def search(step: DecodeStep, prompts: Prompts, options: BeamSearch) -> Decoded:
    """Return the K best continuations of each prompt, best first.

    Args:
        step: the model.
        prompts: B of them.
        options: of the search.
    """
    rows = started(step, prompts, options.limits, times=options.beams)
    found = jax.lax.while_loop(
        lambda state: (state.number < options.limits.most) & state.open,
        lambda state: _advanced(step, state, options),
        _begun(rows, options),
    )
    best = found.finished
    return Decoded(best.ids, best.lengths, best.logprobs, best.scores, prompts.lengths)


def _begun(rows: DecodingRows, options: BeamSearch) -> _Search:
    def by_prompt(each: jax.Array) -> jax.Array:
        return each.reshape(-1, options.beams, *each.shape[1:])

    lengths = by_prompt(rows.lengths)
    # All beams of a prompt start equal: only the first may be continued, or they would stay equal.
    scores = jnp.full(lengths.shape, NEVER).at[:, 0].set(0.0)
    running = Beams(scores, by_prompt(rows.ids), by_prompt(rows.logprobs), lengths)
    return _Search(
        number=rows.number,
        cache=rows.cache,
        logits=rows.logits,
        running=running,
        finished=running._replace(scores=jnp.full(lengths.shape, NEVER)),
        whole=jnp.zeros(lengths.shape, bool),
        hopeful=jnp.ones(lengths.shape[:1], bool),
        open=jnp.ones((), bool),
    )


def _advanced(step: DecodeStep, state: _Search, options: BeamSearch) -> _Search:
    candidates, parents, tokens = _candidates(state, options)
    ended = options.limits.ended(tokens) | (state.number + 1 == options.limits.most)
    running, chosen = _best(candidates._replace(scores=candidates.scores + NEVER * ended), options.beams)
    parents, tokens = (jnp.take_along_axis(each, chosen, axis=1) for each in (parents, tokens))
    finished, whole = _finished(state, candidates, ended, options)
    hopeful = state.hopeful & _can_improve(running, finished, whole, state.number + 1, options)
    everywhere_whole = jnp.all(whole) & options.early_exit
    flat = (parents + options.beams * jnp.arange(parents.shape[0])[:, None]).reshape(-1)
    logits, cache = step(
        chosen_rows(state.cache, flat),
        tokens.reshape(-1, 1),
        (running.lengths - 1).reshape(-1, 1),
        jnp.zeros_like(flat),
    )
    return _Search(
        number=state.number + 1,
        cache=cache,
        logits=logits.astype(jnp.float32),
        running=running,
        finished=finished,
        whole=whole,
        hopeful=hopeful,
        open=jnp.any(hopeful) & ~everywhere_whole & ~jnp.all(ended),
    )


def _candidates(state: _Search, options: BeamSearch) -> tuple[Beams, jax.Array, jax.Array]:
    """Return the C best candidates of each prompt, the indices of their beams (B, C), and their new ids (B, C)."""
    prompts, beams, slots = state.running.ids.shape
    likely = jax.nn.log_softmax(state.logits)
    totals = options.limits.allowed(likely, state.number).reshape(prompts, beams, -1) + state.running.scores[..., None]
    vocabulary = totals.shape[-1]
    scores, places = jax.lax.top_k(totals.reshape(prompts, -1), min(options.candidates, beams * vocabulary))
    parents, tokens = places // vocabulary, places % vocabulary
    gained = jnp.take_along_axis(likely.reshape(prompts, -1), places, axis=1)
    grown = _chosen(state.running, parents)
    here = jnp.arange(slots) == grown.lengths[..., None]
    return (
        Beams(
            scores,
            jnp.where(here, tokens[..., None].astype(grown.ids.dtype), grown.ids),
            jnp.where(here, gained[..., None], grown.logprobs),
            grown.lengths + 1,
        ),
        parents,
        tokens.astype(grown.ids.dtype),
    )


def _finished(state: _Search, new: Beams, ended: jax.Array, options: BeamSearch) -> tuple[Beams, jax.Array]:
    """Merge the ended ones among the best K candidates into the finished ones, and keep the best K of all."""
    counted = ended & (jnp.arange(ended.shape[1]) < options.beams)
    closed = ~state.hopeful | (jnp.all(state.whole, axis=1) & options.early_exit)
    scores = new.scores / options.norm(state.number + 1)
    scores = scores + NEVER * closed[:, None] + NEVER * ~counted
    both = jax.tree.map(
        lambda old, fresh: jnp.concatenate([old, fresh], axis=1), state.finished, new._replace(scores=scores)
    )
    best, chosen = _best(both, options.beams)
    whole = jnp.concatenate([state.whole, counted], axis=1)
    return best, jnp.take_along_axis(whole, chosen, axis=1)


def _can_improve(
    running: Beams, finished: Beams, whole: jax.Array, length: jax.Array, options: BeamSearch
) -> jax.Array:
    """Return for each prompt (B,) whether its best beam, if it ended now, would beat its worst finished one."""
    best = running.scores[:, :1] / options.norm(length)
    worst = jnp.where(whole, finished.scores.min(axis=1, keepdims=True), NEVER)
    improves: jax.Array = jnp.any(best > worst, axis=1)
    return improves


def _best(beams: Beams, count: int) -> tuple[Beams, jax.Array]:
    chosen = jax.lax.top_k(beams.scores, count)[1]
    return _chosen(beams, chosen), chosen


def _chosen(beams: Beams, which: jax.Array) -> Beams:
    def of(each: jax.Array) -> jax.Array:
        return jnp.take_along_axis(each, which.reshape(*which.shape, *[1] * (each.ndim - 2)), axis=1)

    return Beams(*(of(each) for each in beams))


class BeamDecoder(Decoder):
    """Beam search: the most probable continuations of each prompt, best first."""

    class HParams(Decoder.HParams):
        """Width, and when to stop.

        Attributes:
            beam_size: number of continuations kept and returned.
            tokens_per_beam: candidates considered per beam; None: one more than there are ends of sequence, at least 2.
            length_norm: `gnmt` divides a score by ((5 + length) / 6)^alpha, `power` by length^alpha as transformers.
            length_norm_alpha: the alpha; 0 prefers short continuations.
            early_exit: stop once `beam_size` continuations have ended.
        """

        beam_size: int = 4
        tokens_per_beam: int | None = None
        length_norm: Literal["gnmt", "power"] = "gnmt"
        length_norm_alpha: float = 0.8
        early_exit: bool = False

    def __init__(self, hparams: HParams) -> None:
        """Check the sizes.

        Raises:
            ConfigError: there is no beam, or there are too few candidates per beam.
        """
        super().__init__(hparams)
        if hparams.beam_size < 1:
            raise refusal("BeamDecoder.beam_size", f"is {hparams.beam_size}.", "Use 1 or more.")
        least = 1 + len(self.limits.ends)
        if hparams.tokens_per_beam is not None and hparams.tokens_per_beam < least:
            problem = f"is {hparams.tokens_per_beam}, so all of them could end at once."
            raise refusal("BeamDecoder.tokens_per_beam", problem, f"Use {least} or more, or None.")

    @property
    def rows_per_prompt(self) -> int:
        """Number of continuations of each prompt."""
        return int(self.hparams.beam_size)

    def decode(self, step: DecodeStep, prompts: Prompts, key: jax.Array) -> Decoded:
        """Return the best continuations of every prompt; the key is unused."""
        known = self.hparams
        per_beam = known.tokens_per_beam or max(2, 1 + len(self.limits.ends))
        norm = (gnmt_norm if known.length_norm == "gnmt" else power_norm)(known.length_norm_alpha)
        options = BeamSearch(known.beam_size, per_beam * known.beam_size, norm, known.early_exit, self.limits)
        return search(step, prompts, options)
