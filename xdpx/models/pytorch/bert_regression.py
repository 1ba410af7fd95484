"""A number for one text, or a pair, with BERT."""

from __future__ import annotations

from torch import Tensor

from xdpx.models.pytorch.bert_classification import BertClassification


class BertRegression(BertClassification):
    """As `bert_classification`, with one output, which is the number itself.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.1 (STS-B).
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `bert_regression`."""

    def num_outputs(self) -> int:
        """Give the width of the logits: a number."""
        return 1

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Give numbers (B,) for ids (B, T); the mask is true (or 1) at real tokens."""
        return super().forward(input_ids, attention_mask, token_type_ids).squeeze(-1)
