"""Run a decoder on a network with a cache: implementations of `decode` and `process_decode_out` of models.

B rows, P prompt slots, N new tokens at most, S samples or beams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, build
from xdpx.models.spmd.base_layer import DECODER_CACHE, RANDOM, BaseLayer
from xdpx.models.spmd.decoding.cache import caching
from xdpx.models.spmd.decoding.greedy import Decoder
from xdpx.models.spmd.decoding.rows import Row, decoded_rows, texts_by
from xdpx.models.spmd.decoding.sequences import Decoded, DecodeStep, Prompts
from xdpx.utils.nested_map import NestedMap

DecodeResult = tuple[dict[str, tuple[jax.Array, jax.Array]], NestedMap, NestedMap]
"""Metrics as (mean, weight), values per example, and the decoded output."""

NextLogits = Callable[..., jax.Array]
"""`next_logits(network, ids (R, T), positions (R, T), wanted (R,)) -> logits (R, V)`."""


def next_logits(network: BaseLayer, ids: jax.Array, positions: jax.Array, wanted: jax.Array) -> jax.Array:
    """Return the logits (R, V) after one token per row; only that token goes through the softmax.

    Args:
        network: with `hidden` and `softmax`, as TransformerLm.
        ids: shape (R, T).
        positions: shape (R, T).
        wanted: which of the T tokens, shape (R,); those after it are padding.
    """
    beyond = jnp.arange(ids.shape[1]) > wanted[:, None]  # padding of prompts, which must not fill experts
    hidden = network.hidden(ids, segment_pos=positions, paddings=beyond.astype(jnp.float32))
    picked = jnp.take_along_axis(hidden, wanted[:, None, None], axis=1)[:, 0]
    logits: jax.Array = network.softmax.get_logits(picked)
    return logits


def cached_step(network: BaseLayer, slots: int, logits_of: NextLogits = next_logits) -> DecodeStep:
    """Return a decoding step of a bound network, whose keys and values are cached in `slots` slots."""
    loose, variables = network.unbind()
    variables = {name: tree for name, tree in variables.items() if name != DECODER_CACHE}

    def step(
        cache: Mapping[str, Any] | None, ids: jax.Array, positions: jax.Array, wanted: jax.Array
    ) -> tuple[jax.Array, Any]:
        with caching(slots):
            logits, changed = loose.apply(
                {**variables, DECODER_CACHE: {} if cache is None else cache},
                ids,
                positions,
                wanted,
                method=logits_of,
                mutable=[DECODER_CACHE],
            )
        return logits, changed[DECODER_CACHE]

    return step


def with_padding_last(batch: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a batch with the padding of each row behind its tokens, wherever it was; their order is unchanged."""
    if batch.get("paddings") is None:
        return batch
    order = jnp.argsort(batch["paddings"] >= 0.5, axis=1, stable=True)
    moved = [name for name in ("ids", "labels", "paddings") if batch.get(name) is not None]
    return NestedMap({**batch, **{name: jnp.take_along_axis(batch[name], order, axis=1) for name in moved}})


def prompts_of(batch: Mapping[str, Any]) -> Prompts:
    """Return the prompts of a batch with their lengths.

    Lengths are `prefix_lengths` (B,), else the count of nonzero `inputs_indicator` (B, P), else the number of tokens
    that are not padding; never more than those. A row without a prompt starts with its first id.
    """
    ids = batch["ids"]
    whole = _lengths(batch)
    if batch.get("prefix_lengths") is not None:
        lengths = jnp.minimum(batch["prefix_lengths"], whole)
    elif batch.get("inputs_indicator") is not None:
        lengths = jnp.minimum((batch["inputs_indicator"] > 0).sum(-1), whole)
    else:
        lengths = whole
    return Prompts(ids, jnp.clip(lengths, 1, ids.shape[1]).astype(jnp.int32))


def _lengths(batch: Mapping[str, Any]) -> jax.Array:
    ids = batch["ids"]
    if batch.get("paddings") is None:
        return jnp.full(ids.shape[:1], ids.shape[1], jnp.int32)
    lengths: jax.Array = (batch["paddings"] < 0.5).sum(-1).astype(jnp.int32)
    return lengths


def decode_batch(
    layer: BaseLayer,
    batch: Mapping[str, Any],
    decoder_tpl: BaseHParams,
    step_for: Callable[[int], DecodeStep],
    *,
    most_positions: int | None = None,
) -> DecodeResult:
    """Continue the prompts of a batch. Traceable.

    Args:
        layer: the model, optionally with a random stream.
        batch: `ids` (B, P) and the fields of `prompts_of`, with padding anywhere; optionally `labels` and the
            number of real ones (`original_lengths` (B,); else that of `ids`), `eval_sample_weights`.
        decoder_tpl: template of a decoder.
        step_for: from a number of slots to a step with as many.
        most_positions: number of positions of the network, if limited.

    Raises:
        ConfigError: prompt and new tokens do not fit into the positions.
    """
    decoder: Decoder = build(decoder_tpl)
    batch = with_padding_last(batch)
    prompts = prompts_of(batch)
    length, most = prompts.ids.shape[1], decoder.limits.most
    if most_positions is not None and length + most > most_positions:
        raise refusal(
            "decode",
            f"{length} slots for prompts and max_decode_steps {most} need {length + most} positions, but the model "
            f"has {most_positions}.",
            "Lower one of the two, or use rotary positions.",
        )
    key = layer.next_prng_key() if layer.has_rng(RANDOM) else jax.random.key(0)
    found = decoder.decode(step_for(length + most), prompts, key)
    return _result(found, batch)


def _result(found: Decoded, batch: Mapping[str, Any]) -> DecodeResult:
    rows = found.prefix_lengths.shape[0]
    weights = batch.get("eval_sample_weights")
    weights = jnp.ones(rows, jnp.float32) if weights is None else weights.astype(jnp.float32)
    labels = batch.get("labels")
    out = NestedMap(found._asdict())
    out.update(
        original_ids=batch["ids"] if labels is None else labels,
        original_lengths=_lengths(batch) if batch.get("original_lengths") is None else batch["original_lengths"],
        eval_sample_weights=weights,
    )
    if batch.get("provenance") is not None:
        out["provenance"] = batch["provenance"]
    new = (found.decode_lengths[:, 0] - found.prefix_lengths).astype(jnp.float32)
    real = weights.sum()
    metrics = {
        "num_decoded": (real, jnp.ones((), jnp.float32)),
        "decode_length": ((new * weights).sum() / jnp.maximum(real, 1.0), real),
    }
    return metrics, NestedMap(scores=found.scores[:, 0]), out


def write_rows(model_input: Any, out: Mapping[str, Any]) -> tuple[dict[str, tuple[float, float]], list[Row]]:
    """Return (metrics as (mean, weight), (key, row) of every continuation) of the decoded output. On the host.

    Args:
        model_input: the input whose tokenizer has the ids; None writes numbers.
        out: third result of `decode_batch`.
    """
    origin = out.get("provenance")
    one_each = origin is not None and np.ndim(origin["shard_index"]) == 1  # a packed row has several examples
    keyed = one_each and hasattr(model_input, "row_keys")
    rows = decoded_rows(out, texts_by(model_input), model_input.row_keys(out) if keyed else None)
    real = float((np.asarray(out["eval_sample_weights"]) > 0).sum())
    return {"num_decoded": (real, 1.0)}, rows
