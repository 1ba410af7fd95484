"""Sentence vectors that can be compared. B rows, K views of each, T positions, H hidden size."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert import Bert, new_linear


class SimCSE(Bert):
    """The first token of an encoder, or the mean of all, behind one layer with tanh.

    Source: Gao et al., "SimCSE", EMNLP 2021, sections 3.1 and 6.3.
    """

    class Parameters(Bert.Parameters):
        """Keys of `simcse`."""

        sentence_pooling: Literal["first", "mean"] = declare.param(
            "first", doc="Vector of a text: that of its first token, or the mean of all its tokens."
        )
        layer_only_in_training: bool = declare.param(
            False, doc="Leave the last layer out when texts are scored; without labels that is better."
        )

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        self.layer = new_linear(self.config.hidden_size, self.config.hidden_size, self.config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Give vectors (B, K, H) of ids (B, K, T); the mask is true (or 1) at real tokens."""
        mask = attention_mask.flatten(0, 1)
        hidden = self.encode(input_ids.flatten(0, 1), mask).last_hidden_state
        if self.parameters_used.sentence_pooling == "mean":
            weight = mask.unsqueeze(-1).to(hidden.dtype)
            vectors = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
        else:
            vectors = hidden[:, 0]
        if self.training or not self.parameters_used.layer_only_in_training:
            vectors = torch.tanh(self.layer(vectors))
        rows: Tensor = vectors.unflatten(0, input_ids.shape[:2])
        return rows
