"""The transformer block, its parts, and a stack of blocks.

All stacks and blocks have the same interface: `layer(x, mask, positions, memory, memory_mask)` with x (B, T, D).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
from flax import linen as nn

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.models.spmd.base_layer import BaseLayer
from xdpx.models.spmd.layers import remat
from xdpx.models.spmd.layers.activations import BaseActivation, Identity, ReLU
from xdpx.models.spmd.layers.attention import Attention
from xdpx.models.spmd.layers.linears import FeedForward
from xdpx.models.spmd.layers.norms import BaseNorm, LayerNorm
from xdpx.models.spmd.layers.stochastics import Dropout
from xdpx.models.spmd.sharding import ACTIVATION_AXES, constrain

NormPolicy = Literal["pre", "post", "primer_hybrid", "post_skip"]
"""Positions of the norms of a part f.

pre: x + f(norm(x)). post: norm(x + f(x)). primer_hybrid: x + norm(f(norm(x))). post_skip: x + norm(f(x)).
"""

_HIDDEN = ("activation_batch", "activation_length", "activation_mlp")


class ResidualPart(BaseLayer):
    """A part of a block with residual connection: norms by policy, dropout, the sum.

    Attributes:
        input_dims: D.
        norm_policy: see NormPolicy.
        norm_tpl: of the norms.
        residual_dropout_prob: of the output of the part, before the sum.
    """

    input_dims: int = 0
    norm_policy: NormPolicy = "pre"
    norm_tpl: BaseNorm.HParams = sub_config_field(LayerNorm.HParams)
    residual_dropout_prob: float = 0.0

    def _setup_residual(self) -> None:
        norm = self.norm_tpl.clone().set(dim=self.input_dims)
        before = self.norm_policy in {"pre", "primer_hybrid"}
        self.create_child("layer_norm", norm if before or self.norm_policy == "post" else None)
        self.create_child("post_layer_norm", norm if self.norm_policy in {"primer_hybrid", "post_skip"} else None)
        self.create_child("residual_dropout", Dropout.HParams(dropout_prob=self.residual_dropout_prob))

    def _with_residual(self, x: jax.Array, part: Callable[[jax.Array], jax.Array]) -> jax.Array:
        y = part(self.layer_norm(x) if self.norm_policy in {"pre", "primer_hybrid"} else x)
        if self.post_layer_norm is not None:
            y = self.post_layer_norm(y)
        y = x + self.residual_dropout(y)
        return constrain(self.layer_norm(y) if self.norm_policy == "post" else y, ACTIVATION_AXES)


class TransformerFeedForward(ResidualPart):
    """Two linear layers with an activation between them, optionally gated, and the residual connection.

    Attributes:
        hidden_dims: width between the layers.
        activation_tpl: of the activation.
        use_gated_activation: whether the activation of one product multiplies another product (SwiGLU with SiLU).
        has_bias: biases in all products.
        hidden_dropout_prob: of the features between the layers.

    Source: gates: Shazeer, GLU Variants Improve Transformer, 2020.
    """

    hidden_dims: int = 0
    activation_tpl: BaseActivation.HParams = sub_config_field(ReLU.HParams)
    use_gated_activation: bool = False
    has_bias: bool = True
    hidden_dropout_prob: float = 0.0
    ff_tpl: FeedForward.HParams = sub_config_field(FeedForward.HParams)

    def setup(self) -> None:
        """Build the parts."""
        self._setup_residual()
        layer = self.ff_tpl.clone().set(has_bias=self.has_bias)
        widen = layer.clone().set(input_dims=self.input_dims, output_dims=self.hidden_dims, axes=("embed", "mlp"))
        narrow = layer.clone().set(input_dims=self.hidden_dims, output_dims=self.input_dims, axes=("mlp", "embed"))
        gated = self.use_gated_activation
        self.create_child("ffn_layer1", widen, activation_tpl=Identity.HParams() if gated else self.activation_tpl)
        if gated:
            self.create_child("ffn_layer1_gate", widen, activation_tpl=Identity.HParams())
            self.create_child("gate_activation", self.activation_tpl)
        self.create_child("ffn_layer2", narrow, activation_tpl=Identity.HParams())
        self.create_child("hidden_dropout", Dropout.HParams(dropout_prob=self.hidden_dropout_prob))

    def __call__(self, x: jax.Array, paddings: jax.Array | None = None) -> jax.Array:
        """Map (B, T, D) to (B, T, D). `paddings` is for parts that route tokens, and is ignored here."""
        return self._with_residual(x, self._products)

    def _products(self, x: jax.Array) -> jax.Array:
        hidden = remat.saved(remat.FFN1, constrain(self.ffn_layer1(x), _HIDDEN))
        if self.use_gated_activation:
            hidden = hidden * self.gate_activation(remat.saved(remat.FFN1, self.ffn_layer1_gate(x)))
        out: jax.Array = remat.saved(remat.FFN2, self.ffn_layer2(self.hidden_dropout(hidden)))
        return out


class AttentionPart(ResidualPart):
    """Attention with the residual connection.

    Attributes:
        attention_tpl: of the attention.
    """

    attention_tpl: Attention.HParams = sub_config_field(Attention.HParams)

    def setup(self) -> None:
        """Build the parts."""
        self._setup_residual()
        self.create_child("attention", self.attention_tpl, input_dim=self.input_dims)

    def __call__(
        self, x: jax.Array, mask: jax.Array | None, positions: jax.Array | None, memory: jax.Array | None = None
    ) -> jax.Array:
        """Map (B, T, D) to (B, T, D); the arguments are those of Attention."""
        return self._with_residual(x, lambda y: self.attention(y, mask, positions, memory))


class Transformer(BaseLayer):
    """One block: self-attention, optional cross-attention to a memory, a feed-forward part.

    Attributes:
        input_dims: D.
        hidden_dims: width of the feed-forward part.
        num_heads, dim_per_head, num_kv_heads: of the attention; None: as in its template.
        causal: whether tokens attend only to earlier ones; None: as in the template.
        use_cross_attention: whether there is cross-attention.
        norm_policy, norm_tpl: of all parts.
        attention_tpl, cross_attention_tpl: of the attentions; None for the second: as the first.
        ff_tpl: of the feed-forward part, or a replacement (a mixture of experts): a layer with the fields input_dims,
            hidden_dims, norm_policy, norm_tpl, residual_dropout_prob, called with (x, paddings).
        dropout_prob: of residuals; attention and hidden dropout are fields of their templates.
    """

    input_dims: int = 0
    hidden_dims: int = 0
    num_heads: int | None = None
    dim_per_head: int | None = None
    num_kv_heads: int | None = None
    causal: bool | None = None
    use_cross_attention: bool = False
    norm_policy: NormPolicy = "pre"
    norm_tpl: BaseNorm.HParams = sub_config_field(LayerNorm.HParams)
    attention_tpl: Attention.HParams = sub_config_field(Attention.HParams)
    cross_attention_tpl: Attention.HParams | None = sub_config_field(None)
    ff_tpl: BaseHParams = sub_config_field(TransformerFeedForward.HParams)
    dropout_prob: float = 0.0

    def setup(self) -> None:
        """Build the parts."""
        common = {
            "input_dims": self.input_dims,
            "norm_policy": self.norm_policy,
            "norm_tpl": self.norm_tpl,
            "residual_dropout_prob": self.dropout_prob,
        }
        own = AttentionPart.HParams(attention_tpl=self._attention(self.attention_tpl))
        self.create_child("self_attention", own, **common)
        if self.use_cross_attention:
            crossed = self._attention(self.cross_attention_tpl or self.attention_tpl)
            crossed.set(causal=False, rotary_tpl=None, relative_bias_tpl=None)
            self.create_child("cross_attention", AttentionPart.HParams(attention_tpl=crossed), **common)
        self.create_child("ff_layer", self.ff_tpl, hidden_dims=self.hidden_dims, **common)

    def _attention(self, template: BaseHParams) -> Any:
        names = ("num_heads", "dim_per_head", "num_kv_heads", "causal")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return template.clone().set(**given)

    def __call__(
        self,
        x: jax.Array,
        mask: jax.Array | None = None,
        positions: jax.Array | None = None,
        memory: jax.Array | None = None,
        memory_mask: jax.Array | None = None,
        paddings: jax.Array | None = None,
    ) -> jax.Array:
        """Map (B, T, D) to (B, T, D).

        Args:
            x: the tokens.
            mask: true where a token may attend to another, see Attention.
            positions: of the tokens, see Attention.
            memory: (B, S, D) for cross-attention.
            memory_mask: true where a token may attend to a key of the memory, (B or 1, 1, T or 1, S).
            paddings: (B, T), 1 at padding, for feed-forward parts that route tokens.
        """
        x = self.self_attention(x, mask, positions)
        if self.use_cross_attention:
            x = self.cross_attention(x, memory_mask, positions, memory)
        out: jax.Array = remat.saved(remat.LAYER_OUTPUT, self.ff_layer(x, paddings))
        return out


class StackedTransformer(BaseLayer):
    """A sequence of blocks, each traced separately.

    Attributes:
        num_layers: number of blocks.
        input_dims, hidden_dims, num_heads, dim_per_head: of every block; None or 0: as in the template.
        layer_tpl: of a block, or a list with one for each.
        moe_layers: indices, from 0, of the blocks whose feed-forward part is `moe_tpl`.
        moe_tpl: of a mixture of experts.
        checkpoint_policy: activations that each block stores for the backward pass (layers/remat.py); by default all.
    """

    num_layers: int = 1
    input_dims: int = 0
    hidden_dims: int = 0
    num_heads: int | None = None
    dim_per_head: int | None = None
    layer_tpl: Any = sub_config_field(Transformer.HParams)
    moe_layers: tuple[int, ...] = ()
    moe_tpl: BaseHParams | None = sub_config_field(None)
    checkpoint_policy: str = "everything"

    def setup(self) -> None:
        """Build the blocks.

        Raises:
            ConfigError: `moe_layers` and `moe_tpl` do not fit each other, or the number of layers.
        """
        self._check_experts()
        self.create_children("x_layers", [self._block(index) for index in range(self.num_layers)])

    def _block(self, index: int) -> Any:
        several = isinstance(self.layer_tpl, list | tuple)
        if several and len(self.layer_tpl) != self.num_layers:
            problem = f"{len(self.layer_tpl)} templates for {self.num_layers} layers."
            raise refusal("StackedTransformer.layer_tpl", problem, "Give one for all, or one per layer.")
        template = (self.layer_tpl[index] if several else self.layer_tpl).clone()
        names = ("input_dims", "hidden_dims", "num_heads", "dim_per_head")
        template.set(**{name: getattr(self, name) for name in names if getattr(self, name)})
        if self.moe_tpl is not None and index in self.moe_layers:
            template.ff_tpl = self.moe_tpl.clone()
        return template

    def _check_experts(self) -> None:
        unknown = [index for index in self.moe_layers if not 0 <= index < self.num_layers]
        if unknown:
            problem = f"names block {unknown[0]}, but there are blocks 0 to {self.num_layers - 1}."
            raise refusal("StackedTransformer.moe_layers", problem, "Give the indices of its blocks, from 0.")
        if self.moe_layers and self.moe_tpl is None:
            raise refusal("StackedTransformer.moe_tpl", "is None, but moe_layers names blocks.", "Give its template.")
        if self.moe_tpl is not None and not self.moe_layers:
            problem = "is empty, so moe_tpl would be used by no block."
            raise refusal("StackedTransformer.moe_layers", problem, "Name the blocks, or leave out moe_tpl.")

    def __call__(self, x: jax.Array, *args: Any, **kwargs: Any) -> jax.Array:
        """Map (B, T, D) to (B, T, D); the arguments are those of Transformer."""
        for layer in self.x_layers:
            x = recomputed(layer, self.checkpoint_policy)(x, *args, **kwargs)
        return x


def recomputed(layer: BaseLayer, policy: str, *, scanned: bool = False) -> Callable[..., jax.Array]:
    """Return a function that calls a block and stores for the backward pass only what a policy names.

    Args:
        layer: the bound block.
        policy: a name of layers/remat.py.
        scanned: whether it is inside a scan, so that the compiler need not be kept from merging the passes.
    """

    def call(block: BaseLayer, x: jax.Array, *args: Any, **kwargs: Any) -> jax.Array:
        out: jax.Array = block(remat.saved(remat.ITERATION_INPUT, x), *args, **kwargs)
        return out

    lifted: Callable[..., jax.Array] = call
    if not remat.keeps_everything(policy):
        lifted = nn.remat(call, policy=remat.policy_named(policy), prevent_cse=not scanned)
    return lambda x, *args, **kwargs: lifted(layer, x, *args, **kwargs)
