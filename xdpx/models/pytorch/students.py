"""Students of MiniLM and TinyBERT, which imitate layers of a teacher. B texts, T positions, H width."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.models.pytorch import encoders
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.bert_classification import BertClassification
from xdpx.models.pytorch.bert_lm import BertPretrain

ABOVE = re.compile(r"\.(attention\.output|attn\.Wo|intermediate|(?<!attention\.)output|mlp|mlp_norm)\.")
"""Matches names of weights of a layer that are applied after its attention, including norms before the next part."""


class MiniLM(Bert):
    """An encoder without a head. Weights after the attention of the last layer get no gradient, so they are frozen.

    To fine-tune its weights, load them with `pretrained_model` in another BERT model.

    Source: Wang et al., "MiniLM", NeurIPS 2020, section 3.
    """

    class Parameters(Bert.Parameters):
        """Keys of `minilm`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        last = int(self.config.num_hidden_layers) - 1
        for name, weight in self.named_parameters():
            if encoders.layer_of(name) == last and ABOVE.search(name):
                weight.requires_grad_(False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, T, H) of ids (B, T); the mask is true (or 1) at real tokens."""
        hidden: Tensor = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        return hidden


class FitParameters(declare.Parameters):
    """Keys of all students of TinyBERT."""

    fit_size: int | None = declare.param(
        None, gt=0, doc="Width of the teacher's layers, to which the student's are projected; null: equal."
    )


class Fit(nn.Module):
    """Projections to the width of the teacher: one of the embeddings, and one shared by all layers.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, equations 8 and 9.
    """

    def __init__(self, student: Bert, size: int) -> None:
        super().__init__()
        self.embedding, self.hidden = (new_linear(student.config.hidden_size, size, student.config) for _ in range(2))

    def forward(self, hidden: Sequence[Tensor]) -> list[Tensor]:
        """Return (B, T, size) for each of the student's (B, T, H); the first are the embeddings."""
        return [self.hidden(each) if number else self.embedding(each) for number, each in enumerate(hidden)]


def fit_of(student: Bert, size: int | None) -> Fit | None:
    """Return the projections of a student; None if it is as wide as its teacher."""
    return None if size is None else Fit(student, size)


class TinyBertEncoder(Bert):
    """An encoder without a head, for texts without labels. `fit` is used in distillation only.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, section 3.2, general distillation.
    """

    class Parameters(FitParameters, Bert.Parameters):
        """Keys of `tinybert_encoder_only_distill`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        self.fit = fit_of(self, parameters.fit_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, T, H) of ids (B, T); the mask is true (or 1) at real tokens."""
        hidden: Tensor = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        return hidden


class TinyBertForGD(BertPretrain):
    """As `bert_pretrain`, for general distillation that also imitates the teacher's predictions.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, section 3.2, general distillation.
    """

    class Parameters(FitParameters, BertPretrain.Parameters):
        """Keys of `tinybert_for_gd`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.fit = fit_of(self, parameters.fit_size)


class TinyBertForTD(BertClassification):
    """As `bert_classification`, for distillation of a fine-tuned teacher.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, section 3.2, task-specific distillation.
    """

    class Parameters(FitParameters, BertClassification.Parameters):
        """Keys of `tinybert_for_td`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.fit = fit_of(self, parameters.fit_size)
