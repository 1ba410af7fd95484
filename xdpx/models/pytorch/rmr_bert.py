"""A dialogue, message by message. B sessions, K messages, T positions, N messages that are no padding, H width."""

from __future__ import annotations

from torch import Tensor, nn

from xdpx.models.pytorch.bert import new_linear
from xdpx.models.pytorch.bert_lm import BertLanguageModel
from xdpx.models.pytorch.parameters import RMRParameters
from xdpx.models.pytorch.word_model import given


class RMRBert(BertLanguageModel):
    """Each message by BERT alone; then one layer of attention among the messages tells which do not belong."""

    class Parameters(RMRParameters):
        """Keys of `rmr_bert`."""

    parameters_used: Parameters  # type: ignore[assignment]

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)  # type: ignore[arg-type]
        width = parameters.top_hidden_size
        self.narrow = new_linear(self.config.hidden_size, width, self.config)
        self.place = nn.Embedding(given(parameters.max_messages, "max_messages"), width)
        nn.init.normal_(self.place.weight, std=self.config.initializer_range)
        dropout = self.config.hidden_dropout_prob
        self.top = nn.TransformerEncoderLayer(width, parameters.top_heads, 4 * width, dropout, batch_first=True)
        self.replaced = new_linear(width, 1, self.config)

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor, masked_positions: Tensor, messages: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Read the messages that are there, and compare them.

        Args:
            input_ids: (B, K, T).
            attention_mask: (B, K, T), true (or 1) at real tokens.
            masked_positions: (M,), flat indices into ids (B * K * T).
            messages: (N,), flat indices into (B * K) of messages that are no padding, ascending.

        Returns:
            (logits (M, V) of the masked positions, logits (B, K) of a message having been replaced).
        """
        sessions, slots, length = input_ids.shape
        mask = attention_mask.bool().flatten(0, 1)
        real = mask.any(dim=1)
        read, seen_tokens = input_ids.flatten(0, 1).index_select(0, messages), mask.index_select(0, messages)
        hidden = self.encode(read, seen_tokens).last_hidden_state
        row = real.cumsum(dim=0) - 1
        places = row[masked_positions // length] * length + masked_positions % length
        tokens: Tensor = self.cls(hidden.flatten(0, 1).index_select(0, places))
        first = self.narrow(hidden[:, 0])
        vectors = first.new_zeros(len(real), first.shape[1])
        vectors = vectors.index_copy(0, messages, first).view(sessions, slots, -1)
        seen = self.top(vectors + self.place.weight[:slots], src_key_padding_mask=~real.view(sessions, slots))
        told: Tensor = self.replaced(seen).squeeze(-1)
        return tokens, told
