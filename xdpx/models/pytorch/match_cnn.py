"""A convolutional matcher of two texts that are encoded apart from one another."""

from __future__ import annotations

from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.convolution import Encoder
from xdpx.models.pytorch.modules.prediction import Matching, MatchingPrediction
from xdpx.models.pytorch.word_model import PooledParameters, WordModel, build_pooling, given


class MatchCnn(WordModel):
    """One encoder for both texts, pooling, and a comparison of the two vectors."""

    class Parameters(PooledParameters):
        """Keys of `match_cnn`."""

        prediction: Matching = declare.param("full", doc="Which features of the two vectors the classifier sees.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.embedding = self.build_embedding(parameters, fixed=parameters.fix_embeddings)
        self.encoder = Encoder(
            size_in=parameters.embedding_dim,
            size_out=parameters.hidden_size,
            layers=parameters.encoder_layers or 1,
            kernel_sizes=parameters.kernel_sizes,
            dropout=parameters.dropout,
        )
        self.pooling, size = build_pooling(parameters)
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = MatchingPrediction(
            parameters.prediction, size, parameters.hidden_size, num_classes, dropout=parameters.dropout
        )

    def forward(self, tokens1: Tensor, mask1: Tensor, tokens2: Tensor, mask2: Tensor) -> Tensor:
        """Give logits (B, num_classes) of tokens1 (B, T) and tokens2 (B, S); masks are true at real tokens."""
        logits: Tensor = self.prediction(self._encode(tokens1, mask1.bool()), self._encode(tokens2, mask2.bool()))
        return logits

    def _encode(self, tokens: Tensor, mask: Tensor) -> Tensor:
        pooled: Tensor = self.pooling(self.encoder(self.embedding(tokens), mask), mask)
        return pooled
