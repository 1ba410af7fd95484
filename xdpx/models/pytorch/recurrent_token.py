"""Light taggers: a recurrent network over word vectors, and a tag for each word. B rows, T tokens, W words, C tags."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from xdpx.models.pytorch.light_parameters import TaggerParameters
from xdpx.models.pytorch.modules.recurrent import Cell
from xdpx.models.pytorch.modules.tagging import TagScores, of_words
from xdpx.models.pytorch.recurrent import RecurrentModel
from xdpx.models.pytorch.word_model import given


class LstmToken(RecurrentModel):
    """A bidirectional LSTM, one linear layer; with `use_crf` the tags of a text are one choice.

    It takes the data of `bert_token`, whose tokenizer need not be BERT's: `space` makes each word of the file one
    token.

    Source: Lample et al., "Neural Architectures for Named Entity Recognition", NAACL 2016, section 2.
    """

    cell: ClassVar[Cell] = "lstm"

    class Parameters(TaggerParameters):
        """Keys of `lstm_token` and `gru_token`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        num_classes = given(parameters.num_classes, "num_classes")
        self.classifier = nn.Linear(parameters.hidden_size, num_classes)
        self.neighbours = nn.Parameter(torch.zeros(num_classes + 1, num_classes + 1)) if parameters.use_crf else None

    def forward(self, input_ids: Tensor, attention_mask: Tensor, word_starts: Tensor, word_mask: Tensor) -> TagScores:
        """Give the scores of tags for ids (B, T), whose words begin at `word_starts` (B, W); 0 where is no word."""
        emissions: Tensor = self.classifier(of_words(self.read(input_ids, attention_mask), word_starts))
        return TagScores(emissions * word_mask.unsqueeze(-1), self.neighbours)


class GruToken(LstmToken):
    """As `lstm_token`, with gated recurrent units: a quarter fewer weights.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014, section 2.3.
    """

    cell = "gru"
