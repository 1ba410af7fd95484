"""BERT as an encoder of texts for retrieval: SimCSE, and dense passage retrieval.

B rows, K views of each, T, Q and P positions, H hidden size.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.logger import log
from xdpx.models.pytorch import google_names, weights
from xdpx.models.pytorch.base import ReadWeights
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.parameters import DualEncoderParameters


class SimCSE(Bert):
    """The first token, or the mean of all tokens, after one tanh layer.

    Source: Gao et al., "SimCSE", EMNLP 2021, sections 3.1 and 6.3.
    """

    class Parameters(Bert.Parameters):
        """Keys of `simcse`."""

        sentence_pooling: Literal["first", "mean"] = declare.param(
            "first", doc="Vector of a text: that of its first token, or the mean of all its tokens."
        )
        layer_only_in_training: bool = declare.param(
            False, doc="Skip the last layer in evaluation, which is better for training without labels."
        )

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        self.layer = new_linear(self.config.hidden_size, self.config.hidden_size, self.config)

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """As `Bert.load_pretrained`; a warning tells if the weights were trained for another pooling."""
        super().load_pretrained(read_weights)
        tell_of_pooling(self.parameters_used.pretrained_model, self.parameters_used.sentence_pooling)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return vectors (B, K, H) of ids (B, K, T); the mask is true (or 1) at real tokens."""
        mask = attention_mask.flatten(0, 1)
        hidden = self.encode(input_ids.flatten(0, 1), mask).last_hidden_state
        if self.parameters_used.sentence_pooling == "mean":
            weight = mask.unsqueeze(-1).to(hidden.dtype)
            vectors = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
        else:
            vectors = hidden[:, 0]
        if self.training or not self.parameters_used.layer_only_in_training:
            vectors = torch.tanh(self.layer(vectors))
        rows: Tensor = vectors.view(*input_ids.shape[:2], *vectors.shape[1:])
        return rows


def tell_of_pooling(source: str | None, ours: str) -> None:
    """Warn if weights of sentence-transformers were trained for vectors that are made of tokens in another way."""
    theirs = weights.pooling_of(source) if source else None
    if theirs not in {None, ours}:
        remedy = f"Set sentence_pooling: {theirs}." if theirs in {"first", "mean"} else "There is no such choice here."
        log.warning(
            f"{source}: its vectors are '{theirs}' of the tokens ({weights.POOLING}), but '{ours}' here. {remedy}"
        )


class BertDPRQA(Bert):
    """Two encoders of the same architecture and initial weights; the first token of each is the vector of its text.

    `bert.*` are the weights of the question encoder, `passage.*` those of the passage encoder.

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
        """Return vectors (B, 2, H) of questions (B, Q) and passages (B, P); masks are true (or 1) at real tokens."""
        question = self.bert(**self._inputs(question_ids, question_mask, torch.zeros_like(question_ids)))
        passage = self.passage(**self._inputs(passage_ids, passage_mask, torch.zeros_like(passage_ids)))
        return torch.stack([question.last_hidden_state[:, 0], passage.last_hidden_state[:, 0]], dim=1)

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """Load one encoder for both, then another for passages if `p_pretrained_model` is given."""
        super().load_pretrained(read_weights)
        known = self.parameters_used
        if known.p_pretrained_model:
            table = google_names.user_table(known.tf_names)
            found = Bert.adapt(self, weights.read(known.p_pretrained_model, read_weights, table=table))
            ours = {name: value for name, value in _for_passages(found).items() if name in self.state_dict()}
            source = known.p_pretrained_model
            weights.take_over(self, ours, strict_size=known.strict_size, source=source, in_part=True)

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename foreign weights, and copy those of a single encoder to both; a dual encoder keeps its own."""
        ours = super().adapt(found)
        return {**_for_passages(ours), **ours}

    def _depth(self, name: str, learning_rate: float) -> tuple[str, float]:
        return super()._depth(name.replace("passage.", "bert.", 1), learning_rate)


def _for_passages(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = "bert."
    return {f"passage.{name.removeprefix(start)}": value for name, value in found.items() if name.startswith(start)}
