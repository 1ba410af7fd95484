"""A bag of words as in fastText: the smallest classifier."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.embedding import Embedding
from xdpx.models.pytorch.parameters import LightParameters
from xdpx.models.pytorch.word_model import WordModel, given

FASTTEXT_BUCKETS = 2_000_000
"""The number of fastText."""
FASTTEXT_FACTOR = 116_049_371
"""Multiplier of the hash of an n-gram in fastText, before the next word is added."""


class BagOfWords(WordModel):
    """The mean of the vectors of all words and n-grams, then one linear layer.

    Source: Joulin et al., "Bag of Tricks for Efficient Text Classification", EACL 2017, sections 2 and 2.2.
    """

    class Parameters(LightParameters):
        """Keys of `bow`."""

        word_ngrams: int = declare.param(1, ge=1, le=8, doc="Longest n-gram with its own vector.")
        ngram_buckets: int = declare.param(
            100_000,
            gt=0,
            le=FASTTEXT_BUCKETS,
            doc="Number of vectors shared by all n-grams of 2 and more tokens, by a hash.",
            when=("word_ngrams", ">", 1),
        )

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.embedding = self.build_embedding(parameters, fixed=parameters.fix_embeddings)
        self.word_ngrams = parameters.word_ngrams
        self.ngrams: nn.Module | None = None
        if parameters.word_ngrams > 1:
            self.ngrams = Embedding(
                parameters.ngram_buckets + 1,
                parameters.embedding_dim,
                pad_index=parameters.ngram_buckets,
                fixed=False,
                dropout=parameters.dropout,
            )
        self.classifier = nn.Linear(parameters.embedding_dim, given(parameters.num_classes, "num_classes"))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return logits (B, num_classes) of tokens (B, T); mask (B, T) is true at real tokens."""
        mask = mask.bool()
        total = (self.embedding(tokens) * mask.unsqueeze(-1)).sum(dim=1)
        count = mask.sum(dim=1, keepdim=True)
        if self.ngrams is not None:
            nowhere = self.parameters_used.ngram_buckets
            for buckets, real in hashed_ngrams(tokens, mask, self.word_ngrams, nowhere):
                total = total + self.ngrams(buckets.masked_fill(~real, nowhere)).sum(dim=1)
                count = count + real.sum(dim=1, keepdim=True)
        logits: Tensor = self.classifier(total / count.clamp(min=1))
        return logits


def hashed_ngrams(tokens: Tensor, mask: Tensor, longest: int, buckets: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each length from 2 to `longest` the bucket of every n-gram, and a mask of those without padding.

    Args:
        tokens: (B, T).
        mask: (B, T), true at real tokens.
        longest: maximum length; lengths above T are skipped.
        buckets: buckets are in [0, buckets).

    Yields:
        buckets (B, T - length + 1), int64, and a mask of that shape.

    Source: section 2.2 (the hashing trick); the hash is that of fastText, of ids instead of spellings.
    """
    tokens = tokens.long()
    hashed, real = tokens, mask
    for length in range(2, min(longest, tokens.shape[1]) + 1):
        hashed = hashed[:, :-1] * FASTTEXT_FACTOR + tokens[:, length - 1 :]
        real = real[:, :-1] & mask[:, length - 1 :]
        yield torch.remainder(hashed, buckets), real
