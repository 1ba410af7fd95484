"""A sequence-to-sequence model. B rows, S source tokens, T target tokens, V words."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.models.spmd.base_layer import DECODER_CACHE, BaseLayer
from xdpx.models.spmd.base_model import BaseModel
from xdpx.models.spmd.decoding import driving
from xdpx.models.spmd.decoding.cache import caching
from xdpx.models.spmd.decoding.greedy import Decoder, GreedyDecoder
from xdpx.models.spmd.decoding.rows import Row
from xdpx.models.spmd.decoding.sequences import DecodeStep
from xdpx.models.spmd.layers.encoder_decoder import TransformerEncoderDecoder
from xdpx.models.spmd.misreading import (
    Problem,
    joined_texts,
    num_positions,
    padding_before_tokens,
    several_prompts,
    too_few_positions,
)
from xdpx.models.spmd.scoring import Metrics, cross_entropy, mean_of, smoothed, smoothing_of, with_rows
from xdpx.utils.nested_map import NestedMap


class SequenceModel(BaseModel):
    """Predicts each token of the target from the source and the earlier target tokens.

    A batch has `src` and `tgt`, see TransformerEncoderDecoder; `tgt` also has `labels` and `weights` (B, T), and its
    `ids` are the labels shifted by one position, after the start token.

    Attributes:
        model_tpl: of the network.
        decoder_tpl: of the decoder of targets (decoding/).
        label_smoothing_prob: share of the target that is spread over all words, in training.
        return_predictions: whether the values per example include the logits.
    """

    model_tpl: BaseHParams = sub_config_field(TransformerEncoderDecoder.HParams)
    decoder_tpl: Decoder.HParams = sub_config_field(GreedyDecoder.HParams)
    label_smoothing_prob: float = 0.0
    return_predictions: bool = False

    def setup(self) -> None:
        """Build the network."""
        self.create_child("model", self.model_tpl)

    def compute_predictions(self, batch: NestedMap) -> NestedMap:
        """Return `logits`, float32 (B, T, V)."""
        return NestedMap(logits=self.model(batch.src, batch.tgt))

    def num_ids(self) -> dict[str, int]:
        """Return the sizes of the vocabularies of source and target."""
        words = getattr(self.model_tpl, "vocab_size", 0)
        source = getattr(self.model_tpl, "source_vocab_size", 0) or words
        return {"src.ids": source, "tgt.ids": words, "tgt.labels": words}

    def misread(self, batch: Mapping[str, Any], *, decoding: bool) -> Iterator[Problem]:
        """Yield what the network would misread: several texts as one, padding as text, positions it does not have."""
        most = num_positions(self.model_tpl)
        told_apart = getattr(self.model_tpl, "packed_input", True)  # other networks may do as they like
        for name in ("src", "tgt"):
            part = batch.get(name, {})
            if decoding:
                yield from several_prompts(part, where=f"{name}.")
            else:
                yield from joined_texts(part, told_apart=told_apart, where=f"{name}.")
            if not decoding or name == "src":  # of the target, decoding reads the first token only
                yield from too_few_positions(part, most, where=f"{name}.")
        yield from padding_before_tokens(batch.get("tgt", {}), told_apart=told_apart, where="tgt.")

    def compute_loss(self, predictions: NestedMap, batch: NestedMap) -> tuple[Metrics, NestedMap]:
        """Return the loss of the predictions.

        Returns:
            metrics as (mean, weight): total_loss, avg_xent and log_pplx (nats per token),
            fraction_of_correct_next_step_preds, num_predictions; and per example: labels, weights (B, T), scores (B),
            the sum of log-probabilities.
        """
        logits, labels = predictions.logits, batch.tgt.labels
        weights = with_rows(batch.tgt.weights, batch)
        xent, total = cross_entropy(logits, labels), weights.sum()
        smoothing = smoothing_of(self)
        avg_xent = mean_of(xent, weights)
        correct = (jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32)
        metrics = {
            "total_loss": (mean_of(smoothed(xent, logits, smoothing), weights), total),
            "avg_xent": (avg_xent, total),
            "log_pplx": (avg_xent, total),
            "fraction_of_correct_next_step_preds": (mean_of(correct, weights), total),
            "num_predictions": (total, jnp.ones((), jnp.float32)),
        }
        scores = -jnp.sum(xent * weights, axis=-1)
        per_example = NestedMap(labels=labels, weights=weights, scores=scores)
        if self.return_predictions:
            per_example["logits"] = logits
        return metrics, per_example

    def decoder_template(self) -> Decoder.HParams:
        """Return the template of the decoder."""
        return self.decoder_tpl

    def decode(self, batch: NestedMap) -> driving.DecodeResult:
        """Decode the target of each source, from the start token on.

        Returns:
            metrics as (mean, weight), values per example, and the input of `process_decode_out`.
        """
        tgt = batch.tgt
        real = tgt.weights if tgt.get("paddings") is None else 1.0 - tgt.paddings
        prompts = NestedMap(
            ids=tgt.ids[:, :1],
            prefix_lengths=jnp.ones(len(tgt.ids), jnp.int32),
            labels=tgt.labels,
            original_lengths=(real > 0).sum(-1).astype(jnp.int32),
            eval_sample_weights=batch.get("eval_sample_weights"),
            provenance=batch.get("provenance"),
        )
        most = num_positions(self.model)
        step_for = functools.partial(_step, self.model, batch.src)
        return driving.decode_batch(self, prompts, self.decoder_tpl, step_for, most_positions=most)

    def process_decode_out(self, model_input: Any, out: NestedMap) -> tuple[dict[str, tuple[float, float]], list[Row]]:
        """Return metrics and (key, row) of the decoded output, with texts by the input's tokenizer. On the host."""
        return driving.write_rows(model_input, out)


def _step(network: BaseLayer, src: NestedMap, slots: int) -> DecodeStep:
    """Return a decoding step. The encoded source is part of the cache, as rows are repeated and reordered with it."""
    memory = network.encode(src)[:, None]
    paddings = src.get("paddings")
    paddings = jnp.zeros(src.ids.shape) if paddings is None else paddings
    loose, variables = network.unbind()
    variables = {name: tree for name, tree in variables.items() if name != DECODER_CACHE}

    def step(
        cache: Mapping[str, Any] | None, ids: jax.Array, positions: jax.Array, wanted: jax.Array
    ) -> tuple[jax.Array, Any]:
        kept = {"memory": memory, "paddings": paddings[:, None, None], "own": {}} if cache is None else cache
        with caching(slots):
            logits, changed = loose.apply(
                {**variables, DECODER_CACHE: kept["own"]},
                NestedMap(ids=ids, segment_pos=positions),
                kept["memory"][:, 0],
                kept["paddings"] < 0.5,
                wanted,
                method=_next_logits,
                mutable=[DECODER_CACHE],
            )
        return logits, {**kept, "own": changed[DECODER_CACHE]}

    return step


def _next_logits(
    network: BaseLayer, tgt: NestedMap, memory: jax.Array, mask: jax.Array, wanted: jax.Array
) -> jax.Array:
    hidden = network.hidden(tgt, memory, mask)
    picked = jnp.take_along_axis(hidden, wanted[:, None, None], axis=1)[:, 0]
    logits: jax.Array = network.softmax.get_logits(picked)
    return logits
