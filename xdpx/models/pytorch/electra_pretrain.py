"""Replaced-token detection. B rows, T positions, M masked positions, V tokens, E width of word embeddings."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PretrainedConfig

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert import Bert, encoder_of, new_linear


class ElectraPretrain(Bert):
    """A small generator fills masked positions; the encoder predicts for every token whether it was replaced.

    Both share word embeddings. The encoder is one of `bert_classification`, which can load its weights.

    Source: Clark et al., "ELECTRA", ICLR 2020, sections 2 and 3.2.
    """

    class Parameters(Bert.Parameters):
        """Keys of `electra_pretrain`."""

        generator_size: float = declare.param(
            0.25, gt=0, le=1, doc="Width of the generator, as a share of the encoder's."
        )

    parameters_used: Parameters

    takes_noise = False  # the encoder reads the output of the generator

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        hidden = self.config.hidden_size
        self.generator = Generator(self.config, self.words.weight.shape[1], share=parameters.generator_size)
        self.dense = new_linear(hidden, hidden, self.config)
        self.replaced = new_linear(hidden, 1, self.config)

    @property
    def words(self) -> nn.Embedding:
        """The word embeddings shared by both networks."""
        table: nn.Embedding = self.bert.get_input_embeddings()
        return table

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, masked_positions: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Fill the masked positions with tokens of the generator, and predict which tokens were replaced.

        Args:
            input_ids: (B, T), masked.
            attention_mask: (B, T), true (or 1) at real tokens.
            masked_positions: (M,), indices into the flattened ids (B * T).
            noise: (M,), in [0, 1): random numbers by which a token is drawn for each masked position.

        Returns:
            (the generator's logits (M, V), its tokens (M,), logits (B, T) of each token being replaced).
        """
        inputs = self._inputs(input_ids, attention_mask, None)
        guesses = self.generator(self.words, masked_positions, **inputs)
        drawn = draw(guesses.detach(), noise)
        filled = input_ids.flatten().index_copy(0, masked_positions, drawn).view_as(input_ids)
        hidden = self.encode(filled, attention_mask).last_hidden_state
        told: Tensor = self.replaced(functional.gelu(self.dense(hidden))).squeeze(-1)
        return guesses, drawn, told

    def _depth(self, name: str, learning_rate: float) -> tuple[str, float]:
        # The generator is an encoder of as many layers; what narrows its word embeddings belongs to these.
        name = name.replace("generator.narrow.", "bert.embeddings_project.", 1)
        return super()._depth(name.replace("generator.encoder.", "bert.", 1), learning_rate)


class Generator(nn.Module):
    """A narrower encoder of the same kind, on the word embeddings of another one, that predicts masked tokens.

    Args:
        config: of the other encoder.
        word_width: E.
        share: width relative to the other encoder.
    """

    def __init__(self, config: PretrainedConfig, word_width: int, *, share: float) -> None:
        super().__init__()
        narrow = narrower(config, share)
        width = getattr(narrow, "embedding_size", narrow.hidden_size)
        self.narrow = new_linear(word_width, width, narrow) if width != word_width else nn.Identity()
        self.encoder: Any = encoder_of(narrow, pooler=False)
        self.encoder.embeddings.word_embeddings = nn.Identity()  # it gets the embeddings of the other encoder
        self.dense = new_linear(narrow.hidden_size, word_width, narrow)
        self.norm = nn.LayerNorm(word_width, eps=getattr(config, "layer_norm_eps", 1e-12))
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, words: nn.Embedding, masked_positions: Tensor, *, input_ids: Tensor, **inputs: Any) -> Tensor:
        """Return logits (M, V) of the masked positions; the output matrix is the word embeddings."""
        hidden = self.encoder(inputs_embeds=self.narrow(words(input_ids)), **inputs).last_hidden_state
        chosen = hidden.flatten(0, 1).index_select(0, masked_positions)
        return functional.linear(self.norm(functional.gelu(self.dense(chosen))), words.weight, self.bias)


def narrower(config: PretrainedConfig, share: float) -> PretrainedConfig:
    """Return the config of a network with fewer heads of the same size, and narrower layers."""
    narrow = copy.deepcopy(config)
    heads = config.num_attention_heads
    narrow.num_attention_heads = max(1, round(heads * share))
    narrow.hidden_size = config.hidden_size // heads * narrow.num_attention_heads
    narrow.pruned_heads = {}
    narrow.intermediate_size = max(1, round(config.intermediate_size * share))
    return narrow


def draw(logits: Tensor, noise: Tensor) -> Tensor:
    """Draw one token per row of logits (M, V) by inverting its cumulative distribution at `noise` (M,)."""
    cumulative = logits.float().softmax(dim=-1).cumsum(dim=-1)
    wanted = noise[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, wanted, right=True).squeeze(1).clamp(max=logits.shape[-1] - 1)
