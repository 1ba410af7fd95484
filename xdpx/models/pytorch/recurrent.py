"""Recurrent networks over word vectors: classifiers, matching of pairs encoded separately, and taggers.

B rows, T tokens, W words, C tags.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.recurrent import Cell, Recurrent
from xdpx.models.pytorch.modules.tagging import TagScores, of_words
from xdpx.models.pytorch.parameters import RecurrentParameters, RecurrentSizes
from xdpx.models.pytorch.word_model import MatchingKeys, OfOneText, OfTwoTexts, WordModel, build_pooling, given


class RecurrentModel(WordModel):
    """Word vectors, and bidirectional recurrent layers."""

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
        """Return (B, T, hidden_size) for tokens (B, T); mask (B, T) is true at real tokens."""
        hidden: Tensor = self.encoder(self.embedding(tokens), mask.bool())
        return hidden


class PooledRecurrentModel(RecurrentModel):
    """As above, with pooling to one vector per text.

    Attributes:
        pooled_size: width of that vector.
    """

    def __init__(self, parameters: RecurrentParameters) -> None:
        super().__init__(parameters)
        self.pooling, self.pooled_size = build_pooling(parameters)

    def pool(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return one vector (B, pooled_size) for each text (B, T); mask (B, T) is true at real tokens."""
        pooled: Tensor = self.pooling(self.read(tokens, mask), mask.bool())
        return pooled


class Lstm(OfOneText, PooledRecurrentModel):
    """A bidirectional LSTM, pooling, two layers.

    Source: Conneau et al., "Supervised Learning of Universal Sentence Representations", EMNLP 2017, section 3.2, for
    max pooling over all states.
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


class LstmToken(RecurrentModel):
    """A bidirectional LSTM and one linear layer; with `use_crf` a CRF over the tags.

    It uses the data of `bert_token`, whose tokenizer need not be BERT's: with `space` each word of the file is one
    token.

    Source: Lample et al., "Neural Architectures for Named Entity Recognition", NAACL 2016, section 2.
    """

    cell: ClassVar[Cell] = "lstm"

    class Parameters(RecurrentSizes):
        """Keys of `lstm_token` and `gru_token`."""

        use_crf: bool = declare.param(False, doc="Score all tags of a text together with a CRF.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        num_classes = given(parameters.num_classes, "num_classes")
        self.classifier = nn.Linear(parameters.hidden_size, num_classes)
        self.neighbours = nn.Parameter(torch.zeros(num_classes + 1, num_classes + 1)) if parameters.use_crf else None

    def forward(self, input_ids: Tensor, attention_mask: Tensor, word_starts: Tensor, word_mask: Tensor) -> TagScores:
        """Return the scores of tags for ids (B, T), whose words start at `word_starts` (B, W); 0 at padding words."""
        emissions: Tensor = self.classifier(of_words(self.read(input_ids, attention_mask), word_starts))
        return TagScores(emissions * word_mask.unsqueeze(-1), self.neighbours)


class GruToken(LstmToken):
    """As `lstm_token`, with gated recurrent units: a quarter fewer weights.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014, section 2.3.
    """

    cell = "gru"
