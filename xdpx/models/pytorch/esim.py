"""ESIM: two texts are encoded, aligned, compared and read once more. Letters: B batch, T and S positions, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xdpx.models.pytorch.light_parameters import EsimParameters
from xdpx.models.pytorch.modules.alignment import attend_to_each_other
from xdpx.models.pytorch.modules.dropout import Dropout
from xdpx.models.pytorch.modules.pooling import MaxPooling, MeanPooling
from xdpx.models.pytorch.modules.recurrent import Recurrent
from xdpx.models.pytorch.word_model import WordModel, given


class Esim(WordModel):
    """LSTM encoding, soft alignment, local comparison, LSTM composition, mean and largest values, two layers.

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
        """Give logits (B, num_classes) of tokens1 (B, T) and tokens2 (B, S); masks are true at real tokens."""
        mask1, mask2 = mask1.bool(), mask2.bool()
        a = self.encoding(self.embedding(tokens1), mask1)  # section 3.1
        b = self.encoding(self.embedding(tokens2), mask2)
        seen_by_a, seen_by_b = attend_to_each_other(a @ b.transpose(1, 2), a, b, mask1, mask2)  # section 3.2
        vectors = [self._compose(a, seen_by_a, mask1), self._compose(b, seen_by_b, mask2)]
        logits: Tensor = self.prediction(torch.cat(vectors, dim=-1))  # equation 20
        return logits

    def _compose(self, x_BTD: Tensor, aligned_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Give the vector (B, 2 D) of a text: equations 14 to 19."""
        enhanced = torch.cat([x_BTD, aligned_BTD, x_BTD - aligned_BTD, x_BTD * aligned_BTD], dim=-1)
        composed = self.composition(self.projection(enhanced), mask_BT)
        return torch.cat([self.mean(composed, mask_BT), self.largest(composed, mask_BT)], dim=-1)
