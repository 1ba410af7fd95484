"""Classification by all tokens, each as much as it matters."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert import new_linear
from xdpx.models.pytorch.bert_classification import BertClassification


class BertClassificationSelfAttention(BertClassification):
    """The mean of all tokens, weighted by what a small network makes of each; dropout, and one linear layer.

    Source: Lin et al., "A Structured Self-attentive Sentence Embedding", ICLR 2017, equation 5.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `bert_classification_self_attn`."""

        attn_hidden_size: int = declare.param(100, gt=0, doc="Width of the network that weighs tokens.")

    parameters_used: Parameters
    reads_pooled: ClassVar[bool] = False

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.looking = new_linear(self.config.hidden_size, parameters.attn_hidden_size, self.config)
        self.weighing = nn.Linear(parameters.attn_hidden_size, 1, bias=False)
        nn.init.normal_(self.weighing.weight, std=self.config.initializer_range)

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Give (B, H) of ids (B, T)."""
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        scores = self.weighing(torch.tanh(self.looking(hidden))).squeeze(-1)
        weights = scores.masked_fill(~attention_mask.bool(), -torch.inf).softmax(dim=-1)
        return torch.einsum("bt,bth->bh", weights, hidden)
