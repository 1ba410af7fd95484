"""Masked language modelling with BERT."""

from __future__ import annotations

from torch import Tensor
from transformers.models.bert.modeling_bert import BertOnlyMLMHead

from xdpx.models.pytorch.bert import Bert


class BertLanguageModel(Bert):
    """Tokens guessed from what is around them; only masked positions are projected onto the vocabulary.

    The projection is tied to the word embeddings. Weight names are those of BertForMaskedLM.

    Source: Devlin et al., "BERT", NAACL 2019, section 3.1.
    """

    class Parameters(Bert.Parameters):
        """Keys of `bert_lm`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        self.config.architectures = ["BertForMaskedLM"]
        self.cls = BertOnlyMLMHead(self.config)  # type: ignore[no-untyped-call]
        self.cls.predictions.transform.dense.weight.data.normal_(std=self.config.initializer_range)
        self.cls.predictions.transform.dense.bias.data.zero_()
        self.cls.predictions.decoder.weight = self.bert.get_input_embeddings().weight
        self.cls.predictions.decoder.bias = self.cls.predictions.bias

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        masked_positions: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Give logits (M, V) for the M masked positions, which are indices into the flattened ids (B * T)."""
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        chosen = hidden.flatten(0, 1).index_select(0, masked_positions)
        logits: Tensor = self.cls(chosen)
        return logits
