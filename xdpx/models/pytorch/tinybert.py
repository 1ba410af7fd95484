"""Students of TinyBERT: encoders that imitate, layer by layer, one that may be wider. B texts, T positions, H width."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.bert_classification import BertClassification
from xdpx.models.pytorch.bert_pretrain import BertPretrain


class FitParameters(declare.Parameters):
    """Keys of every student of TinyBERT."""

    fit_size: int | None = declare.param(
        None, gt=0, doc="Width of the teacher's layers, to which those of the student are projected; null: as wide."
    )


class Fit(nn.Module):
    """Projections to the width of the teacher: one of the embeddings, one that all layers share.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, equations 8 and 9.
    """

    def __init__(self, student: Bert, size: int) -> None:
        super().__init__()
        self.embedding, self.hidden = (new_linear(student.config.hidden_size, size, student.config) for _ in range(2))

    def forward(self, hidden: Sequence[Tensor]) -> list[Tensor]:
        """Give (B, T, size) for each of the student's (B, T, H); the first is of the embeddings."""
        return [self.hidden(each) if number else self.embedding(each) for number, each in enumerate(hidden)]


def fit_of(student: Bert, size: int | None) -> Fit | None:
    """Give the projections that a student needs; None where it is as wide as its teacher."""
    return None if size is None else Fit(student, size)


class TinyBertEncoder(Bert):
    """The encoder alone, to learn from texts without labels. `fit` is of use in distillation only.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, section 3.2, general distillation.
    """

    class Parameters(FitParameters, Bert.Parameters):
        """Keys of `tinybert_encoder_only_distill`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        self.fit = fit_of(self, parameters.fit_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Give the hidden states (B, T, H) of ids (B, T); the mask is true (or 1) at real tokens."""
        hidden: Tensor = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        return hidden


class TinyBertForGD(BertPretrain):
    """As `bert_pretrain`, for general distillation that also imitates what is said of masked tokens and of texts.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, section 3.2, general distillation.
    """

    class Parameters(FitParameters, BertPretrain.Parameters):
        """Keys of `tinybert_for_gd`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.fit = fit_of(self, parameters.fit_size)


class TinyBertForTD(BertClassification):
    """As `bert_classification`, for distillation of a teacher that was fine-tuned.

    Source: Jiao et al., "TinyBERT", EMNLP Findings 2020, section 3.2, task-specific distillation.
    """

    class Parameters(FitParameters, BertClassification.Parameters):
        """Keys of `tinybert_for_td`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.fit = fit_of(self, parameters.fit_size)
