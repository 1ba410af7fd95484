"""Classification of one text, or a pair, with BERT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.modules.dropout import Dropout
from xdpx.models.pytorch.modules.multi_sample import classified
from xdpx.models.pytorch.word_model import given


class BertClassification(Bert):
    """The pooled first token, dropout, and one linear layer. Weight names are those of BertForSequenceClassification.

    What the classifier sees is `features`: networks that look at more than the first token override it.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.1.
    """

    class Parameters(Bert.Parameters):
        """Keys of `bert_classification`."""

        output_dropout_prob: float = declare.param(
            0.0, ge=0, lt=1, doc="Share of the pooled features set to 0 in training."
        )
        dropout_samples: int = declare.param(
            1, ge=1, doc="Over how many dropout masks of the pooled features the logits are averaged in training."
        )
        load_cls_weights: bool = declare.param(False, doc="Take over the classifier too, not only what is below it.")
        num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")

    parameters_used: Parameters

    reads_pooled: ClassVar[bool] = True
    """Whether `features` needs the pooler of the encoder."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=self.reads_pooled)
        self.config.num_labels = self.num_outputs()
        self.config.architectures = ["BertForSequenceClassification"] if self.reads_pooled else None
        self.dropout = Dropout(parameters.output_dropout_prob)
        self.classifier = new_linear(self.num_features(), self.num_outputs(), self.config)

    def num_outputs(self) -> int:
        """Give the width of the logits."""
        return given(self.parameters_used.num_classes, "num_classes")

    def num_features(self) -> int:
        """Give the width of `features`."""
        return int(self.config.hidden_size)

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Give what the classifier sees of ids (B, T): (B, num_features)."""
        return self.pool(input_ids, attention_mask, token_type_ids)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Give logits (B, num_classes) of ids (B, T); the mask is true (or 1) at real tokens."""
        seen = self.features(input_ids, attention_mask, token_type_ids)
        return classified(seen, self.dropout, self.classifier, samples=self.parameters_used.dropout_samples)

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Leave the classifier out unless `load_cls_weights`."""
        ours = super().adapt(found)
        if self.parameters_used.load_cls_weights:
            return ours
        return {name: value for name, value in ours.items() if not name.startswith("classifier.")}
