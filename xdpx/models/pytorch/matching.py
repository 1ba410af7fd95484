"""Networks over word vectors that relate two texts. B batch, T and S positions, D width.

DSSM encodes each text into one vector, so that vectors of millions of texts can be stored; ESIM encodes, aligns,
compares and composes; RE2 aligns with residual vectors, embeddings and encoded vectors.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.alignment import Alignment, Fusion, Projection, attend_to_each_other
from xdpx.models.pytorch.modules.convolution import Encoder
from xdpx.models.pytorch.modules.dropout import Dropout
from xdpx.models.pytorch.modules.heads import Matching, MatchingPrediction, MaxPooling, MeanPooling
from xdpx.models.pytorch.modules.recurrent import Recurrent
from xdpx.models.pytorch.parameters import EsimParameters, LightParameters, WordParameters
from xdpx.models.pytorch.word_model import WordModel, given

LAYERS = 2
"""Layers below the last, in the paper."""
SMOOTHING = 10.0
"""Initial scale of the logits relative to the cosine; it is learned."""


class Dssm(WordModel):
    """A bag of words, tanh layers, and the cosine of the two vectors; an affine map gives a logit for each class.

    With two classes this is the paper's softmax over the relevant text and one other whose cosine is learned.

    Source: Huang et al., "Learning Deep Structured Semantic Models for Web Search using Clickthrough Data", CIKM 2013,
    section 3, equations 3 to 5; with word vectors instead of letter trigrams.
    """

    class Parameters(LightParameters):
        """Keys of `dssm`."""

        hidden_size: int = declare.param(gt=0, doc="Width of the layers; the paper has 300.")
        output_size: int | None = declare.param(
            None, gt=0, doc="Width of the vector of a text, the paper has 128; null: hidden_size."
        )
        encoder_layers: int | None = declare.param(None, gt=0, doc="Layers below the last; null: 2, as in the paper.")
        share_towers: bool = declare.param(True, doc="Use the same layers for both texts.")
        prediction: Literal["classes", "cosine"] = declare.param(
            "classes",
            doc="classes: a logit for each; cosine: unscaled, for losses that compare pairs (circle_siamese).",
        )

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
        """Return logits (B, num_classes), or cosines (B,), of tokens1 (B, T) and tokens2 (B, S); masks: real tokens."""
        cosine = (self.encode(tokens1, mask1) * self.encode(tokens2, mask2, second=True)).sum(dim=-1)
        if self.classes is None:
            return cosine
        logits: Tensor = self.classes(cosine)
        return logits

    def encode(self, tokens: Tensor, mask: Tensor, *, second: bool = False) -> Tensor:
        """Return the unit vector (B, output_size) of each text, to be stored in an index."""
        layers = self.tower2 if second and self.tower2 is not None else self.tower1
        vector = layers(self.pooling(self.embedding(tokens), mask.bool()))
        return functional.normalize(vector, dim=-1)


class Affine(nn.Module):
    """A slope and an offset for each class. Initial slopes are evenly spaced from -SMOOTHING to SMOOTHING."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        lowest = -SMOOTHING if num_classes > 1 else SMOOTHING
        self.slope = nn.Parameter(torch.linspace(lowest, SMOOTHING, num_classes))
        self.offset = nn.Parameter(torch.zeros(num_classes))

    def forward(self, cosine_B: Tensor) -> Tensor:
        """Return (B, num_classes)."""
        return cosine_B.unsqueeze(-1) * self.slope + self.offset


def tower(known: Dssm.Parameters) -> nn.Sequential:
    """Return the layers from the mean of the word vectors to the vector of a text: equation 3."""
    count = known.encoder_layers or LAYERS
    sizes = [known.embedding_dim, *[known.hidden_size] * count, known.output_size or known.hidden_size]
    layers: list[nn.Module] = []
    for size_in, size_out in zip(sizes, sizes[1:], strict=False):
        layer = nn.Linear(size_in, size_out)
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh(), Dropout(known.dropout)]
    return nn.Sequential(*layers[:-1])


class Esim(WordModel):
    """LSTM encoding, soft alignment, local comparison, LSTM composition, mean and max pooling, two layers.

    Source: Chen et al., "Enhanced LSTM for Natural Language Inference", ACL 2017, section 3 (the sequential model).
    """

    class Parameters(EsimParameters):
        """Keys of `esim`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        width, dropout = parameters.hidden_size, parameters.dropout
        self.embedding = self.build_embedding(parameters, fixed=parameters.fix_embeddings)
        self.encoding = Recurrent("lstm", size_in=parameters.embedding_dim, size_out=width, layers=1, dropout=dropout)
        self.projection = nn.Sequential(nn.Linear(4 * width, width), nn.ReLU(), Dropout(dropout))
        self.composition = Recurrent("lstm", size_in=width, size_out=width, layers=1, dropout=dropout)
        self.mean, self.largest = MeanPooling(), MaxPooling()
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = nn.Sequential(
            nn.Linear(4 * width, width), nn.Tanh(), Dropout(dropout), nn.Linear(width, num_classes)
        )

    def forward(self, tokens1: Tensor, mask1: Tensor, tokens2: Tensor, mask2: Tensor) -> Tensor:
        """Return logits (B, num_classes) of tokens1 (B, T) and tokens2 (B, S); masks are true at real tokens."""
        mask1, mask2 = mask1.bool(), mask2.bool()
        a = self.encoding(self.embedding(tokens1), mask1)  # section 3.1
        b = self.encoding(self.embedding(tokens2), mask2)
        seen_by_a, seen_by_b = attend_to_each_other(a @ b.transpose(1, 2), a, b, mask1, mask2)  # section 3.2
        vectors = [self._compose(a, seen_by_a, mask1), self._compose(b, seen_by_b, mask2)]
        logits: Tensor = self.prediction(torch.cat(vectors, dim=-1))  # equation 20
        return logits

    def _compose(self, x_BTD: Tensor, aligned_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the vector (B, 2 D) of a text: equations 14 to 19."""
        enhanced = torch.cat([x_BTD, aligned_BTD, x_BTD - aligned_BTD, x_BTD * aligned_BTD], dim=-1)
        composed = self.composition(self.projection(enhanced), mask_BT)
        return torch.cat([self.mean(composed, mask_BT), self.largest(composed, mask_BT)], dim=-1)


HALF_ROOT = 0.5**0.5


class RE2(WordModel):
    """Blocks of encoding, alignment and fusion, joined by augmented residual connections.

    Source: Yang et al., "Simple and Effective Text Matching with Richer Alignment Features", ACL 2019.
    """

    class Parameters(WordParameters):
        """Keys of `re2`."""

        blocks: int = declare.param(gt=0, doc="Number of blocks of encoding, alignment and fusion.")
        encoder_layers: int = declare.param(gt=0, doc="Layers of convolutions in each block.")
        fix_embeddings: bool = declare.param(True, doc="Do not train the word vectors.")
        alignment: Projection = declare.param("linear", doc="Whether texts are projected before they are compared.")
        prediction: Matching = declare.param("full", doc="Features of the two vectors for the classifier.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.embedding = self.build_embedding(parameters, fixed=parameters.fix_embeddings)
        sizes = [parameters.embedding_dim] + [parameters.embedding_dim + parameters.hidden_size] * (
            parameters.blocks - 1
        )
        self.blocks = nn.ModuleList(RE2Block(parameters, size) for size in sizes)
        self.pooling = MaxPooling()
        num_classes = given(parameters.num_classes, "num_classes")
        hidden_size = parameters.hidden_size
        self.prediction = MatchingPrediction(
            parameters.prediction, hidden_size, hidden_size, num_classes, dropout=parameters.dropout
        )

    def forward(self, tokens1: Tensor, mask1: Tensor, tokens2: Tensor, mask2: Tensor) -> Tensor:
        """Return logits (B, num_classes) of tokens1 (B, T) and tokens2 (B, S); masks are true at real tokens."""
        mask1, mask2 = mask1.bool(), mask2.bool()
        a, b = self.embedding(tokens1), self.embedding(tokens2)
        before_a, before_b = a, b
        for number, block in enumerate(self.blocks):
            if number:
                a, b = augmented_residual(a, before_a, number), augmented_residual(b, before_b, number)
                before_a, before_b = a, b
            a, b = block(a, b, mask1, mask2)
        logits: Tensor = self.prediction(self.pooling(a, mask1), self.pooling(b, mask2))
        return logits


class RE2Block(nn.Module):
    """Encodes both texts with the same layers, aligns them, and fuses each with its aligned vectors."""

    def __init__(self, known: RE2.Parameters, size: int) -> None:
        super().__init__()
        hidden_size, dropout = known.hidden_size, known.dropout
        self.encoder = Encoder(
            size_in=size,
            size_out=hidden_size,
            layers=known.encoder_layers,
            kernel_sizes=known.kernel_sizes,
            dropout=dropout,
        )
        self.alignment = Alignment(known.alignment, size + hidden_size, hidden_size, dropout=dropout)
        self.fusion = Fusion(size + hidden_size, hidden_size, dropout=dropout)

    def forward(self, a: Tensor, b: Tensor, mask_a: Tensor, mask_b: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new vectors of both texts, (B, T, hidden_size) and (B, S, hidden_size)."""
        a = torch.cat([a, self.encoder(a, mask_a)], dim=-1)
        b = torch.cat([b, self.encoder(b, mask_b)], dim=-1)
        seen_by_a, seen_by_b = self.alignment(a, b, mask_a, mask_b)
        return self.fusion(a, seen_by_a), self.fusion(b, seen_by_b)


def augmented_residual(x: Tensor, before: Tensor, number: int) -> Tensor:
    """Return a block's output joined with its input; the word vectors are always last.

    Args:
        x: output of block `number` - 1, width H.
        before: its input: the embedding (width E) for the first block, else width H + E.
        number: index of the next block.

    Returns:
        Width H + E.

    Source: section 2.1 of the paper, equation 1.
    """
    if number == 1:
        return torch.cat([x, before], dim=-1)
    width = x.shape[-1]
    return torch.cat([(before[..., :width] + x) * HALF_ROOT, before[..., width:]], dim=-1)
