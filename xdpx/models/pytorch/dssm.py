"""DSSM: each text becomes one vector by itself, so that millions of them can be kept; a pair is a cosine."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.models.pytorch.light_parameters import DssmParameters
from xdpx.models.pytorch.modules.dropout import Dropout
from xdpx.models.pytorch.modules.pooling import MeanPooling
from xdpx.models.pytorch.word_model import WordModel, given

LAYERS = 2
"""Layers below the last, in the paper."""
SMOOTHING = 10.0
"""How much steeper than the cosine the logits are at first; it is learned."""


class Dssm(WordModel):
    """A bag of words, tanh layers, and the cosine of the two vectors; an affine map makes a logit for each class.

    With two classes this is the paper's softmax over the relevant text and one other whose cosine is learned.

    Source: Huang et al., "Learning Deep Structured Semantic Models for Web Search using Clickthrough Data", CIKM 2013,
    section 3, equations 3 to 5; learned word vectors stand for its letter trigrams.
    """

    class Parameters(DssmParameters):
        """Keys of `dssm`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.embedding = self.build_embedding(parameters, fixed=parameters.fix_embeddings)
        self.pooling = MeanPooling()
        self.tower1 = tower(parameters)
        self.tower2 = None if parameters.share_towers else tower(parameters)
        self.classes = (
            Affine(given(parameters.num_classes, "num_classes")) if parameters.prediction == "classes" else None
        )

    def forward(self, tokens1: Tensor, mask1: Tensor, tokens2: Tensor, mask2: Tensor) -> Tensor:
        """Give logits (B, num_classes), or cosines (B,), of tokens1 (B, T) and tokens2 (B, S); masks: real tokens."""
        cosine = (self.encode(tokens1, mask1) * self.encode(tokens2, mask2, second=True)).sum(dim=-1)
        if self.classes is None:
            return cosine
        logits: Tensor = self.classes(cosine)
        return logits

    def encode(self, tokens: Tensor, mask: Tensor, *, second: bool = False) -> Tensor:
        """Give the vector (B, output_size) of each text, of length 1: what an index of texts keeps."""
        layers = self.tower2 if second and self.tower2 is not None else self.tower1
        vector = layers(self.pooling(self.embedding(tokens), mask.bool()))
        return functional.normalize(vector, dim=-1)


class Affine(nn.Module):
    """A slope and an offset for each class. At first the slopes climb evenly, from -SMOOTHING to SMOOTHING."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        lowest = -SMOOTHING if num_classes > 1 else SMOOTHING
        self.slope = nn.Parameter(torch.linspace(lowest, SMOOTHING, num_classes))
        self.offset = nn.Parameter(torch.zeros(num_classes))

    def forward(self, cosine_B: Tensor) -> Tensor:
        """Give (B, num_classes)."""
        return cosine_B.unsqueeze(-1) * self.slope + self.offset


def tower(known: DssmParameters) -> nn.Sequential:
    """Give the layers from the mean of the word vectors to the vector of a text: equation 3."""
    count = known.encoder_layers or LAYERS
    sizes = [known.embedding_dim, *[known.hidden_size] * count, known.output_size or known.hidden_size]
    layers: list[nn.Module] = []
    for size_in, size_out in zip(sizes, sizes[1:], strict=False):
        layer = nn.Linear(size_in, size_out)
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh(), Dropout(known.dropout)]
    return nn.Sequential(*layers[:-1])
