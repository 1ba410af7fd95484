"""Classifiers: of vectors, and of texts by BERT. B rows, D features, V classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.models.spmd.base_model import BaseModel
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.models.spmd.layers.bert import INIT_STD, BertEncoder
from xdpx.models.spmd.layers.embeddings import BaseSoftmax, FullSoftmax
from xdpx.models.spmd.layers.linears import MLPBlock
from xdpx.models.spmd.layers.stochastics import Dropout
from xdpx.models.spmd.misreading import Problem, too_few_positions
from xdpx.models.spmd.scoring import Metrics, cross_entropy, mean_of, smoothed, smoothing_of, with_rows
from xdpx.utils.nested_map import NestedMap

TOP = 5
"""`accuracy5` counts an example if its class is among the 5 most probable ones."""


class ClassificationModel(BaseModel):
    """A network with a vector per example as output, and a softmax over classes.

    A batch has the input and label fields, and optionally `weights` (B,) or `eval_sample_weights` (B,).

    Attributes:
        network_tpl: of the network, called with the input field.
        softmax_tpl: of the softmax, with its sizes.
        input_field: name of the input, (B, ...).
        label_field: name of the class, int (B,).
        label_smoothing_prob: share of the target that is spread over all classes, in training.
    """

    network_tpl: BaseHParams | None = sub_config_field(None)
    softmax_tpl: BaseSoftmax.HParams = sub_config_field(FullSoftmax.HParams, has_bias=True)
    input_field: str = "inputs"
    label_field: str = "class_ids"
    label_smoothing_prob: float = 0.0

    def setup(self) -> None:
        """Build network and softmax."""
        self.create_child("network", self.network_tpl)
        self.create_child("softmax", self.softmax_tpl)

    def features(self, batch: NestedMap) -> jax.Array:
        """Return the vector of each example, (B, D)."""
        vectors: jax.Array = self.network(batch[self.input_field])
        return vectors

    def num_ids(self) -> dict[str, int]:
        """Return the number of classes for the label field."""
        return {self.label_field: getattr(self.softmax_tpl, "num_classes", 0)}

    def compute_predictions(self, batch: NestedMap) -> NestedMap:
        """Return `logits` and `probs`, float32 (B, V)."""
        logits = self.softmax.get_logits(self.features(batch))
        return NestedMap(logits=logits, probs=jax.nn.softmax(logits, axis=-1))

    def compute_loss(self, predictions: NestedMap, batch: NestedMap) -> tuple[Metrics, NestedMap]:
        """Return the loss of the predictions.

        Returns:
            metrics as (mean, weight): total_loss, avg_xent (nats per example), accuracy, accuracy5 if there are more
                than 5 classes, num_predictions; and per example: labels, predicted, correct, scores (the
                log-probability of the class), each (B,).
        """
        logits, labels = predictions.logits, batch[self.label_field]
        weights = batch.get("weights")
        weights = with_rows(jnp.ones(labels.shape) if weights is None else weights, batch)
        xent, total = cross_entropy(logits, labels), weights.sum()
        smoothing = smoothing_of(self)
        predicted = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        correct = (predicted == labels).astype(jnp.float32)
        metrics = {
            "total_loss": (mean_of(smoothed(xent, logits, smoothing), weights), total),
            "avg_xent": (mean_of(xent, weights), total),
            "accuracy": (mean_of(correct, weights), total),
            "num_predictions": (total, jnp.ones((), jnp.float32)),
        }
        if logits.shape[-1] > TOP:
            among = (jax.lax.top_k(logits, TOP)[1] == labels[:, None]).any(-1).astype(jnp.float32)
            metrics["accuracy5"] = (mean_of(among, weights), total)
        return metrics, NestedMap(labels=labels, predicted=predicted, correct=correct, scores=-xent)


class ClassificationMLPModel(ClassificationModel):
    """A stack of dense layers, and a softmax.

    Attributes:
        network_tpl: of the layers, with their sizes.
    """

    network_tpl: BaseHParams | None = sub_config_field(MLPBlock.HParams)


class BertClassificationModel(ClassificationModel):
    """A text, or a pair, classified by BERT's pooled first token: the network of `bert_classification`.

    A batch has `ids` (B, T), `paddings` (1 at padding), `token_types` for pairs, and the class. Weights can be
    exchanged with BertForSequenceClassification (exchange/hf_bert.py), including the bias of the classes.

    Attributes:
        network_tpl: of the encoder, with its sizes.
        num_classes: V.
        output_dropout_prob: of the pooled features.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.1.
    """

    network_tpl: BaseHParams | None = sub_config_field(BertEncoder.HParams, has_pooler=True)
    input_field: str = "ids"
    num_classes: int = 2
    output_dropout_prob: float = 0.0
    params_init: WeightInit | None = sub_config_field(WeightInit, method="gaussian", scale=INIT_STD)

    def setup(self) -> None:
        """Build encoder, dropout and classifier."""
        encoder: Any = self.network_tpl
        self.create_child("network", encoder, has_pooler=True)
        self.create_child("dropout", Dropout.HParams(dropout_prob=self.output_dropout_prob))
        sizes = {"input_dims": encoder.model_dims, "num_classes": self.num_classes}
        self.create_child("softmax", self.softmax_tpl, **sizes)

    def num_ids(self) -> dict[str, int]:
        """Return the number of classes for the label field, the size of the vocabulary, and the number of texts."""
        sizes = {self.input_field: "vocab_size", "token_types": "num_segments"}
        read = {name: getattr(self.network_tpl, size, 0) for name, size in sizes.items()}
        return {self.label_field: self.num_classes, **read}

    def misread(self, batch: Mapping[str, Any], *, decoding: bool) -> Iterator[Problem]:
        """Yield positions that the encoder does not have."""
        most = getattr(self.network_tpl, "max_positions", None)
        yield from too_few_positions({**batch, "ids": batch.get(self.input_field, ())}, most)

    def features(self, batch: NestedMap) -> jax.Array:
        """Return the pooled first token of each text, (B, D)."""
        names = ("paddings", "token_types", "segment_pos")
        beside = {name: batch.get(name) for name in names}
        vectors: jax.Array = self.dropout(self.network.pooled(batch[self.input_field], **beside))
        return vectors
