"""Questions and passages as vectors of one space. B rows, Q and P positions, H hidden size."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from xdpx.models.pytorch import weights
from xdpx.models.pytorch.base import ReadWeights
from xdpx.models.pytorch.bert import Bert
from xdpx.models.pytorch.parameters import DualEncoderParameters


class BertDPRQA(Bert):
    """Two encoders of one architecture, which begin alike: the first token of each is the vector of its text.

    `bert.*` are the weights that read questions, `passage.*` those that read passages.

    Source: Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", EMNLP 2020, section 3.
    """

    class Parameters(DualEncoderParameters, Bert.Parameters):
        """Keys of `bert_dpr_qa`."""

    parameters_used: Any

    def __init__(self, parameters: Parameters) -> None:
        of_questions = {
            "auto_model": parameters.auto_model or parameters.q_auto_config,
            "pretrained_model": parameters.pretrained_model or parameters.q_pretrained_model,
            "strict_size": parameters.strict_size and parameters.bert_strict_size,
        }
        super().__init__(parameters.model_copy(update=of_questions), pooler=False)
        self.passage = copy.deepcopy(self.bert)

    def forward(self, question_ids: Tensor, question_mask: Tensor, passage_ids: Tensor, passage_mask: Tensor) -> Tensor:
        """Give vectors (B, 2, H) of questions (B, Q) and passages (B, P); masks are true (or 1) at real tokens."""
        question = self.bert(**self._inputs(question_ids, question_mask, torch.zeros_like(question_ids)))
        passage = self.passage(**self._inputs(passage_ids, passage_mask, torch.zeros_like(passage_ids)))
        return torch.stack([question.last_hidden_state[:, 0], passage.last_hidden_state[:, 0]], dim=1)

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """Take over one encoder for both, then another for passages where `p_pretrained_model` names one."""
        super().load_pretrained(read_weights)
        known = self.parameters_used
        if known.p_pretrained_model:
            found = Bert.adapt(self, weights.read(known.p_pretrained_model, read_weights))
            ours = {name: value for name, value in _for_passages(found).items() if name in self.state_dict()}
            weights.take_over(self, ours, strict_size=known.strict_size, source=known.p_pretrained_model)

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Give weights of one encoder to both; those of a dual encoder stay as they are."""
        ours = super().adapt(found)
        return {**_for_passages(ours), **ours}

    def _depth(self, name: str, learning_rate: float) -> tuple[str, float]:
        return super()._depth(name.replace("passage.", "bert.", 1), learning_rate)


def _for_passages(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = "bert."
    return {f"passage.{name.removeprefix(start)}": value for name, value in found.items() if name.startswith(start)}
