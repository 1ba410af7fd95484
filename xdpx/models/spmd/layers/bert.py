"""The encoder of BERT: sum of three embeddings, blocks with post-norm, and heads.

B rows, T tokens, D model width, V words.
"""

from __future__ import annotations

from typing import Any

import jax

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.models.spmd.base_layer import BaseLayer
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.models.spmd.layers.activations import GELU, BaseActivation, Tanh
from xdpx.models.spmd.layers.attention import Attention
from xdpx.models.spmd.layers.embeddings import Embedding
from xdpx.models.spmd.layers.linears import FeedForward
from xdpx.models.spmd.layers.masks import all_of, padding_mask, segment_mask
from xdpx.models.spmd.layers.norms import BaseNorm, LayerNorm
from xdpx.models.spmd.layers.positions import TrainablePositionalEmbedding, default_positions
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.layers.stacks import set_in_blocks, set_num_layers
from xdpx.models.spmd.layers.stochastics import Dropout
from xdpx.models.spmd.layers.transformer import Transformer, TransformerFeedForward
from xdpx.models.spmd.sharding import ACTIVATION_AXES, constrain

INIT_STD = 0.02
"""Standard deviation of BERT's initial weights."""


def bert_block() -> Transformer.HParams:
    """Return the template of a block of BERT: biases, exact GELU, post-norm."""
    return Transformer.HParams(
        norm_policy="post",
        causal=False,
        attention_tpl=Attention.HParams(per_dim_scale=False, use_bias=True),
        ff_tpl=TransformerFeedForward.HParams(activation_tpl=GELU.HParams(approximate=False)),
    )


def blocks_of(stack: BaseHParams) -> list[Any]:
    """Return the templates of the blocks inside a template of a stack, at any depth."""
    fields = stack._field_table
    inner = stack.body if "body" in fields else stack.layer_tpl if "layer_tpl" in fields else None
    if inner is None:
        return [stack]
    return [block for each in (inner if isinstance(inner, list | tuple) else [inner]) for block in blocks_of(each)]


