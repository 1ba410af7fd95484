"""BERT with a masked language modelling head: alone, for prompts, and with a class, a vector, or messages.

B rows or sessions, K messages, T positions, N messages that are not padding, H width.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn, tanh
from transformers.models.bert.modeling_bert import BertOnlyMLMHead, BertPreTrainingHeads

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.parameters import RMRParameters
from xdpx.models.pytorch.word_model import given


class BertLanguageModel(Bert):
    """Predicts masked tokens; only masked positions are projected to the vocabulary.

    The projection is tied to the word embeddings. Weight names are those of BertForMaskedLM.

    Source: Devlin et al., "BERT", NAACL 2019, section 3.1.
    """

    class Parameters(Bert.Parameters):
        """Keys of `bert_lm`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        self.config.architectures = ["BertForMaskedLM"]
        self.cls = BertOnlyMLMHead(self.config)
        _begin_guessing(self)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        masked_positions: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Return logits (M, V) for the M masked positions, which are indices into the flattened ids (B * T)."""
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        chosen = hidden.flatten(0, 1).index_select(0, masked_positions)
        logits: Tensor = self.cls(chosen)
        return logits


class BertPrompt(BertLanguageModel):
    """The network of `bert_lm`, whose predictions at the blanks of a template are mapped to classes; no new weights.

    Source: Schick and Schuetze, "Exploiting Cloze Questions for Few Shot Text Classification and Natural Language
    Inference", EACL 2021, section 3 (PET).
    """

    class Parameters(BertLanguageModel.Parameters):
        """Keys of `bert_prompt`."""


CLASSIFIER = "cls.seq_relationship."


class BertPretrain(Bert):
    """Predicts masked tokens, and a class of the whole text: next sentence, sentence order, weak labels.

    Weight names are those of BertForPreTraining. A pretrained classifier of another number of classes is dropped.

    Source: Devlin et al., "BERT", NAACL 2019, section 3.1.
    """

    class Parameters(Bert.Parameters):
        """Keys of `bert_pretrain`."""

        num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=True)
        self.num_classes = given(parameters.num_classes, "num_classes")
        self.config.architectures = ["BertForPreTraining"]
        self.cls = BertPreTrainingHeads(self.config)
        _begin_guessing(self)
        self.cls.seq_relationship = new_linear(self.config.hidden_size, self.num_classes, self.config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        masked_positions: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return logits (M, V) of masked positions, indices into the flattened ids (B * T); and of classes (B, C)."""
        output = self.encode(input_ids, attention_mask, token_type_ids)
        chosen = output.last_hidden_state.flatten(0, 1).index_select(0, masked_positions)
        tokens: Tensor
        classes: Tensor
        tokens, classes = self.cls(chosen, output.pooler_output)
        return tokens, classes

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename foreign weights; drop a classifier of another number of classes."""
        return fitting_classifier(super().adapt(found), CLASSIFIER, self.num_classes)


def fitting_classifier(found: dict[str, Tensor], prefix: str, num_classes: int) -> dict[str, Tensor]:
    """Return weights without a classifier (names that begin with `prefix`) of another number of classes."""
    return {name: each for name, each in found.items() if not name.startswith(prefix) or len(each) == num_classes}


class BertPretrainContrast(BertLanguageModel):
    """Predicts masked tokens, and returns the vector (B, H) of the first token after one tanh layer.

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
        """Return logits (M, V) of the masked positions, indices into the flattened ids (B * T); and vectors (B, H)."""
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        tokens: Tensor = self.cls(hidden.flatten(0, 1).index_select(0, masked_positions))
        return tokens, tanh(self.layer(hidden[:, 0]))


class RMRBert(BertLanguageModel):
    """Encodes each message separately; one attention layer over the messages then predicts which were replaced."""

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
        """Encode the messages that are not padding, and predict masked tokens and replaced messages.

        Args:
            input_ids: (B, K, T).
            attention_mask: (B, K, T), true (or 1) at real tokens.
            masked_positions: (M,), flat indices into ids (B * K * T).
            messages: (N,), flat indices into (B * K) of messages that are not padding, ascending.

        Returns:
            (logits (M, V) of the masked positions, logits (B, K) of each message being replaced).
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


def _begin_guessing(model: BertLanguageModel | BertPretrain) -> None:
    """Initialise the head for masked tokens; its decoder is tied to the token embeddings."""
    predictions = model.cls.predictions
    predictions.transform.dense.weight.data.normal_(std=model.config.initializer_range)
    predictions.transform.dense.bias.data.zero_()
    predictions.decoder.weight = model.bert.get_input_embeddings().weight
    predictions.decoder.bias = predictions.bias
