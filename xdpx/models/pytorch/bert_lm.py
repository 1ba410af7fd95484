"""BERT with a masked language modelling head: alone, for prompts, and with a class, a vector, or messages.

B rows or sessions, K messages, T positions, N messages that are not padding, H width.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor, nn, tanh
from transformers import PretrainedConfig
from transformers.models.bert.modeling_bert import BertOnlyMLMHead, BertPreTrainingHeads

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.logger import log
from xdpx.models.pytorch.base import ReadWeights
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.parameters import RMRParameters
from xdpx.models.pytorch.word_model import given

HEAD = "cls.predictions."
"""Beginning of the names of the head for masked tokens."""
OF_ROBERTA = {"dense": "transform.dense", "layer_norm": "transform.LayerNorm", "bias": "bias", "decoder": "decoder"}
ROBERTA_HEAD = re.compile(r"^lm_head\.(dense|layer_norm|bias|decoder)\b")


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
        refuse_other_head(self)
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

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """As `Bert.load_pretrained`; a warning tells if the file has no head for masked tokens."""
        super().load_pretrained(read_weights)
        tell_of_new_head(self)

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename foreign weights, also those of RoBERTa's head."""
        return super().adapt(named_as_in_bert(found, self.config))


class BertPrompt(BertLanguageModel):
    """The network of `bert_lm`, whose predictions at the blanks of a template are mapped to classes; no new weights.

    Source: Schick and Schuetze, "Exploiting Cloze Questions for Few Shot Text Classification and Natural Language
    Inference", EACL 2021, section 3 (PET).
    """

    class Parameters(BertLanguageModel.Parameters):
        """Keys of `bert_prompt`."""

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """As for `bert_lm`; but a file without a head for masked tokens is refused.

        Raises:
            ConfigError: see there; or there is no such head, which gives all of the answers.
        """
        super().load_pretrained(read_weights)
        known = self.parameters_used
        if known.strict_size and lacks_head(self):
            problem = f"is '{known.pretrained_model}', without a head for masked tokens"
            remedy = "Name a model that has one, such as BertForMaskedLM or RobertaForMaskedLM."
            raise refusal("pretrained_model", f"{problem}: prompts would be filled at random.", remedy)


def refuse_other_head(model: Bert) -> None:
    """Raise ConfigError for an encoder to which the head of BERT for masked tokens does not fit."""
    config, width = model.config, model.bert.get_input_embeddings().embedding_dim
    if width == config.hidden_size and hasattr(config, "hidden_act") and hasattr(config, "layer_norm_eps"):
        return
    problem = f"predicts masked tokens with the head of BERT, and '{config.model_type}' has one of another form."
    remedy = "Use albert_lm or albert_pretrain for ALBERT, electra_pretrain for ELECTRA, or an encoder such as roberta."
    raise refusal("model", problem, remedy)


def lacks_head(model: Bert) -> bool:
    """Return whether the weights that were loaded had no head for masked tokens."""
    return any(name.startswith(HEAD) for name in model.not_in_file)


def tell_of_new_head(model: Bert) -> None:
    """Warn if the weights that were loaded had no head for masked tokens, or one of another form."""
    if lacks_head(model):
        source = model.parameters_used.pretrained_model
        log.warning(f"{source}: has no head for masked tokens of BERT's form, so that it begins at random ({HEAD}*).")


def named_as_in_bert(found: Mapping[str, Tensor], config: PretrainedConfig) -> dict[str, Tensor]:
    """Return weights with those of RoBERTa's head for masked tokens under the names of BERT's, which is the same.

    Only if the activation is RoBERTa's, too. MPNet, Longformer, LUKE and others have that head.
    """
    if getattr(config, "hidden_act", None) != "gelu":
        return dict(found)
    return {ROBERTA_HEAD.sub(lambda match: HEAD + OF_ROBERTA[match[1]], name): each for name, each in found.items()}


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
        refuse_other_head(self)
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

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """As `Bert.load_pretrained`; a warning tells if the file has no head for masked tokens."""
        super().load_pretrained(read_weights)
        tell_of_new_head(self)

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename foreign weights; drop a classifier of another number of classes."""
        ours = super().adapt(named_as_in_bert(found, self.config))
        return fitting_classifier(ours, CLASSIFIER, self.num_classes)


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
