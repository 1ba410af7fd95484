"""Masked tokens, and a vector of the whole text to be compared with others."""

from __future__ import annotations

from torch import Tensor, tanh

from xdpx.models.pytorch.bert import new_linear
from xdpx.models.pytorch.bert_lm import BertLanguageModel


class BertPretrainContrast(BertLanguageModel):
    """Logits of masked tokens, and the vector (B, H) of the first token behind one layer with tanh.

    Source: Gao et al., "SimCSE", EMNLP 2021, section 6.3, auxiliary masked language modelling.
    """

    class Parameters(BertLanguageModel.Parameters):
        """Keys of `bert_pretrain_cl`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.layer = new_linear(self.config.hidden_size, self.config.hidden_size, self.config)

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        masked_positions: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Give logits (M, V) of the masked positions, indices into the flattened ids (B * T); and vectors (B, H)."""
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        tokens: Tensor = self.cls(hidden.flatten(0, 1).index_select(0, masked_positions))
        return tokens, tanh(self.layer(hidden[:, 0]))
