"""The masked language model of BERT. B rows, T tokens, D model width, V words, P predictions per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.models.spmd.base_layer import RANDOM
from xdpx.models.spmd.base_model import BaseModel
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.models.spmd.layers.bert import INIT_STD, BertEncoder, MaskedLmHead
from xdpx.models.spmd.layers.embeddings import SharedEmbeddingSoftmax
from xdpx.models.spmd.misreading import Problem, too_few_positions
from xdpx.models.spmd.scoring import Metrics, cross_entropy, mean_of, smoothed, smoothing_of, with_rows
from xdpx.utils.nested_map import NestedMap

MASKED, REPLACED = 0.8, 0.1
"""Of the chosen tokens, the share replaced by the mask, and by a random word; the rest is unchanged."""


def tied_table() -> SharedEmbeddingSoftmax.HParams:
    """Return the template of an embedding table shared with the softmax, with a bias per word."""
    return SharedEmbeddingSoftmax.HParams(scale_sqrt_depth=False, has_bias=True)


class BertModel(BaseModel):
    """Predicts masked tokens.

    A batch has `ids` (B, T), and optionally `paddings` (1 at padding), `segment_ids`, `segment_pos`, `token_types`,
    `eval_sample_weights`. Tokens are masked by `masked_ids` (the input of the model) and `masked_pos` (B, T; 1 at
    predicted tokens), with `labels` if they differ from `ids`; without these, tokens are chosen here.

    Attributes:
        encoder_tpl: of the encoder.
        head_tpl: of the layers between it and the softmax.
        mask_token_id: the id of the mask token.
        mask_prob: share of the tokens that are chosen here.
        random_low: the lowest id that may be chosen, or replace a chosen token; lower ids are control tokens.
        force_mask_generation: choose tokens here even if the batch has masks.
        label_smoothing_prob: share of the target that is spread over all words, in training.
        max_predictions: P: at most this many tokens of a row go through the softmax, the first of those predicted;
            None: all T do.

    Source: Devlin et al., "BERT", NAACL 2019, section 3.1.
    """

    encoder_tpl: BertEncoder.HParams = sub_config_field(BertEncoder.HParams, embedding_tpl=tied_table())
    head_tpl: BaseHParams = sub_config_field(MaskedLmHead.HParams)
    mask_token_id: int = 103
    mask_prob: float = 0.15
    random_low: int = 0
    force_mask_generation: bool = False
    label_smoothing_prob: float = 0.0
    max_predictions: int | None = None
    params_init: WeightInit | None = sub_config_field(WeightInit, method="gaussian", scale=INIT_STD)

    def setup(self) -> None:
        """Build encoder and head.

        Raises:
            ConfigError: the encoder's embedding table cannot compute logits.
        """
        self.create_child("encoder", self.encoder_tpl)
        self.create_child("head", self.head_tpl, model_dims=self.encoder_tpl.model_dims)
        if not issubclass(self.encoder_tpl.embedding_tpl._owner, SharedEmbeddingSoftmax):
            raise refusal(
                "BertModel.encoder_tpl.embedding_tpl",
                "gives no logits.",
                "Use SharedEmbeddingSoftmax.HParams(scale_sqrt_depth=False, has_bias=True).",
            )

    def compute_predictions(self, batch: NestedMap) -> NestedMap:
        """Return the predictions for masked tokens.

        Returns:
            logits (B, P, V), positions (B, P) of the predicted tokens, labels and weights (B, P).
        """
        seen, weights = self._seen(batch)
        positions = None
        if self.max_predictions is not None and self.max_predictions < weights.shape[1]:
            weights, positions = jax.lax.top_k(weights, self.max_predictions)
        names = ("paddings", "token_types", "segment_ids", "segment_pos")
        hidden = self.encoder.hidden(seen, **{name: batch.get(name) for name in names})
        labels = batch.ids if batch.get("labels") is None else batch.labels
        if positions is not None:
            hidden = jnp.take_along_axis(hidden, positions[..., None], axis=1)
            labels = jnp.take_along_axis(labels, positions, axis=1)
        logits = self.encoder.embedding.get_logits(self.head(hidden))
        return NestedMap(logits=logits, positions=positions, labels=labels, weights=with_rows(weights, batch))

    def num_ids(self) -> dict[str, int]:
        """Return the size of the vocabulary for ids and labels, and the number of texts for token types."""
        words = dict.fromkeys(("ids", "masked_ids", "labels"), self.encoder_tpl.vocab_size)
        return {**words, "token_types": self.encoder_tpl.num_segments}

    def misread(self, batch: Mapping[str, Any], *, decoding: bool) -> Iterator[Problem]:
        """Yield positions that the encoder does not have."""
        yield from too_few_positions(batch, self.encoder_tpl.max_positions)

    def compute_loss(self, predictions: NestedMap, batch: NestedMap) -> tuple[Metrics, NestedMap]:
        """Return the loss of the predictions.

        Returns:
            metrics as (mean, weight): total_loss, avg_xent and log_pplx (nats per guessed token),
            fraction_of_correct_masked_preds, num_predictions; and per example: labels, weights, correct (B, P), scores
            (B), the sum of log-probabilities.
        """
        logits, labels, weights = predictions.logits, predictions.labels, predictions.weights
        xent = cross_entropy(logits, labels)
        total = weights.sum()
        smoothing = smoothing_of(self)
        correct = (jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32)
        avg_xent = mean_of(xent, weights)
        metrics = {
            "total_loss": (mean_of(smoothed(xent, logits, smoothing), weights), total),
            "avg_xent": (avg_xent, total),
            "log_pplx": (avg_xent, total),
            "fraction_of_correct_masked_preds": (mean_of(correct, weights), total),
            "num_predictions": (total, jnp.ones((), jnp.float32)),
        }
        scores = -jnp.sum(xent * weights, axis=-1)
        return metrics, NestedMap(labels=labels, weights=weights, correct=correct, scores=scores)

    def _seen(self, batch: NestedMap) -> tuple[jax.Array, jax.Array]:
        """Return the input of the model, (B, T), and which tokens are predicted, (B, T).

        Raises:
            ConfigError: tokens are chosen here, but the vocabulary has no such mask or random words.
        """
        if batch.get("masked_ids") is not None and not self.force_mask_generation:
            return batch.masked_ids, batch.masked_pos.astype(jnp.float32)
        paddings = batch.get("paddings")
        real = jnp.ones(batch.ids.shape, bool) if paddings is None else paddings < 0.5
        may_be = real & (batch.ids >= self.random_low)
        self._check_choice()
        if self.has_rng(RANDOM):
            return masked_tokens(self.next_prng_key(), batch.ids, may_be, self)
        # Evaluation has no random stream: a row decides alone, whatever batch it is in, so the same every time.
        choose: Any = jax.vmap(lambda key, ids, may_be: masked_tokens(key, ids, may_be, self))
        seen, chosen = choose(keys_of_rows(jnp.where(real, batch.ids, 0)), batch.ids, may_be)
        return seen, chosen

    def _check_choice(self) -> None:
        words = self.encoder_tpl.vocab_size
        for name in ("mask_token_id", "random_low"):
            if not 0 <= getattr(self, name) < words:
                problem = f"is {getattr(self, name)}, but the ids of the model are 0 to {words - 1}."
                raise refusal(f"BertModel.{name}", problem, "Give the tokenizer's.")


def keys_of_rows(ids: jax.Array) -> jax.Array:
    """Return a random key per row (B,), from its ids (B, T); zeros at the end change nothing."""
    odd = 2 * jnp.arange(ids.shape[1], dtype=jnp.uint32) + 1
    mixed = (ids.astype(jnp.uint32) + 1) * odd * jnp.uint32(0x9E3779B1)
    digests = jnp.where(ids > 0, mixed ^ (mixed >> 15), 0).sum(axis=1, dtype=jnp.uint32)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(jax.random.key(0), digests)


def masked_tokens(key: jax.Array, ids: jax.Array, may_be: jax.Array, options: BertModel) -> tuple[jax.Array, jax.Array]:
    """Choose tokens and mask them.

    Args:
        key: random key.
        ids: shape (B, T), or (T,).
        may_be: true at tokens that may be chosen, of the same shape.
        options: `mask_prob`, `mask_token_id`, `random_low`, and the number of words.

    Returns:
        (ids with most of the chosen tokens masked, 1.0 at the chosen tokens), both of the same shape.
    """
    choosing, how, which = jax.random.split(key, 3)
    chosen = may_be & (jax.random.uniform(choosing, ids.shape) < options.mask_prob)
    lot = jax.random.uniform(how, ids.shape)
    words = jax.random.randint(which, ids.shape, options.random_low, options.encoder_tpl.vocab_size, ids.dtype)
    hidden = jnp.where(lot < MASKED, options.mask_token_id, jnp.where(lot < MASKED + REPLACED, words, ids))
    return jnp.where(chosen, hidden, ids), chosen.astype(jnp.float32)