class BertEncoder(BaseLayer):
    """Bidirectional encoder of tokens.

    Attributes:
        vocab_size: V.
        model_dims: D.
        hidden_dims, num_layers, num_heads: of the blocks.
        max_positions: maximum length of a text.
        num_segments: number of segments, e.g. 2 for pairs of texts; 0: no segment embedding.
        dropout_prob: of the input and of the output of each part.
        attention_dropout_prob: of attention probabilities.
        embedding_tpl: of the words; a SharedEmbeddingSoftmax can also compute logits.
        stacked_transformer_tpl: of the blocks: a repeated, unrolled or pipelined stack.
        norm_tpl: of all norms.
        has_pooler: whether there is a pooler, for `pooled`.

    Source: Devlin et al., "BERT", NAACL 2019, section 3.
    """

    vocab_size: int = 0
    model_dims: int = 0
    hidden_dims: int = 0
    num_layers: int = 1
    num_heads: int = 1
    max_positions: int = 512
    num_segments: int = 2
    dropout_prob: float = 0.0
    attention_dropout_prob: float = 0.0
    embedding_tpl: Embedding.HParams = sub_config_field(Embedding.HParams)
    stacked_transformer_tpl: BaseHParams = sub_config_field(StackedTransformerRepeated.HParams, body=bert_block())
    norm_tpl: BaseNorm.HParams = sub_config_field(LayerNorm.HParams, direct_scale=True, epsilon=1e-12)
    has_pooler: bool = False
    params_init: WeightInit | None = sub_config_field(WeightInit, method="gaussian", scale=INIT_STD)

    def setup(self) -> None:
        """Build tables, blocks and pooler."""
        width = self.model_dims
        self.create_child("embedding", self.embedding_tpl, num_classes=self.vocab_size, input_dims=width)
        positions = TrainablePositionalEmbedding.HParams(max_seq_length=self.max_positions, embedding_dims=width)
        self.create_child("position_emb", positions)
        segments = Embedding.HParams(num_classes=self.num_segments, input_dims=width, axes=(None, "embed"))
        self.create_child("segment_emb", segments if self.num_segments else None)
        self.create_child("layer_norm", self.norm_tpl, dim=width)
        self.create_child("dropout", Dropout.HParams(dropout_prob=self.dropout_prob))
        self.create_child("transformer", self._stack())
        square = FeedForward.HParams(input_dims=width, output_dims=width, activation_tpl=Tanh.HParams())
        self.create_child("pooler", square.set(axes=("embed", "mlp")) if self.has_pooler else None)

    def _stack(self) -> Any:
        stack: Any = self.stacked_transformer_tpl.clone()
        sizes = {
            "input_dims": self.model_dims,
            "hidden_dims": self.hidden_dims,
            "num_heads": self.num_heads,
            "norm_tpl": self.norm_tpl,
            "dropout_prob": self.dropout_prob,
        }
        set_in_blocks(stack, sizes, causal=False)
        for block in blocks_of(stack):
            block.attention_tpl.dropout_prob = self.attention_dropout_prob
        set_num_layers(stack, self.num_layers)
        return stack

    def hidden(
        self,
        ids: jax.Array,
        *,
        paddings: jax.Array | None = None,
        token_types: jax.Array | None = None,
        segment_ids: jax.Array | None = None,
        segment_pos: jax.Array | None = None,
    ) -> jax.Array:
        """Return vectors (B, T, D) of int ids (B, T).

        Args:
            ids: the tokens.
            paddings: 1 at padding, (B, T), which is not attended to.
            token_types: index of the text of a pair, (B, T); None: the first.
            segment_ids: index of the text within a row of several, (B, T); texts do not attend to each other.
            segment_pos: position within the text, (B, T); None: 0, 1, 2, ...

        Raises:
            ConfigError: the row is longer than `max_positions`.
        """
        if ids.shape[1] > self.max_positions:
            problem = f"is {self.max_positions}, but rows have {ids.shape[1]} tokens."
            raise refusal(
                "BertEncoder.max_positions", problem, "Truncate the texts, or use a model with more positions."
            )
        x = self.embedding.emb_lookup(ids)
        x = x + self.position_emb(default_positions(*ids.shape) if segment_pos is None else segment_pos)
        if self.segment_emb is not None:
            x = x + self.segment_emb.emb_lookup(ids * 0 if token_types is None else token_types)
        x = self.dropout(self.layer_norm(constrain(x.astype(self.compute_dtype), ACTIVATION_AXES)))
        segments = None if segment_ids is None else segment_mask(segment_ids)
        mask = all_of(segments, None if paddings is None else padding_mask(paddings))
        out: jax.Array = self.transformer(x, mask, paddings=paddings)
        return out

    def pooled(self, ids: jax.Array, **kwargs: Any) -> jax.Array:
        """Return one vector per row (B, D): the first token's, after a dense tanh layer.

        Raises:
            ConfigError: `has_pooler` is false.
        """
        if self.pooler is None:
            raise refusal("BertEncoder.has_pooler", "is False, so there are no pooled vectors.", "Set it to True.")
        first: jax.Array = self.pooler(self.hidden(ids, **kwargs)[:, 0])
        return first

    def __call__(self, ids: jax.Array, **kwargs: Any) -> jax.Array:
        """Return `pooled` if there is a pooler, else `hidden`."""
        return self.pooled(ids, **kwargs) if self.has_pooler else self.hidden(ids, **kwargs)


class MaskedLmHead(BaseLayer):
    """The layers between the encoder and the softmax: a dense layer, an activation, a norm.

    Attributes:
        model_dims: D.
        activation_tpl: of the activation.
        norm_tpl: of the norm.

    Source: Devlin et al., "BERT", NAACL 2019, section 3.1, as in its published code.
    """

    model_dims: int = 0
    activation_tpl: BaseActivation.HParams = sub_config_field(GELU.HParams, approximate=False)
    norm_tpl: BaseNorm.HParams = sub_config_field(LayerNorm.HParams, direct_scale=True, epsilon=1e-12)
    params_init: WeightInit | None = sub_config_field(WeightInit, method="gaussian", scale=INIT_STD)

    def setup(self) -> None:
        """Build the parts."""
        dense = FeedForward.HParams(input_dims=self.model_dims, output_dims=self.model_dims, axes=("embed", "mlp"))
        self.create_child("dense", dense, activation_tpl=self.activation_tpl)
        self.create_child("layer_norm", self.norm_tpl, dim=self.model_dims)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map (..., D) to (..., D)."""
        out: jax.Array = self.layer_norm(self.dense(x))
        return out
