"""A convolutional classifier of single texts."""

from __future__ import annotations

from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.prediction import prediction
from xdpx.models.pytorch.word_model import PooledModel, given


class ClsCnn(PooledModel):
    """Word vectors, convolutions, pooling, two layers.

    Source: Kim, "Convolutional Neural Networks for Sentence Classification", EMNLP 2014, with several layers.
    """

    class Parameters(PooledModel.Parameters):
        """Keys of `cls_cnn`."""

        residual: bool = declare.param(False, doc="Add the input of each layer but the first to its output.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, residual=parameters.residual)
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = prediction(self.pooled_size, parameters.hidden_size, num_classes, parameters.dropout)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Give logits (B, num_classes) of tokens (B, T); mask (B, T) is true at real tokens."""
        logits: Tensor = self.prediction(self.pool(tokens, mask))
        return logits
