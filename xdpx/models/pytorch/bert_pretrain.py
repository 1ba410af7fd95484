"""BERT's two tasks at once: masked tokens, and one class for the whole text."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from transformers.models.bert.modeling_bert import BertPreTrainingHeads

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.word_model import given

CLASSIFIER = "cls.seq_relationship."


class BertPretrain(Bert):
    """Logits of masked tokens, and of the classes of the whole text: next sentence, sentence order, weak labels.

    Weight names are those of BertForPreTraining. A pretrained classifier of other classes is left out.

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
        self.cls = BertPreTrainingHeads(self.config)  # type: ignore[no-untyped-call]
        dense = self.cls.predictions.transform.dense
        dense.weight.data.normal_(std=self.config.initializer_range)
        dense.bias.data.zero_()
        self.cls.predictions.decoder.weight = self.bert.get_input_embeddings().weight
        self.cls.predictions.decoder.bias = self.cls.predictions.bias
        self.cls.seq_relationship = new_linear(self.config.hidden_size, self.num_classes, self.config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        masked_positions: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Give logits (M, V) of the masked positions, indices into the flattened ids (B * T); and of classes (B, C)."""
        output = self.encode(input_ids, attention_mask, token_type_ids)
        chosen = output.last_hidden_state.flatten(0, 1).index_select(0, masked_positions)
        tokens: Tensor
        classes: Tensor
        tokens, classes = self.cls(chosen, output.pooler_output)
        return tokens, classes

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Leave a classifier of another number of classes out."""
        return fitting_classifier(super().adapt(found), CLASSIFIER, self.num_classes)


def fitting_classifier(found: dict[str, Tensor], prefix: str, num_classes: int) -> dict[str, Tensor]:
    """Give weights without those behind `prefix` that have no row for each of so many classes."""
    return {name: each for name, each in found.items() if not name.startswith(prefix) or len(each) == num_classes}
