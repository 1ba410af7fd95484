"""A transformer over tokens, and the language model that trains it.

B rows, T tokens, D model width, V words of the vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.models.spmd.base_layer import AUX_LOSS, BaseLayer, total_aux_loss
from xdpx.models.spmd.base_model import BaseModel
from xdpx.models.spmd.decoding import driving
from xdpx.models.spmd.decoding.greedy import Decoder, GreedyDecoder
from xdpx.models.spmd.decoding.rows import Row
from xdpx.models.spmd.layers.embeddings import BaseSoftmax, Embedding, SharedEmbeddingSoftmax
from xdpx.models.spmd.layers.label_scores import LabelScores, scores_in_chunks, scores_of
from xdpx.models.spmd.layers.masks import all_of, padding_mask, prefix_mask, segment_mask
from xdpx.models.spmd.layers.norms import BaseNorm, LayerNorm
from xdpx.models.spmd.layers.positions import PositionalEmbedding, default_positions
from xdpx.models.spmd.layers.stacks import set_in_blocks, set_num_layers
from xdpx.models.spmd.layers.stochastics import Dropout
from xdpx.models.spmd.layers.token_chunks import chunk_for
from xdpx.models.spmd.layers.transformer import StackedTransformer
from xdpx.models.spmd.misreading import (
    Problem,
    joined_texts,
    num_positions,
    padding_before_tokens,
    several_prompts,
    too_few_positions,
)
from xdpx.models.spmd.scoring import Metrics, smoothing_of
from xdpx.models.spmd.sharding import ACTIVATION_AXES, constrain
from xdpx.utils.nested_map import NestedMap

ModelType = Literal["causal", "bidirectional", "prefix"]


class TransformerLm(BaseLayer):
    """Tokens to logits: embedding, positions, blocks, a final norm, softmax.

    Attributes:
        vocab_size: V.
        model_dims: D.
        hidden_dims, num_layers, num_heads, dim_per_head: passed to the stack; None or 0: as in its template.
        model_type: what a token attends to: earlier tokens, all, or the prefix and earlier tokens.
        packed_input: whether rows contain several texts, distinguished by segment_ids. Without it a causal row may have
            padding at its end only, and attention needs no mask but the causal one.
        softmax_tpl: computes logits; a SharedEmbeddingSoftmax embeds tokens with the same table.
        separate_embedding_tpl: a separate embedding table for the input; None: the softmax's.
        position_emb_tpl: positions added to the input; None for rotary or relative ones.
        stacked_transformer_tpl: the blocks: StackedTransformer, StackedTransformerRepeated, or a pipeline of them.
        final_ln_tpl: the final norm; None: none, as after blocks with the norm policy post.
        input_dropout_prob: of the input vectors.
    """

    vocab_size: int = 0
    model_dims: int = 0
    hidden_dims: int = 0
    num_layers: int = 0
    num_heads: int = 0
    dim_per_head: int | None = None
    model_type: ModelType = "causal"
    packed_input: bool = False
    softmax_tpl: BaseSoftmax.HParams = sub_config_field(SharedEmbeddingSoftmax.HParams)
    separate_embedding_tpl: Embedding.HParams | None = sub_config_field(None)
    position_emb_tpl: BaseHParams | None = sub_config_field(PositionalEmbedding.HParams)
    stacked_transformer_tpl: BaseHParams = sub_config_field(StackedTransformer.HParams)
    final_ln_tpl: BaseNorm.HParams | None = sub_config_field(LayerNorm.HParams)
    input_dropout_prob: float = 0.0

    def setup(self) -> None:
        """Build the parts."""
        for name in ("vocab_size", "model_dims"):
            if getattr(self, name) < 1:
                raise refusal(f"TransformerLm.{name}", f"is {getattr(self, name)}.", "Set it in the template.")
        table = {"num_classes": self.vocab_size, "input_dims": self.model_dims}
        self.create_child("softmax", self.softmax_tpl, **table)
        if self.separate_embedding_tpl is not None:
            self.create_child("embedding", self.separate_embedding_tpl, **table)
        elif not hasattr(self.softmax, "emb_lookup"):
            raise refusal(
                "TransformerLm.separate_embedding_tpl",
                "is None, and the softmax embeds no tokens.",
                "Give Embedding.HParams(), or softmax_tpl=SharedEmbeddingSoftmax.HParams().",
            )
        if self.position_emb_tpl is not None:
            self.create_child("position_emb", self.position_emb_tpl, embedding_dims=self.model_dims)
        self.create_child("transformer", self._stack())
        if self.final_ln_tpl is not None:
            self.create_child("final_ln", self.final_ln_tpl, dim=self.model_dims)
        self.create_child("input_dropout", Dropout.HParams(dropout_prob=self.input_dropout_prob))

    def _stack(self) -> Any:
        """Return the template of the stack, with the sizes of this model set in its blocks."""
        sizes = {
            "input_dims": self.model_dims,
            "hidden_dims": self.hidden_dims,
            "num_heads": self.num_heads,
            "dim_per_head": self.dim_per_head,
        }
        stack = self.stacked_transformer_tpl.clone()
        given = {name: value for name, value in sizes.items() if value}
        set_in_blocks(stack, given, causal=self.model_type == "causal")
        if self.num_layers:
            set_num_layers(stack, self.num_layers)
        return stack

    def embed(self, ids: jax.Array, positions: jax.Array) -> jax.Array:
        """Return vectors (B, T, D) of int ids (B, T) at positions (B, T)."""
        table = self.softmax if self.separate_embedding_tpl is None else self.embedding
        x = table.emb_lookup(ids).astype(self.compute_dtype)
        if self.position_emb_tpl is not None:
            x = x + self.position_emb(positions)
        out: jax.Array = self.input_dropout(constrain(x, ACTIVATION_AXES))
        return out

    def hidden(
        self,
        ids: jax.Array,
        *,
        paddings: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        segment_pos: jax.Array | None = None,
        prefix: jax.Array | None = None,
    ) -> jax.Array:
        """Return the vectors before the softmax, (B, T, D).

        Args:
            ids: int (B, T).
            paddings: (B, T), 1 at padding.
            segment_ids: int (B, T), index of the text within the row; used if `packed_input`.
            segment_pos: int (B, T), position within the text; None: 0, 1, 2, ...
            prefix: (B, T), nonzero at tokens of the prefix, which are visible to all tokens with model_type prefix.
        """
        positions = default_positions(*ids.shape) if segment_pos is None else segment_pos
        mask = self._mask(paddings, segment_ids, prefix)
        x = self.transformer(self.embed(ids, positions), mask, positions, paddings=paddings)
        out: jax.Array = x if self.final_ln_tpl is None else self.final_ln(x)
        return out

    def __call__(self, ids: jax.Array, **kwargs: Any) -> jax.Array:
        """Return float32 logits (B, T, V); the arguments are those of `hidden`."""
        logits: jax.Array = self.softmax.get_logits(self.hidden(ids, **kwargs))
        return logits

    def _mask(
        self, paddings: jax.Array | None, segment_ids: jax.Array | None, prefix: jax.Array | None
    ) -> jax.Array | None:
        segments = segment_mask(segment_ids) if self.packed_input and segment_ids is not None else None
        if self.model_type == "causal":
            return segments
        seen = prefix_mask(prefix) if self.model_type == "prefix" and prefix is not None else None
        if self.model_type == "prefix" and prefix is None:
            raise refusal("TransformerLm.model_type", "is 'prefix', but the batch marks no prefix (inputs_indicator).")
        return all_of(seen, segments, None if paddings is None else padding_mask(paddings))


class LanguageModel(BaseModel):
    """Predicts the next token of each token of a batch.

    A batch has ids, labels (int, B x T) and weights (B x T: weight of each label), and optionally paddings,
    segment_ids, segment_pos, inputs_indicator (nonzero at the prompt) and eval_sample_weights (B).

    Attributes:
        lm_tpl: of the network.
        apply_eval_sample_weights: whether `eval_sample_weights` multiply the weights, so that padding rows of a batch
            do not count.
        label_smoothing_prob: share of the target that is spread over all words, in training.
        z_loss_weight: of the square of log(sum(exp(logits))), in training. Source: PaLM, 2022, section 5.
        return_logits: whether the values per example include the logits.
        logits_chunk_tokens: tokens per device whose logits are computed at a time in the loss, and again in the
            backward pass; 0: all; None: 2,048 if all logits take more than 64 MiB. Subclasses that override
            `compute_predictions` or `compute_loss`, and models with `return_logits`, compute all at once.
        decoder_tpl: of the decoder: greedy, sampling or beam search (decoding/).
    """

    lm_tpl: BaseHParams = sub_config_field(TransformerLm.HParams)
    apply_eval_sample_weights: bool = True
    label_smoothing_prob: float = 0.0
    z_loss_weight: float = 0.0
    return_logits: bool = False
    logits_chunk_tokens: int | None = None
    decoder_tpl: Decoder.HParams = sub_config_field(GreedyDecoder.HParams)

    def setup(self) -> None:
        """Build the network."""
        self.create_child("lm", self.lm_tpl)

    def compute_predictions(self, batch: NestedMap) -> NestedMap:
        """Return the predictions for a batch: `logits`, float32 (B, T, V)."""
        return NestedMap(logits=self._run(self.lm, batch))

    def _run(self, network: Callable[..., jax.Array], batch: NestedMap) -> jax.Array:
        given = {name: batch.get(name) for name in ("paddings", "segment_ids", "segment_pos")}
        return network(batch.ids, prefix=batch.get("inputs_indicator"), **given)

    def compute_loss(self, predictions: NestedMap, batch: NestedMap) -> tuple[Metrics, NestedMap]:
        """Return the loss of the predictions.

        Returns:
            metrics, each (mean, weight): total_loss (avg_xent, label smoothing, z-loss and the auxiliary losses that
                the caller collects), avg_xent and log_pplx (nats per token), aux_loss,
                fraction_of_correct_next_step_preds, num_predictions; and per example: labels, weights (B, T), scores
                (B), the sum of log-probabilities, and avg_xent (B).
        """
        weights = self._weights(batch)
        scores = predictions.get("scores") or scores_of(predictions.logits, batch.labels)
        xent = scores.log_z - scores.label
        total = jnp.sum(weights)
        avg_xent = _mean(xent, weights)
        extra = _mean(self._regularised(scores), weights)
        aux, aux_weight = total_aux_loss(self.variables.get(AUX_LOSS, {}))
        metrics = {
            "total_loss": (avg_xent + extra + aux, total),
            "avg_xent": (avg_xent, total),
            "log_pplx": (avg_xent, total),
            "aux_loss": (aux, aux_weight),
            "fraction_of_correct_next_step_preds": (_mean(scores.correct, weights), total),
            "num_predictions": (total, jnp.ones((), jnp.float32)),
        }
        return metrics, self._per_example(predictions, batch, xent, weights)

    def __call__(self, batch: NestedMap) -> tuple[Metrics, NestedMap]:
        """Return the loss; with a large vocabulary in chunks of tokens (layers/label_scores.py)."""
        chunk = self._chunk(batch)
        if not chunk:
            return self.compute_loss(self.compute_predictions(batch), batch)
        scores = scores_in_chunks(self.lm.softmax, self._run(self.lm.hidden, batch), batch.labels, chunk)
        return self.compute_loss(NestedMap(scores=scores), batch)

    def _chunk(self, batch: NestedMap) -> int:
        """Return the number of tokens per row whose logits are computed at a time; 0 if all are needed at once."""
        usual = (
            _unchanged(self, LanguageModel, "compute_predictions", "compute_loss")
            and _unchanged(self.lm, TransformerLm, "__call__", "hidden")
            and _unchanged(self.lm.softmax, BaseSoftmax, "get_logits", "logits_from")
        )
        if self.return_logits or not usual:
            return 0
        rows, tokens = batch.ids.shape
        return chunk_for(rows, tokens, self.lm.vocab_size, self.logits_chunk_tokens)

    def decoder_template(self) -> Decoder.HParams:
        """Return the template of the decoder."""
        return self.decoder_tpl

    def decode(self, batch: NestedMap) -> driving.DecodeResult:
        """Continue the prompts of a batch; see `driving.prompts_of` for their lengths.

        Returns:
            metrics as (mean, weight), values per example, and the input of `process_decode_out`.

        Raises:
            ConfigError: the network is not causal.
        """
        if self.lm.model_type != "causal":
            problem = f"model_type is '{self.lm.model_type}'."
            raise refusal("LanguageModel.decode", problem, "Only 'causal' can decode.")
        most = num_positions(self.lm)
        step_for = functools.partial(driving.cached_step, self.lm)
        return driving.decode_batch(self, batch, self.decoder_tpl, step_for, most_positions=most)

    def num_ids(self) -> dict[str, int]:
        """Return the size of the vocabulary for ids and labels."""
        return dict.fromkeys(("ids", "labels"), getattr(self.lm_tpl, "vocab_size", 0))

    def misread(self, batch: Mapping[str, Any], *, decoding: bool) -> Iterator[Problem]:
        """Yield what the network would misread: several texts as one, padding as text, positions it does not have."""
        if decoding:
            yield from several_prompts(batch)
            return
        told_apart = getattr(self.lm_tpl, "packed_input", True)  # other networks may do as they like
        yield from joined_texts(batch, told_apart=told_apart)
        if getattr(self.lm_tpl, "model_type", None) == "causal":
            yield from padding_before_tokens(batch, told_apart=told_apart)
        yield from too_few_positions(batch, num_positions(self.lm_tpl))

    def process_decode_out(self, model_input: Any, out: NestedMap) -> tuple[dict[str, tuple[float, float]], list[Row]]:
        """Return metrics and (key, row) of the decoded output, with texts by the input's tokenizer. On the host."""
        return driving.write_rows(model_input, out)

    def _weights(self, batch: NestedMap) -> jax.Array:
        weights: jax.Array = batch.weights.astype(jnp.float32)
        rows = batch.get("eval_sample_weights") if self.apply_eval_sample_weights else None
        return weights if rows is None else jnp.multiply(weights, rows.astype(jnp.float32)[:, None])

    def _regularised(self, scores: LabelScores) -> jax.Array:
        """Return the regularisation in training, added to the cross entropy of each token, (B, T)."""
        extra = jnp.zeros_like(scores.log_z)
        share = smoothing_of(self)
        if self.do_eval:
            return extra
        if share:
            smoothed = scores.log_z - scores.mean - (scores.log_z - scores.label)
            extra = extra + share * smoothed
        return extra + self.z_loss_weight * jnp.square(scores.log_z) if self.z_loss_weight else extra

    def _per_example(self, predictions: NestedMap, batch: NestedMap, xent: jax.Array, weights: jax.Array) -> NestedMap:
        counts = jnp.maximum(jnp.sum(weights, axis=-1), 1e-8)
        scores = -jnp.sum(xent * weights, axis=-1)
        out = NestedMap(labels=batch.labels, weights=weights, scores=scores, avg_xent=-scores / counts)
        if self.return_logits:
            out["logits"] = predictions.logits
        return out


def _unchanged(layer: BaseLayer, kind: type[Any], *names: str) -> bool:
    """Return whether these methods of a layer are those of our class, not overridden."""
    return all(getattr(type(layer), name, None) is getattr(kind, name) for name in names)


def _mean(values: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the weighted mean; 0 if all weights are 0."""
    return jnp.sum(values * weights) / jnp.maximum(jnp.sum(weights), 1e-8)
