"""BERT for a text or a pair: classes, a number, or a vector. B rows, T positions, H hidden size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.modules.dropout import Dropout, classified
from xdpx.models.pytorch.parameters import NumberParameters
from xdpx.models.pytorch.regression import Units
from xdpx.models.pytorch.word_model import given


class BertClassification(Bert):
    """The pooled first token, dropout, and one linear layer. Weight names are those of BertForSequenceClassification.

    The input of the classifier is `features`; networks that use more than the first token override it.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.1.
    """

    class Parameters(Bert.Parameters):
        """Keys of `bert_classification`."""

        output_dropout_prob: float = declare.param(
            0.0, ge=0, lt=1, doc="Share of the pooled features set to 0 in training."
        )
        dropout_samples: int = declare.param(
            1, ge=1, doc="Number of dropout masks over which logits are averaged in training."
        )
        load_cls_weights: bool = declare.param(False, doc="Load the classifier too, not only the encoder.")
        num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")

    parameters_used: Parameters

    reads_pooled: ClassVar[bool] = True
    """Whether `features` needs the pooler of the encoder."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=self.reads_pooled)
        self.config.num_labels = self.num_outputs()
        self.config.architectures = ["BertForSequenceClassification"] if self.reads_pooled else None
        self.dropout = Dropout(parameters.output_dropout_prob)
        self.classifier = new_linear(self.num_features(), self.num_outputs(), self.config)

    def idle_keys(self) -> dict[str, str]:
        """Return the keys that change nothing in this network, and why; see `Model.idle_keys`."""
        known, found = self.parameters_used, super().idle_keys()
        if known.dropout_samples > 1 and not known.output_dropout_prob:
            problem = f"is {known.dropout_samples}, but output_dropout_prob is 0: there is nothing to average over."
            found["dropout_samples"] = f"{problem} Set that to 0.2, say, or leave it out."
        return found

    def num_outputs(self) -> int:
        """Return the width of the logits."""
        return given(self.parameters_used.num_classes, "num_classes")

    def num_features(self) -> int:
        """Return the width of `features`."""
        return int(self.config.hidden_size)

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Return the input of the classifier (B, num_features) for ids (B, T)."""
        return self.pool(input_ids, attention_mask, token_type_ids)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return logits (B, num_classes) of ids (B, T); the mask is true (or 1) at real tokens."""
        seen = self.features(input_ids, attention_mask, token_type_ids)
        return classified(seen, self.dropout, self.classifier, samples=self.parameters_used.dropout_samples)

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename foreign weights; drop the classifier unless `load_cls_weights`."""
        ours = super().adapt(found)
        if self.parameters_used.load_cls_weights:
            return ours
        return {name: value for name, value in ours.items() if not name.startswith("classifier.")}


class BertRegression(BertClassification):
    """As `bert_classification`, with one output: the number, which `standardize` scales.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.1 (STS-B).
    """

    class Parameters(NumberParameters, BertClassification.Parameters):
        """Keys of `bert_regression`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.units = Units(parameters)

    def num_outputs(self) -> int:
        """Return the width of the logits: 1."""
        return 1

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return numbers (B,) for ids (B, T); the mask is true (or 1) at real tokens."""
        numbers: Tensor = self.units(super().forward(input_ids, attention_mask, token_type_ids))
        return numbers


class ProtoNet(BertClassification):
    """The pooled first token and one linear layer, whose output is a vector to be compared: `loss: fewshot`.

    Source: Snell et al., "Prototypical Networks for Few-shot Learning", NeurIPS 2017, section 2.2: the embedding.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `protonet`."""

        proj_hidden_size: int = declare.param(768, ge=1, doc="Width of the vectors.")

    parameters_used: Parameters

    def num_outputs(self) -> int:
        """Return the width of the vectors."""
        return self.parameters_used.proj_hidden_size


class BertClassificationConcat(BertClassification):
    """The concatenated first token of some layers, a tanh layer, dropout, and one linear layer.

    Source: Devlin et al., "BERT", NAACL 2019, section 5.3 (concatenated layers as features).
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `bert_classification_concat`."""

        highway_layers: list[int] = declare.param(
            [-1, -4, -7, -10], doc="Layers whose first token is used; negative ones count from the last, -1."
        )

    parameters_used: Parameters
    reads_pooled: ClassVar[bool] = False

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.chosen = layers_of(parameters.highway_layers, int(self.config.num_hidden_layers))
        width = self.config.hidden_size
        self.joined = new_linear(len(self.chosen) * width, width, self.config)

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Return (B, H) of ids (B, T)."""
        inputs = self._inputs(input_ids, attention_mask, token_type_ids)
        hidden = self.bert(**inputs, output_hidden_states=True).hidden_states
        return torch.tanh(self.joined(torch.cat([hidden[layer + 1][:, 0] for layer in self.chosen], dim=-1)))


