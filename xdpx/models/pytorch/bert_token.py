"""A class for each word of a text. B rows, T tokens, W words, C tags."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.modules.dropout import Dropout
from xdpx.models.pytorch.modules.tagging import TagScores, of_words
from xdpx.models.pytorch.word_model import given


class BertToken(Bert):
    """The first token of each word, dropout, one linear layer; with `use_crf` a CRF over the tags.

    Weight names are those of BertForTokenClassification.

    Source: Devlin et al., "BERT", NAACL 2019, section 5.3; Lample et al., NAACL 2016, section 2.2 (CRF).
    """

    class Parameters(Bert.Parameters):
        """Keys of `bert_token`."""

        output_dropout_prob: float = declare.param(
            0.1, ge=0, lt=1, doc="Share of the features of a word set to 0 in training."
        )
        load_cls_weights: bool = declare.param(False, doc="Load the classifier too, not only the encoder.")
        use_crf: bool = declare.param(False, doc="Score all tags of a text together with a CRF.")
        crf_lr_ratio: float = declare.param(
            100.0, gt=0, doc="Factor on the learning rate of the transition scores.", when=("use_crf", "is", True)
        )
        num_classes: int | None = declare.param(None, gt=0, doc="Number of tags, from meta.hjson.")

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        num_classes = given(parameters.num_classes, "num_classes")
        self.config.num_labels = num_classes
        self.config.architectures = ["BertForTokenClassification"]
        self.dropout = Dropout(parameters.output_dropout_prob)
        self.classifier = new_linear(self.config.hidden_size, num_classes, self.config)
        self.neighbours = nn.Parameter(torch.zeros(num_classes + 1, num_classes + 1)) if parameters.use_crf else None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        word_starts: Tensor,
        word_mask: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> TagScores:
        """Return the scores of tags for ids (B, T), whose words start at `word_starts` (B, W); 0 at padding words."""
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        emissions = self.classifier(self.dropout(of_words(hidden, word_starts)))
        return TagScores(emissions * word_mask.unsqueeze(-1), self.neighbours)

    def _depth(self, name: str, learning_rate: float) -> tuple[str, float]:
        if name == "neighbours":
            return "neighbours", learning_rate * self.parameters_used.crf_lr_ratio
        return super()._depth(name, learning_rate)

    def _decay(self, part: str, *, decays: bool) -> dict[str, float]:
        return super()._decay(part, decays=decays and part != "neighbours")

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename foreign weights; drop the classifier unless `load_cls_weights`."""
        ours = super().adapt(found)
        if self.parameters_used.load_cls_weights:
            return ours
        return {name: value for name, value in ours.items() if not name.startswith(("classifier.", "neighbours"))}
