"""A classifier on words and pieces. B texts, T pieces, W words, H width of BERT, D width of a word vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import refusal
from xdpx.models.pytorch.base import ReadWeights
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.modules.convolution import Encoder, linear
from xdpx.models.pytorch.modules.dropout import Dropout
from xdpx.models.pytorch.modules.embedding import Embedding
from xdpx.models.pytorch.modules.heads import AttentionPooling, MaxPooling, prediction
from xdpx.models.pytorch.parameters import BertMixParameters
from xdpx.models.pytorch.word_model import fill_from_data, given


class BertMix(Bert):
    """BERT on the pieces (characters) of a text, and convolutions on its words, which have two vectors each.

    One vector is the maximum over a convolution of BERT's output at the word's pieces, the other a word embedding;
    fusion layers combine them. Convolutions over words follow; their pooled output is joined with the first token.

    Source: Kim, "Convolutional Neural Networks for Sentence Classification", EMNLP 2014, for the convolutions on
    words; there is no paper on the whole network.
    """

    class Parameters(BertMixParameters, Bert.Parameters):
        """Keys of `bert_mix`."""

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        known, width = parameters, int(self.config.hidden_size)
        _refuse_absent_layer(known.bert_seq_layer, int(self.config.num_hidden_layers))
        self.characters = Characters(width, known) if known.char_emb else None
        self.words = WholeWords(known) if known.word_emb else None
        size = sum(part.size for part in (self.characters, self.words) if part is not None)
        self.fusion, size = _fusion(size, known) if known.fusion else (nn.Identity(), size)
        hidden = known.encoder_hidden_size
        self.word_encoder = Encoder(
            size_in=size, size_out=hidden, layers=known.encoder_layers, kernel_sizes=known.kernel_sizes,
            dropout=known.dropout, residual=known.residual,
        )  # fmt: skip
        self.pooling = (
            MaxPooling() if known.pooling == "max" else AttentionPooling(hidden, hidden_size=hidden, output_size=hidden)
        )
        self.of_words = new_linear(hidden, hidden, self.config) if known.seq_pooler else None
        self.of_first = new_linear(width, width, self.config) if known.pooler and known.concat_cls else None
        self.prediction = self._prediction(hidden + width * known.concat_cls, hidden)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        word_index: Tensor,
        words: Tensor,
        word_mask: Tensor,
        token_type_ids: Tensor | None = None,
        pieces: Tensor | None = None,
    ) -> Tensor:
        """Return logits (B, num_classes).

        Args:
            input_ids: pieces, (B, T).
            attention_mask: true (or 1) at real pieces, (B, T).
            word_index: index of each piece's word, from 1; 0 for none, (B, T).
            words: (B, W).
            word_mask: true at real words, (B, W).
            token_type_ids: 1 in the second of two texts, (B, T).
            pieces: output of `read`, to be used instead of computing it.
        """
        states = self.read(input_ids, attention_mask, token_type_ids) if pieces is None else pieces
        vectors = [self.characters(states, word_index, words.shape[1])] if self.characters is not None else []
        vectors += [self.words(words)] if self.words is not None else []
        mask = word_mask.bool()
        pooled = self.pooling(self.word_encoder(self.fusion(torch.cat(vectors, dim=-1)), mask), mask)
        seen = [pooled if self.of_words is None else torch.tanh(self.of_words(pooled))]
        if self.parameters_used.concat_cls:
            first = states[:, 0]
            seen.append(first if self.of_first is None else torch.tanh(self.of_first(first)))
        logits: Tensor = self.prediction(torch.cat(seen, dim=-1))
        return logits

    def read(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the output of BERT for the pieces, (B, T, H)."""
        inputs = self._inputs(input_ids, attention_mask, token_type_ids)
        layer = self.parameters_used.bert_seq_layer
        if layer == -1:
            last: Tensor = self.bert(**inputs).last_hidden_state
            return last
        chosen: Tensor = self.bert(**inputs, output_hidden_states=True).hidden_states[layer]
        return chosen

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """Load the word vectors in data_dir/embeddings.pt, if any, then the weights named by `pretrained_model`."""
        if self.words is not None:
            fill_from_data(self.words.embedding, self.parameters_used.data_dir, read_weights)
        super().load_pretrained(read_weights)

    def _prediction(self, size: int, hidden: int) -> nn.Module:
        known = self.parameters_used
        num_classes = given(known.num_classes, "num_classes")
        if known.prediction == "full":
            return prediction(size, hidden, num_classes, known.output_dropout_prob)
        return nn.Sequential(Dropout(known.output_dropout_prob), new_linear(size, num_classes, self.config))


class Characters(nn.Module):
    """A vector for each word from BERT's output at its pieces: convolutions, then the maximum of each feature."""

    def __init__(self, size: int, known: BertMixParameters) -> None:
        super().__init__()
        self.size = known.char_hidden_size
        self.norm: nn.Module = nn.LayerNorm(size) if known.char_layer_norm else nn.Identity()
        self.encoder = Encoder(
            size_in=size, size_out=self.size, layers=known.char_encoder_layers, kernel_sizes=known.kernel_sizes,
            dropout=known.dropout,
        )  # fmt: skip

    def forward(self, states_BTH: Tensor, word_index_BT: Tensor, num_words: int) -> Tensor:
        """Return (B, W, D); zeros for a word without pieces."""
        features = self.encoder(self.norm(states_BTH), word_index_BT > 0)
        return largest_of_words(features, word_index_BT, num_words)


class WholeWords(nn.Module):
    """A word embedding for each word."""

    def __init__(self, known: BertMixParameters) -> None:
        super().__init__()
        count = given(known.word_vocab_size, "word_vocab_size")
        self.embedding = Embedding(count, known.embedding_dim, pad_index=0, fixed=False, dropout=known.dropout)
        self.size = known.word_emb_proj or known.embedding_dim
        self.projection = linear(known.embedding_dim, self.size) if known.word_emb_proj else nn.Identity()

    def forward(self, words_BW: Tensor) -> Tensor:
        """Return (B, W, D)."""
        vectors: Tensor = self.projection(self.embedding(words_BW))
        return vectors


def largest_of_words(features_BTD: Tensor, word_index_BT: Tensor, num_words: int) -> Tensor:
    """Return the maximum of each feature over the pieces of each word, (B, W, D); zeros for words without pieces."""
    batch, _, width = features_BTD.shape
    lowest = features_BTD.new_full((batch, num_words + 1, width), torch.finfo(features_BTD.dtype).min)
    index = word_index_BT.unsqueeze(-1).expand_as(features_BTD)
    largest = lowest.scatter_reduce(1, index, features_BTD, "amax", include_self=False)[:, 1:]
    return largest.masked_fill(largest == torch.finfo(features_BTD.dtype).min, 0.0)


def _refuse_absent_layer(layer: int, layers: int) -> None:
    if not -layers - 1 <= layer <= layers:
        problem = f"is {layer}, but BERT has {layers} layers."
        remedy = f"Use a number from 0, the embeddings, to {layers}; or -1, the last layer, down to {-layers - 1}."
        raise refusal("bert_seq_layer", problem, remedy)


def _fusion(size: int, known: BertMixParameters) -> tuple[nn.Module, int]:
    sizes, width = [size] + [known.fusion_hidden_size] * (known.fusion_layers - 1), known.fusion_hidden_size
    layers: list[Any] = [linear(each, width, activation=known.fusion_activation) for each in sizes]
    return nn.Sequential(*layers), width
