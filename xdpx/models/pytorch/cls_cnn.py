"""A convolutional classifier of single texts."""

from __future__ import annotations

from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.convolution import Encoder
from xdpx.models.pytorch.modules.prediction import prediction
from xdpx.models.pytorch.word_model import PooledParameters, WordModel, build_pooling, given


class ClsCnn(WordModel):
    """Word vectors, convolutions, pooling, two layers.

    Source: Kim, "Convolutional Neural Networks for Sentence Classification", EMNLP 2014, with several layers.
    """

    class Parameters(PooledParameters):
        """Keys of `cls_cnn`."""

        residual: bool = declare.param(False, doc="Add the input of each layer but the first to its output.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.embedding = self.build_embedding(parameters, fixed=parameters.fix_embeddings)
        self.encoder = Encoder(
            size_in=parameters.embedding_dim,
            size_out=parameters.hidden_size,
            layers=parameters.encoder_layers or 1,
            kernel_sizes=parameters.kernel_sizes,
            dropout=parameters.dropout,
            residual=parameters.residual,
        )
        self.pooling, size = build_pooling(parameters)
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = prediction(size, parameters.hidden_size, num_classes, parameters.dropout)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Give logits (B, num_classes) of tokens (B, T); mask (B, T) is true at real tokens."""
        mask = mask.bool()
        pooled = self.pooling(self.encoder(self.embedding(tokens), mask), mask)
        logits: Tensor = self.prediction(pooled)
        return logits
