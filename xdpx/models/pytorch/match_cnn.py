"""A convolutional matcher of two texts that are encoded apart from one another."""

from __future__ import annotations

from xdpx.models.pytorch.tops import MatchingKeys, OfTwoTexts
from xdpx.models.pytorch.word_model import PooledModel


class MatchCnn(OfTwoTexts, PooledModel):
    """One encoder for both texts, pooling, and a comparison of the two vectors.

    Source: Hu et al., "Convolutional Neural Network Architectures for Matching Natural Language Sentences", NeurIPS
    2014, section 3.1 (ARC-I).
    """

    class Parameters(MatchingKeys, PooledModel.Parameters):
        """Keys of `match_cnn`."""
