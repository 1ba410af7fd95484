"""A convolutional matcher of two texts that are encoded apart from one another."""

from __future__ import annotations

from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.prediction import Matching, MatchingPrediction
from xdpx.models.pytorch.word_model import PooledModel, given


class MatchCnn(PooledModel):
    """One encoder for both texts, pooling, and a comparison of the two vectors.

    Source: Hu et al., "Convolutional Neural Network Architectures for Matching Natural Language Sentences", NeurIPS
    2014, section 3.1 (ARC-I).
    """

    class Parameters(PooledModel.Parameters):
        """Keys of `match_cnn`."""

        prediction: Matching = declare.param("full", doc="Which features of the two vectors the classifier sees.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = MatchingPrediction(
            parameters.prediction, self.pooled_size, parameters.hidden_size, num_classes, dropout=parameters.dropout
        )

    def forward(self, tokens1: Tensor, mask1: Tensor, tokens2: Tensor, mask2: Tensor) -> Tensor:
        """Give logits (B, num_classes) of tokens1 (B, T) and tokens2 (B, S); masks are true at real tokens."""
        logits: Tensor = self.prediction(self.pool(tokens1, mask1), self.pool(tokens2, mask2))
        return logits
