"""BERT as a prototypical network sees it: a vector for each text."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert_classification import BertClassification


class ProtoNet(BertClassification):
    """The pooled first token and one linear layer, whose output is a vector to compare with others: `loss: fewshot`.

    Source: Snell et al., "Prototypical Networks for Few-shot Learning", NeurIPS 2017, section 2.2: the embedding.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `protonet`."""

        proj_hidden_size: int = declare.param(768, ge=1, doc="Width of the vectors.")

    parameters_used: Parameters

    def num_outputs(self) -> int:
        """Give the width of the vectors."""
        return self.parameters_used.proj_hidden_size
