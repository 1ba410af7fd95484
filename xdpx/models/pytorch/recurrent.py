"""Recurrent classifiers of single texts, and matchers of two texts that are encoded apart from one another."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from xdpx.models.pytorch.light_parameters import RecurrentParameters, RecurrentSizes
from xdpx.models.pytorch.modules.recurrent import Cell, Recurrent
from xdpx.models.pytorch.tops import MatchingKeys, OfOneText, OfTwoTexts
from xdpx.models.pytorch.word_model import WordModel, build_pooling


class RecurrentModel(WordModel):
    """Word vectors, and recurrent layers in both directions."""

    cell: ClassVar[Cell]

    def __init__(self, parameters: RecurrentSizes) -> None:
        super().__init__(parameters)
        self.embedding = self.build_embedding(parameters, fixed=parameters.fix_embeddings)
        self.encoder = Recurrent(
            self.cell,
            size_in=parameters.embedding_dim,
            size_out=parameters.hidden_size,
            layers=parameters.encoder_layers or 1,
            dropout=parameters.dropout,
        )

    def read(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Give (B, T, hidden_size) for tokens (B, T); mask (B, T) is true at real tokens."""
        hidden: Tensor = self.encoder(self.embedding(tokens), mask.bool())
        return hidden


class PooledRecurrentModel(RecurrentModel):
    """As above, and pooling: one vector per text.

    Attributes:
        pooled_size: width of that vector.
    """

    def __init__(self, parameters: RecurrentParameters) -> None:
        super().__init__(parameters)
        self.pooling, self.pooled_size = build_pooling(parameters)

    def pool(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Give one vector (B, pooled_size) for each text (B, T); mask (B, T) is true at real tokens."""
        pooled: Tensor = self.pooling(self.read(tokens, mask), mask.bool())
        return pooled


class Lstm(OfOneText, PooledRecurrentModel):
    """A bidirectional LSTM, pooling, two layers.

    Source: Conneau et al., "Supervised Learning of Universal Sentence Representations", EMNLP 2017, section 3.2, for
    the largest value of each feature over all states.
    """

    cell: ClassVar[Cell] = "lstm"

    class Parameters(RecurrentParameters):
        """Keys of `lstm` and `gru`."""


class Gru(Lstm):
    """As `lstm`, with gated recurrent units: a quarter fewer weights.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014, section 2.3.
    """

    cell = "gru"


class MatchLstm(OfTwoTexts, PooledRecurrentModel):
    """One bidirectional LSTM for both texts, pooling, and a comparison of the two vectors.

    Source: Conneau et al., "Supervised Learning of Universal Sentence Representations", EMNLP 2017, section 3.1.
    """

    cell: ClassVar[Cell] = "lstm"

    class Parameters(MatchingKeys, RecurrentParameters):
        """Keys of `match_lstm` and `match_gru`."""


class MatchGru(MatchLstm):
    """As `match_lstm`, with gated recurrent units: a quarter fewer weights.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014, section 2.3.
    """

    cell = "gru"
