"""Convolutions over word vectors: for one text, for a pair encoded separately, and a deep pyramid (DPCNN).

B batch, T positions, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.dropout import Dropout
from xdpx.models.pytorch.modules.heads import MaxPooling
from xdpx.models.pytorch.parameters import LightParameters
from xdpx.models.pytorch.word_model import MatchingKeys, OfOneText, OfTwoTexts, PooledModel, WordModel, given


class ClsCnn(OfOneText, PooledModel):
    """Word vectors, convolutions, pooling, two layers.

    Source: Kim, "Convolutional Neural Networks for Sentence Classification", EMNLP 2014, with several layers.
    """

    class Parameters(PooledModel.Parameters):
        """Keys of `cls_cnn`."""

        residual: bool = declare.param(False, doc="Add the input of each layer but the first to its output.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, residual=parameters.residual)


class MatchCnn(OfTwoTexts, PooledModel):
    """One encoder for both texts, pooling, and a comparison of the two vectors.

    Source: Hu et al., "Convolutional Neural Network Architectures for Matching Natural Language Sentences", NeurIPS
    2014, section 3.1 (ARC-I).
    """

    class Parameters(MatchingKeys, PooledModel.Parameters):
        """Keys of `match_cnn`."""


WINDOW = 3
"""Kernel size of every convolution and of the pooling between blocks, in positions."""


class Dpcnn(WordModel):
    """A region embedding, blocks of two convolutions with a shortcut, pooling by two between them, one linear layer.

    Source: Johnson and Zhang, "Deep Pyramid Convolutional Neural Networks for Text Categorization", ACL 2017.
    """

    class Parameters(LightParameters):
        """Keys of `dpcnn`."""

        hidden_size: int = declare.param(gt=0, doc="Number of features at every position; the paper has 250.")
        blocks: int = declare.param(
            4, gt=0, doc="Number of blocks of two convolutions; the length is halved between them."
        )

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        width = parameters.hidden_size
        self.embedding = self.build_embedding(parameters, fixed=parameters.fix_embeddings)
        self.region = _convolution(parameters.embedding_dim, width)
        self.blocks = nn.ModuleList(PyramidBlock(width) for _ in range(parameters.blocks))
        self.pooling = MaxPooling()
        self.dropout = Dropout(parameters.dropout)
        self.classifier = nn.Linear(width, given(parameters.num_classes, "num_classes"))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return logits (B, num_classes) of tokens (B, T); mask (B, T) is true at real tokens."""
        mask = mask.bool()
        x = _convolve(self.region, self.embedding(tokens), mask)
        for number, block in enumerate(self.blocks):
            if number:
                x, mask = halve(x, mask)
            x = block(x, mask)
        logits: Tensor = self.classifier(self.dropout(self.pooling(x, mask)))
        return logits


class PyramidBlock(nn.Module):
    """Two convolutions, each after its activation, and an identity shortcut.

    Source: sections 2.2 and 2.3 of the paper: W sigma(x) + b, shortcuts without any mapping.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = _convolution(width, width), _convolution(width, width)

    def forward(self, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return (B, T, D)."""
        inner = _convolve(self.first, functional.relu(x_BTD), mask_BT)
        return x_BTD + _convolve(self.second, functional.relu(inner), mask_BT)


def halve(x_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maximum of three neighbours at every second position, ignoring padding, and the new mask.

    Source: section 2.1 of the paper: size 3, stride 2. A text of one position is unchanged.
    """
    lowest = torch.finfo(x_BTD.dtype).min
    across = x_BTD.masked_fill(~mask_BT.unsqueeze(-1), lowest).transpose(1, 2)
    pooled = functional.max_pool1d(across, WINDOW, stride=2, padding=WINDOW // 2).transpose(1, 2)
    return pooled, mask_BT[:, ::2]


def _convolve(layer: nn.Module, x_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return (B, T, D'); padding is treated as zeros."""
    across: Tensor = layer(x_BTD.masked_fill(~mask_BT.unsqueeze(-1), 0.0).transpose(1, 2))
    return across.transpose(1, 2)


def _convolution(size_in: int, size_out: int) -> nn.Module:
    layer = nn.Conv1d(size_in, size_out, WINDOW, padding=WINDOW // 2)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer
