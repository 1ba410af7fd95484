"""RE2: text matching with residual vectors, embeddings and encoded vectors in the alignment."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.alignment import Alignment, Fusion, Projection
from xdpx.models.pytorch.modules.convolution import Encoder
from xdpx.models.pytorch.modules.pooling import MaxPooling
from xdpx.models.pytorch.modules.prediction import Matching, MatchingPrediction
from xdpx.models.pytorch.parameters import WordParameters
from xdpx.models.pytorch.word_model import WordModel, given

HALF_ROOT = 0.5**0.5


class RE2(WordModel):
    """Blocks of encoding, alignment and fusion, joined by augmented residual connections.

    Source: Yang et al., "Simple and Effective Text Matching with Richer Alignment Features", ACL 2019.
    """

    class Parameters(WordParameters):
        """Keys of `re2`."""

        blocks: int = declare.param(gt=0, doc="Number of blocks of encoding, alignment and fusion.")
        encoder_layers: int = declare.param(gt=0, doc="Layers of convolutions in each block.")
        fix_embeddings: bool = declare.param(True, doc="Leave the word vectors as they are.")
        alignment: Projection = declare.param("linear", doc="Whether texts are projected before they are compared.")
        prediction: Matching = declare.param("full", doc="Which features of the two vectors the classifier sees.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.embedding = self.build_embedding(parameters, fixed=parameters.fix_embeddings)
        sizes = [parameters.embedding_dim] + [parameters.embedding_dim + parameters.hidden_size] * (
            parameters.blocks - 1
        )
        self.blocks = nn.ModuleList(Block(parameters, size) for size in sizes)
        self.pooling = MaxPooling()
        num_classes = given(parameters.num_classes, "num_classes")
        hidden_size = parameters.hidden_size
        self.prediction = MatchingPrediction(
            parameters.prediction, hidden_size, hidden_size, num_classes, dropout=parameters.dropout
        )

    def forward(self, tokens1: Tensor, mask1: Tensor, tokens2: Tensor, mask2: Tensor) -> Tensor:
        """Give logits (B, num_classes) of tokens1 (B, T) and tokens2 (B, S); masks are true at real tokens."""
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


class Block(nn.Module):
    """Encode both texts with the same layers, align them, and fuse each with what it was aligned to."""

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
        """Give the new vectors of both texts, (B, T, hidden_size) and (B, S, hidden_size)."""
        a = torch.cat([a, self.encoder(a, mask_a)], dim=-1)
        b = torch.cat([b, self.encoder(b, mask_b)], dim=-1)
        seen_by_a, seen_by_b = self.alignment(a, b, mask_a, mask_b)
        return self.fusion(a, seen_by_a), self.fusion(b, seen_by_b)


def augmented_residual(x: Tensor, before: Tensor, number: int) -> Tensor:
    """Join a block's output with its input: the words' vectors always stand at the end.

    Args:
        x: output of block `number` - 1, width H.
        before: its input: the embedding (width E) for the first block, else width H + E.
        number: index of the block that follows.

    Returns:
        Width H + E.

    Source: section 2.1 of the paper, equation 1.
    """
    if number == 1:
        return torch.cat([x, before], dim=-1)
    width = x.shape[-1]
    return torch.cat([(before[..., :width] + x) * HALF_ROOT, before[..., width:]], dim=-1)
