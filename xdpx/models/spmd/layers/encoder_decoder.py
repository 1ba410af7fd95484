"""A transformer with encoder and decoder.

B rows, S source tokens, T target tokens, D model width, V words.
"""

from __future__ import annotations

from typing import Any

import jax

from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.models.spmd.base_layer import BaseLayer
from xdpx.models.spmd.layers.embeddings import Embedding, SharedEmbeddingSoftmax
from xdpx.models.spmd.layers.masks import all_of, padding_mask, segment_mask
from xdpx.models.spmd.layers.norms import BaseNorm, LayerNorm
from xdpx.models.spmd.layers.positions import PositionalEmbedding, default_positions
from xdpx.models.spmd.layers.stacks import set_in_blocks, set_num_layers
from xdpx.models.spmd.layers.stochastics import Dropout
from xdpx.models.spmd.layers.transformer import StackedTransformer
from xdpx.models.spmd.sharding import ACTIVATION_AXES, constrain
from xdpx.utils.nested_map import NestedMap


class TransformerEncoderDecoder(BaseLayer):
    """Source and target tokens to logits of the next target token.

    `src` and `tgt` are maps with `ids`, and optionally `paddings`, `segment_ids` (several texts in a row),
    `segment_pos`.

    Attributes:
        vocab_size: V, of the target, and of the source if it shares the table.
        source_vocab_size: of a separate table for the source; 0: the target's table.
        model_dims: D.
        hidden_dims, num_heads: of all blocks.
        num_encoder_layers, num_decoder_layers: number of blocks.
        packed_input: whether rows contain several texts, distinguished by segment_ids.
        softmax_tpl: embeds target tokens and computes their logits.
        position_emb_tpl: added to both inputs; None: none.
        encoder_tpl, decoder_tpl: the stacks.
        norm_tpl: of the final norm of each stack.
        dropout_prob: of both inputs.

    Source: Vaswani et al., "Attention is all you need", NeurIPS 2017, section 3.
    """

    vocab_size: int = 0
    source_vocab_size: int = 0
    model_dims: int = 0
    hidden_dims: int = 0
    num_heads: int = 1
    num_encoder_layers: int = 1
    num_decoder_layers: int = 1
    packed_input: bool = False
    softmax_tpl: SharedEmbeddingSoftmax.HParams = sub_config_field(SharedEmbeddingSoftmax.HParams)
    position_emb_tpl: BaseHParams | None = sub_config_field(PositionalEmbedding.HParams)
    encoder_tpl: BaseHParams = sub_config_field(StackedTransformer.HParams)
    decoder_tpl: BaseHParams = sub_config_field(StackedTransformer.HParams)
    norm_tpl: BaseNorm.HParams = sub_config_field(LayerNorm.HParams)
    dropout_prob: float = 0.0

    def setup(self) -> None:
        """Build both stacks and the tables."""
        table = {"num_classes": self.vocab_size, "input_dims": self.model_dims}
        self.create_child("softmax", self.softmax_tpl, **table)
        source = Embedding.HParams(num_classes=self.source_vocab_size, input_dims=self.model_dims)
        self.create_child("source_embedding", source if self.source_vocab_size else None)
        positions = self.position_emb_tpl
        self.create_child("position_emb", positions and positions.clone().set(embedding_dims=self.model_dims))
        self.create_child("encoder", self._stack(self.encoder_tpl, self.num_encoder_layers, writes=False))
        self.create_child("decoder", self._stack(self.decoder_tpl, self.num_decoder_layers, writes=True))
        self.create_child("encoder_norm", self.norm_tpl, dim=self.model_dims)
        self.create_child("decoder_norm", self.norm_tpl, dim=self.model_dims)
        self.create_child("dropout", Dropout.HParams(dropout_prob=self.dropout_prob))

    def _stack(self, template: BaseHParams, num_layers: int, *, writes: bool) -> Any:
        stack = template.clone()
        sizes = {"input_dims": self.model_dims, "hidden_dims": self.hidden_dims, "num_heads": self.num_heads}
        set_in_blocks(stack, {**sizes, "use_cross_attention": writes}, causal=writes)
        set_num_layers(stack, num_layers)
        return stack

    def encode(self, src: NestedMap) -> jax.Array:
        """Return the encoded source, (B, S, D)."""
        table = self.softmax if self.source_embedding is None else self.source_embedding
        x, positions = self._embedded(table, src)
        mask = all_of(self._within(src, src), self._unpadded(src))
        out: jax.Array = self.encoder_norm(self.encoder(x, mask, positions, paddings=src.get("paddings")))
        return out

    def hidden(self, tgt: NestedMap, memory: jax.Array, memory_mask: jax.Array | None) -> jax.Array:
        """Return the vectors of target tokens before the softmax, (B, T, D).

        Args:
            tgt: the tokens before those to predict.
            memory: result of `encode`.
            memory_mask: what each token attends to in it, (B or 1, 1, T or 1, S); None: everything.
        """
        x, positions = self._embedded(self.softmax, tgt)
        mask = self._within(tgt, tgt)
        x = self.decoder(x, mask, positions, memory, memory_mask, paddings=tgt.get("paddings"))
        out: jax.Array = self.decoder_norm(x)
        return out

    def memory_mask(self, src: NestedMap, tgt: NestedMap | None = None) -> jax.Array | None:
        """Return the mask of target tokens over the source: its text, without padding."""
        return all_of(None if tgt is None else self._within(tgt, src), self._unpadded(src))

    def __call__(self, src: NestedMap, tgt: NestedMap) -> jax.Array:
        """Return float32 logits (B, T, V)."""
        hidden = self.hidden(tgt, self.encode(src), self.memory_mask(src, tgt))
        logits: jax.Array = self.softmax.get_logits(hidden)
        return logits

    def _embedded(self, table: BaseLayer, text: NestedMap) -> tuple[jax.Array, jax.Array]:
        positions = text.get("segment_pos")
        positions = default_positions(*text.ids.shape) if positions is None else positions
        x = table.emb_lookup(text.ids).astype(self.compute_dtype)
        if self.position_emb is not None:
            x = x + self.position_emb(positions)
        return self.dropout(constrain(x, ACTIVATION_AXES)), positions

    def _within(self, queries: NestedMap, keys: NestedMap) -> jax.Array | None:
        if not self.packed_input or queries.get("segment_ids") is None:
            return None
        return segment_mask(queries.segment_ids, keys.segment_ids)

    def _unpadded(self, text: NestedMap) -> jax.Array | None:
        return None if text.get("paddings") is None else padding_mask(text.paddings)
