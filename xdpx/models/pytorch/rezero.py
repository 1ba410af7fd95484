"""BERT without layer norms: each part of a layer is scaled by a learned gate that is initially 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import refusal
from xdpx.models.pytorch.bert_classification import BertClassification
from xdpx.models.pytorch.bert_lm import BertLanguageModel, BertPretrain

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Gated(nn.Module):
    """The end of a part of a layer: x + gate * dropout(W f(x)); the gate is initially 0.

    Attention and feed-forward have a gate each, whereas the paper's code shares one per layer.

    Source: Bachlechner et al., "ReZero is All You Need: Fast Convergence at Large Depth", UAI 2021, equation 1.
    """

    def __init__(self, normed: Any) -> None:
        super().__init__()
        self.dense, self.dropout = normed.dense, normed.dropout
        self.gate = nn.Parameter(torch.zeros(()), requires_grad=normed.dense.weight.requires_grad)

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """Return (B, T, H)."""
        made: Tensor = self.dropout(self.dense(hidden_states))
        return input_tensor + self.gate * made


def use_gates(encoder: PreTrainedModel) -> None:
    """Replace the norms in the layers of a BERT by gates.

    Raises:
        ConfigError: its layers are not those of BERT.
    """
    layers = getattr(getattr(encoder, "encoder", None), "layer", ())
    if not layers or not all(hasattr(getattr(layer, "output", None), "LayerNorm") for layer in layers):
        problem = f"is '{encoder.config.model_type}', whose layers have no norms after their sublayers."
        raise refusal("model_type", problem, "Use bert or roberta for a ReZero model.")
    for layer in layers:
        layer.attention.output = Gated(layer.attention.output)
        layer.output = Gated(layer.output)


class WithGates:
    """Mixin before a BERT class that replaces the norms in its layers by gates."""

    bert: Any

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)  # type: ignore[call-arg]
        use_gates(self.bert)


class BertClassificationReZero(WithGates, BertClassification):
    """As `bert_classification`, with gates instead of norms in the layers.

    Source: Bachlechner et al., "ReZero is All You Need: Fast Convergence at Large Depth", UAI 2021, section 5.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `bert_classification_rezero`."""


class BertLanguageModelReZero(WithGates, BertLanguageModel):
    """As `bert_lm`, with gates instead of norms in the layers.

    Source: Bachlechner et al., "ReZero is All You Need: Fast Convergence at Large Depth", UAI 2021, section 5.
    """

    class Parameters(BertLanguageModel.Parameters):
        """Keys of `bert_lm_rezero`."""


class BertPretrainReZero(WithGates, BertPretrain):
    """As `bert_pretrain`, with gates instead of norms in the layers.

    Source: Bachlechner et al., "ReZero is All You Need: Fast Convergence at Large Depth", UAI 2021, section 5.
    """

    class Parameters(BertPretrain.Parameters):
        """Keys of `bert_pretrain_rezero`."""
