"""Recurrent classifiers of single texts, and matchers of two texts that are encoded apart from one another."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.models.pytorch.light_parameters import RecurrentParameters, RecurrentSizes
from xdpx.models.pytorch.modules.prediction import Matching, MatchingPrediction, prediction
from xdpx.models.pytorch.modules.recurrent import Cell, Recurrent
from xdpx.models.pytorch.word_model import WordModel, build_pooling, given


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


class Lstm(PooledRecurrentModel):
    """A bidirectional LSTM, pooling, two layers.

    Source: Conneau et al., "Supervised Learning of Universal Sentence Representations", EMNLP 2017, section 3.2, for
    the largest value of each feature over all states.
    """

    cell: ClassVar[Cell] = "lstm"

    class Parameters(RecurrentParameters):
        """Keys of `lstm` and `gru`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = prediction(self.pooled_size, parameters.hidden_size, num_classes, parameters.dropout)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Give logits (B, num_classes) of tokens (B, T); mask (B, T) is true at real tokens."""
        logits: Tensor = self.prediction(self.pool(tokens, mask))
        return logits


class Gru(Lstm):
    """As `lstm`, with gated recurrent units: a quarter fewer weights.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014, section 2.3.
    """

    cell = "gru"


class MatchLstm(PooledRecurrentModel):
    """One bidirectional LSTM for both texts, pooling, and a comparison of the two vectors.

    Source: Conneau et al., "Supervised Learning of Universal Sentence Representations", EMNLP 2017, section 3.1.
    """

    cell: ClassVar[Cell] = "lstm"

    class Parameters(RecurrentParameters):
        """Keys of `match_lstm` and `match_gru`."""

        prediction: Matching = declare.param("full", doc="Which features of the two vectors the classifier sees.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = MatchingPrediction(
            parameters.prediction, self.pooled_size, parameters.hidden_size, num_classes, dropout=parameters.dropout
        )

    def forward(self, tokens1: Tensor, mask1: Tensor, tokens2: Tensor, mask2: Tensor) -> Tensor:
        """Give logits (B, num_classes) of tokens1 (B, T) and tokens2 (B, S); masks are true at real tokens."""
        logits: Tensor = self.prediction(self.pool(tokens1, mask1), self.pool(tokens2, mask2))
        return logits


class MatchGru(MatchLstm):
    """As `match_lstm`, with gated recurrent units: a quarter fewer weights.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014, section 2.3.
    """

    cell = "gru"
