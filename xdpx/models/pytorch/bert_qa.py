"""Extractive question answering: start and end of the answer in a text. B rows, T positions."""

from __future__ import annotations

import torch
from torch import Tensor

from xdpx.models.pytorch.bert import Bert, new_linear


class BertQA(Bert):
    """One linear layer predicts for each position whether the answer starts or ends there; [CLS] means no answer.

    Weight names are those of BertForQuestionAnswering.

    Source: Devlin et al., "BERT", NAACL 2019, sections 4.2 and 4.3.
    """

    class Parameters(Bert.Parameters):
        """Keys of `bert_qa`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        self.config.architectures = ["BertForQuestionAnswering"]
        self.qa_outputs = new_linear(self.config.hidden_size, 2, self.config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Return logits (B, T, 2) of start and end; the lowest value at positions that cannot be in the answer.

        Args:
            input_ids: question and context, (B, T).
            attention_mask: true (or 1) at real tokens, (B, T).
            token_type_ids: 1 in the context and at the [SEP] after it, (B, T).
        """
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        logits: Tensor = self.qa_outputs(hidden).float()
        inside = token_type_ids.bool() & attention_mask.bool()
        possible = torch.zeros_like(inside)
        possible[:, :-1] = inside[:, :-1] & inside[:, 1:]  # excludes the final [SEP]
        possible[:, 0] = True
        return logits.masked_fill(~possible.unsqueeze(-1), torch.finfo(logits.dtype).min)
