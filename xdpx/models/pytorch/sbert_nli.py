"""How two texts relate, each read without the other. B rows, T positions, H hidden size."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert_classification import BertClassification
from xdpx.models.pytorch.modules.multi_sample import classified


class SBertNLI(BertClassification):
    """One encoder reads both texts; their vectors u and v and |u - v| side by side are classified.

    The vector of a text can be computed once and kept, which a model that reads pairs cannot offer.

    Source: Reimers and Gurevych, "Sentence-BERT", EMNLP 2019, section 3, classification objective.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `sbert_nli`."""

        sentence_pooling: Literal["mean", "first", "max"] = declare.param(
            "mean", doc="Vector of a text: the mean of all its tokens, its first token, or the maximum of each feature."
        )

    parameters_used: Parameters
    reads_pooled: ClassVar[bool] = False

    def num_features(self) -> int:
        """Give the width of [u, v, |u - v|]."""
        return 3 * int(self.config.hidden_size)

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Give vectors (N, H) of texts (N, T)."""
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        return text_vectors(hidden, attention_mask.bool(), self.parameters_used.sentence_pooling)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Give logits (B, num_classes) of pairs (B, 2, T); the mask is true (or 1) at real tokens."""
        del token_type_ids
        both = self.features(input_ids.flatten(0, 1), attention_mask.flatten(0, 1))
        u, v = both.view(*input_ids.shape[:2], -1).unbind(dim=1)
        seen = torch.cat([u, v, (u - v).abs()], dim=-1)
        return classified(seen, self.dropout, self.classifier, samples=self.parameters_used.dropout_samples)


def text_vectors(hidden_BTH: Tensor, mask_BT: Tensor, pooling: str) -> Tensor:
    """Give one vector (B, H) for each text: mean or maximum of its tokens, or its first one."""
    if pooling == "first":
        return hidden_BTH[:, 0]
    inside = mask_BT.unsqueeze(-1)
    if pooling == "max":
        return hidden_BTH.masked_fill(~inside, -torch.inf).amax(dim=1)
    return (hidden_BTH * inside).sum(dim=1) / inside.sum(dim=1)
