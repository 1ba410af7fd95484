"""Counterparts on JAX of models of x-train: templates, names of weights, and layout of batches.

B rows, T tokens, P predicted tokens of a row, D model width, V words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.models.spmd.base_layer import BaseLayer
from xdpx.models.spmd.exchange import hf_bert, hf_llama
from xdpx.models.spmd.exchange.maps import Exchange

Batch = Mapping[str, Any]
"""A collated batch of a processor: `net_input` and, if there are labels, `target`, arrays on the host."""

NO_TARGET = -100


class Shape(NamedTuple):
    """Padded shape of a batch: rows, tokens per row, and predicted tokens per row (0: all)."""

    rows: int
    width: int
    guessed: int = 0


class Counterpart:
    """A model of x-train on JAX.

    Args:
        reference: the PyTorch model: its config, and its parameters.
        dtype: of the computation; weights remain float32.

    Attributes:
        template: of the layer.
        exchange: between its weights and PyTorch's names.
        positions: maximum length of a text.
        required, optional: names of its inputs in `net_input`.
    """

    required: ClassVar[frozenset[str]] = frozenset({"input_ids", "attention_mask"})
    optional: ClassVar[frozenset[str]] = frozenset()

    template: Any
    exchange: Exchange

    def __init__(self, reference: Any, *, dtype: DTypeLike | None = None) -> None:
        config: dict[str, Any] = reference.config.to_dict()
        self.positions = int(config["max_position_embeddings"])
        self.template, self.exchange = self.described(reference, config)
        self.template.fprop_dtype = dtype
        self._keep(recompute=bool(reference.parameters_used.gradient_checkpointing))

    def described(self, reference: Any, config: dict[str, Any]) -> tuple[Any, Exchange]:
        """Return template and exchange. Raises ConfigError if the config needs something unsupported on JAX."""
        raise NotImplementedError

    def network(self) -> Any:
        """Return the part of the template with the stack of blocks."""
        raise NotImplementedError

    def logits(self, model: BaseLayer, batch: Batch) -> jax.Array:
        """Return float32 logits: (B, V) of rows, or (B, P, V) of predicted tokens. Inside `apply`."""
        raise NotImplementedError

    def shape_of(self, batch: Batch) -> Shape:
        """Return the shape of a batch.

        Raises:
            ConfigError: the texts are longer than the model has positions, or the batch has other inputs.
        """
        given = set(batch["net_input"])
        if not self.required <= given <= self.required | self.optional:
            takes = ", ".join([*sorted(self.required), *sorted(self.optional)])
            problem = f"takes {takes}, but the processor gives {', '.join(sorted(given))}."
            remedy = "Choose a model for this kind of text, or preprocess with another processor."
            raise refusal("model", problem, remedy)
        rows, width = batch["net_input"]["input_ids"].shape
        if width > self.positions:
            problem = f"is {width}, but the model has positions for {self.positions} tokens."
            remedy = f"Preprocess with max_len: {self.positions} or less, or use a larger max_position_embeddings."
            raise refusal("max_len", problem, remedy)
        return Shape(rows, width)

    def arranged(self, batch: Batch, shape: Shape) -> dict[str, NDArray[Any]]:
        """Return a padded batch: {input_ids, attention_mask, ..., weights, ntokens} and, if there are labels, target.

        `weights` are 1 where the loss is computed and 0 at padding.
        """
        inputs = {name: filled(value, (shape.rows, shape.width)) for name, value in batch["net_input"].items()}
        weights = filled(np.ones(len(batch["id"]), np.float32), (shape.rows,))
        labels = {"target": filled(batch["target"], (shape.rows,))} if "target" in batch else {}
        return {**inputs, **labels, "weights": weights, "ntokens": np.asarray(batch["ntokens"], np.float32)}

    def example(self, rows: int) -> dict[str, NDArray[Any]]:
        """Return the smallest batch of `rows` rows, from which the shapes of all weights follow."""
        ids = np.zeros((rows, 1), np.int32)
        return {"input_ids": ids, "attention_mask": np.ones_like(ids, bool)}

    def _keep(self, *, recompute: bool) -> None:
        self.network().stacked_transformer_tpl.checkpoint_policy = "nothing" if recompute else "everything"


class BertClassification(Counterpart):
    """Counterpart of `bert_classification`."""

    optional = frozenset({"token_type_ids"})

    def described(self, reference: Any, config: dict[str, Any]) -> tuple[Any, Exchange]:
        """Return those of BertForSequenceClassification."""
        classes, dropout = reference.classifier.out_features, reference.parameters_used.output_dropout_prob
        template = hf_bert.classification(config, classes, output_dropout_prob=dropout)
        return template, hf_bert.classification_exchange(config, classes)

    def network(self) -> Any:
        """Return the encoder."""
        return self.template.network_tpl

    def logits(self, model: BaseLayer, batch: Batch) -> jax.Array:
        """Return logits (B, V)."""
        pooled = model.dropout(model.network.pooled(batch["input_ids"], **_beside(batch)))
        found: jax.Array = model.softmax.get_logits(pooled)
        return found


class BertLanguageModel(Counterpart):
    """Counterpart of `bert_lm`. Predicted tokens are addressed within rows, which can be on different devices."""

    required = Counterpart.required | {"masked_positions"}
    optional = frozenset({"token_type_ids"})

    def described(self, reference: object, config: dict[str, Any]) -> tuple[Any, Exchange]:
        """Return those of BertForMaskedLM."""
        return hf_bert.masked_lm(config), hf_bert.masked_lm_exchange(config)

    def network(self) -> Any:
        """Return the encoder."""
        return self.template.encoder_tpl

    def shape_of(self, batch: Batch) -> Shape:
        """Return the shape, with the maximum number of predicted tokens in a row."""
        shape = super().shape_of(batch)
        rows = batch["net_input"]["masked_positions"] // shape.width
        return shape._replace(guessed=int(np.bincount(rows, minlength=1).max()))

    def arranged(self, batch: Batch, shape: Shape) -> dict[str, NDArray[Any]]:
        """Return a padded batch, with flat positions as `places` (B, P) within rows, and targets and weights (B, P)."""
        inputs = dict(batch["net_input"])
        flat, width = inputs.pop("masked_positions"), inputs["input_ids"].shape[1]
        row, place = flat // width, flat % width
        first = np.searchsorted(row, row, side="left")
        at = row, np.arange(len(flat)) - first
        found = {name: filled(value, (shape.rows, shape.width)) for name, value in inputs.items()}
        for name, values in (("places", place), ("target", batch["target"]), ("weights", np.float32(1.0))):
            kind = np.float32 if name == "weights" else np.int32
            found[name] = np.zeros((shape.rows, shape.guessed), kind)
            found[name][at] = values
        return {**found, "ntokens": np.asarray(batch["ntokens"], np.float32)}

    def example(self, rows: int) -> dict[str, NDArray[Any]]:
        """Return a batch in which the first token of each row is predicted."""
        return {**super().example(rows), "places": np.zeros((rows, 1), np.int32)}

    def logits(self, model: BaseLayer, batch: Batch) -> jax.Array:
        """Return logits (B, P, V)."""
        hidden = model.encoder.hidden(batch["input_ids"], **_beside(batch))
        chosen = jnp.take_along_axis(hidden, batch["places"][..., None], axis=1)
        found: jax.Array = model.encoder.embedding.get_logits(model.head(chosen))
        return found


class CausalLanguageModel(Counterpart):
    """Counterpart of `causal_lm`."""

    def described(self, reference: object, config: dict[str, Any]) -> tuple[Any, Exchange]:
        """Return those of LlamaForCausalLM."""
        return hf_llama.language_model(config), hf_llama.exchange(config)

    def network(self) -> Any:
        """Return the decoder."""
        return self.template.lm_tpl

    def arranged(self, batch: Batch, shape: Shape) -> dict[str, NDArray[Any]]:
        """Return a padded batch; targets and weights are (B, T), weights are 0 where nothing is predicted."""
        target = filled(batch["target"], (shape.rows, shape.width), NO_TARGET)
        found = super().arranged({**batch, "target": target[:, 0]}, shape)
        guessed = target != NO_TARGET
        return {**found, "target": np.where(guessed, target, 0), "weights": guessed.astype(np.float32)}

    def logits(self, model: BaseLayer, batch: Batch) -> jax.Array:
        """Return logits (B, T, V)."""
        found: jax.Array = model.lm(batch["input_ids"])
        return found


def filled(values: NDArray[Any], shape: tuple[int, ...], value: float = 0) -> NDArray[Any]:
    """Return an array of a larger shape with `values` in its first corner; int64 becomes int32, as on devices."""
    kind = np.int32 if values.dtype == np.int64 else values.dtype
    whole = np.full(shape, value, kind)
    whole[tuple(slice(size) for size in values.shape)] = values
    return whole


def _beside(batch: Batch) -> dict[str, Any]:
    return {"paddings": 1.0 - batch["attention_mask"].astype(jnp.float32), "token_types": batch.get("token_type_ids")}
