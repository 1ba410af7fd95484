"""Pre-training of ALBERT: masked tokens, and optionally the class of a whole text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers.models.albert.modeling_albert import AlbertMLMHead

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.bert_lm import fitting_classifier
from xdpx.models.pytorch.named_encoders import AlbertParameters
from xdpx.models.pytorch.word_model import given

CLASSIFIER = "sop_classifier."


class AlbertLanguageModel(Bert):
    """Predicts masked tokens; the head projects to the width of word embeddings, to which it is tied.

    Weight names are those of AlbertForMaskedLM.

    Source: Lan et al., "ALBERT: A Lite BERT", ICLR 2020, section 3.1.
    """

    class Parameters(AlbertParameters):
        """Keys of `albert_lm`."""

    parameters_used: Any
    architecture_name: ClassVar[str] = "AlbertForMaskedLM"
    has_classes: ClassVar[bool] = False

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=self.has_classes)  # type: ignore[arg-type]
        if self.config.model_type != "albert":
            problem = f"is '{self.config.model_type}', but this model predicts tokens as ALBERT does."
            raise refusal("model_type", problem, "Use bert_lm or bert_pretrain for others.")
        self.config.architectures = [self.architecture_name]
        self.predictions = AlbertMLMHead(self.config)
        nn.init.normal_(self.predictions.dense.weight, std=self.config.initializer_range)
        nn.init.zeros_(self.predictions.dense.bias)
        self.predictions.decoder.weight = self.bert.get_input_embeddings().weight
        self.predictions.decoder.bias = self.predictions.bias

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        masked_positions: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> Any:
        """Return logits (M, V) for the M masked positions, which are indices into the flattened ids (B * T)."""
        return self._guesses(self.encode(input_ids, attention_mask, token_type_ids), masked_positions)

    def _guesses(self, output: Any, masked_positions: Tensor) -> Tensor:
        logits: Tensor = self.predictions(output.last_hidden_state.flatten(0, 1).index_select(0, masked_positions))
        return logits


class AlbertPretrain(AlbertLanguageModel):
    """Predicts masked tokens, and a class of the whole text, such as the order of its two parts.

    Weight names are those of AlbertForPreTraining. A pretrained classifier of another number of classes is dropped.

    Source: Lan et al., "ALBERT: A Lite BERT", ICLR 2020, section 3.1, inter-sentence coherence loss.
    """

    class Parameters(AlbertLanguageModel.Parameters):
        """Keys of `albert_pretrain`."""

        num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")

    architecture_name = "AlbertForPreTraining"
    has_classes = True

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.num_classes = given(parameters.num_classes, "num_classes")
        self.sop_classifier = nn.ModuleDict(
            {
                "dropout": nn.Dropout(self.config.classifier_dropout_prob),
                "classifier": new_linear(self.config.hidden_size, self.num_classes, self.config),
            }
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        masked_positions: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return logits (M, V) of masked positions, indices into the flattened ids (B * T); and of classes (B, C)."""
        output = self.encode(input_ids, attention_mask, token_type_ids)
        pooled = self.sop_classifier["dropout"](output.pooler_output)
        classes: Tensor = self.sop_classifier["classifier"](pooled)
        return self._guesses(output, masked_positions), classes

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename foreign weights; drop a classifier of another number of classes."""
        return fitting_classifier(super().adapt(found), CLASSIFIER, self.num_classes)
