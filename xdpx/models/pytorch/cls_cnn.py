"""A convolutional classifier of single texts."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.models.pytorch.tops import OfOneText
from xdpx.models.pytorch.word_model import PooledModel


class ClsCnn(OfOneText, PooledModel):
    """Word vectors, convolutions, pooling, two layers.

    Source: Kim, "Convolutional Neural Networks for Sentence Classification", EMNLP 2014, with several layers.
    """

    class Parameters(PooledModel.Parameters):
        """Keys of `cls_cnn`."""

        residual: bool = declare.param(False, doc="Add the input of each layer but the first to its output.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, residual=parameters.residual)