def layers_of(wanted: list[int], num_layers: int) -> list[int]:
    """Return the indices of layers, from 0, for numbers that may be negative.

    Raises:
        ConfigError: the list is empty, or has a duplicate or a layer that does not exist.
    """
    found = [layer if layer >= 0 else num_layers + layer for layer in wanted]
    if found and len(set(found)) == len(found) and all(0 <= layer < num_layers for layer in found):
        return found
    problem = f"is {wanted}, but the encoder has {num_layers} layers."
    remedy = f"Use different numbers from {-num_layers} to {num_layers - 1}, e.g. [-1]."
    raise refusal("highway_layers", problem, remedy)


class BertClassificationSelfAttention(BertClassification):
    """The attention-weighted mean of all tokens, dropout, and one linear layer.

    Source: Lin et al., "A Structured Self-attentive Sentence Embedding", ICLR 2017, equation 5.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `bert_classification_self_attn`."""

        attn_hidden_size: int = declare.param(100, gt=0, doc="Width of the attention network.")

    parameters_used: Parameters
    reads_pooled: ClassVar[bool] = False

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.looking = new_linear(self.config.hidden_size, parameters.attn_hidden_size, self.config)
        self.weighing = nn.Linear(parameters.attn_hidden_size, 1, bias=False)
        nn.init.normal_(self.weighing.weight, std=self.config.initializer_range)

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Return (B, H) of ids (B, T)."""
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        scores = self.weighing(torch.tanh(self.looking(hidden))).squeeze(-1)
        weights = scores.masked_fill(~attention_mask.bool(), -torch.inf).softmax(dim=-1)
        return torch.einsum("bt,bth->bh", weights, hidden)


class SBertNLI(BertClassification):
    """One encoder for both texts; the vectors u, v and |u - v| are concatenated and classified.

    The vector of a text can be computed once and cached, unlike with a model that reads pairs. Instead of classes the
    output may be the cosine of u and v.

    Source: Reimers and Gurevych, "Sentence-BERT", EMNLP 2019, section 3, classification and regression objectives.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `sbert_nli`."""

        sentence_pooling: Literal["mean", "first", "max"] = declare.param(
            "mean", doc="Vector of a text: the mean of all its tokens, its first token, or the maximum of each feature."
        )
        prediction: Literal["classes", "cosine"] = declare.param(
            "classes", doc="classes: a logit for each; cosine: of the two vectors, for circle_siamese."
        )

    parameters_used: Parameters
    reads_pooled: ClassVar[bool] = False

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        if parameters.prediction == "cosine":
            del self.classifier

    def num_features(self) -> int:
        """Return the width of [u, v, |u - v|]."""
        return 3 * int(self.config.hidden_size)

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return vectors (N, H) of texts (N, T)."""
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        return text_vectors(hidden, attention_mask.bool(), self.parameters_used.sentence_pooling)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return logits (B, num_classes), or cosines (B,), of pairs (B, 2, T); the mask is 1 at real tokens."""
        del token_type_ids
        both = self.features(input_ids.flatten(0, 1), attention_mask.flatten(0, 1))
        u, v = both.view(*input_ids.shape[:2], -1).unbind(dim=1)
        if self.parameters_used.prediction == "cosine":
            return functional.cosine_similarity(u, v, dim=-1)
        seen = torch.cat([u, v, (u - v).abs()], dim=-1)
        return classified(seen, self.dropout, self.classifier, samples=self.parameters_used.dropout_samples)


def text_vectors(hidden_BTH: Tensor, mask_BT: Tensor, pooling: str) -> Tensor:
    """Return one vector (B, H) for each text: mean or maximum of its tokens, or its first token."""
    if pooling == "first":
        return hidden_BTH[:, 0]
    inside = mask_BT.unsqueeze(-1)
    if pooling == "max":
        return hidden_BTH.masked_fill(~inside, -torch.inf).amax(dim=1)
    return (hidden_BTH * inside).sum(dim=1) / inside.sum(dim=1)
