"""Multi-head attention: grouped queries, combined projections, rotary positions, biases, logit caps, a cache.

B rows, T queries, S keys, D model width, N heads, K heads of keys and values, G = N / K, H width of a head.
"""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.logger import log
from xdpx.models.spmd.base_layer import BaseLayer, Weight
from xdpx.models.spmd.decoding import cache
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.models.spmd.layers import fused_attention, remat
from xdpx.models.spmd.layers.embeddings import capped
from xdpx.models.spmd.layers.masks import all_of, causal_mask, lowest
from xdpx.models.spmd.layers.positions import RelativeBias, RotaryPositionalEmbedding, default_positions
from xdpx.models.spmd.layers.stochastics import Dropout
from xdpx.models.spmd.sharding import constrain

_HEADS = ("activation_batch", "activation_length", "activation_heads", "activation_kv")


class AttentionProjection(BaseLayer):
    """A projection from the model width to heads (D, N, H), or back (N, H, D).

    Attributes:
        input_dim: D.
        num_heads: N.
        dim_per_head: H.
        is_output_projection: whether it projects back to D.
        use_bias: whether it has a bias.
    """

    input_dim: int = 0
    num_heads: int = 0
    dim_per_head: int = 0
    is_output_projection: bool = False
    use_bias: bool = False

    def setup(self) -> None:
        """Declare weight and bias."""
        heads, axes = (self.num_heads, self.dim_per_head), ("heads", "kv")
        if self.is_output_projection:
            weight = Weight((*heads, self.input_dim), axes=(*axes, "embed"), num_in=2)
            bias = Weight((self.input_dim,), WeightInit.Constant(0.0), axes=("embed",))
        else:
            weight = Weight((self.input_dim, *heads), axes=("embed", *axes))
            bias = Weight(heads, WeightInit.Constant(0.0), axes=axes)
        self.create_variable("w", weight)
        if self.use_bias:
            self.create_variable("b", bias)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map (B, T, D) to (B, T, N, H), or back."""
        equation = "...nh,nhd->...d" if self.is_output_projection else "...d,dnh->...nh"
        y = jnp.einsum(equation, x.astype(self.compute_dtype), self.theta.w)
        return y + self.theta.b if self.use_bias else y


class CombinedQKVProjection(BaseLayer):
    """One projection for queries, keys and values: weight (3, D, N, H).

    Attributes:
        input_dim, num_heads, dim_per_head: D, N, H.
        use_bias: whether there is a bias (3, N, H).
    """

    input_dim: int = 0
    num_heads: int = 0
    dim_per_head: int = 0
    use_bias: bool = False

    def setup(self) -> None:
        """Declare weight and bias."""
        heads = (self.num_heads, self.dim_per_head)
        self.create_variable("w", Weight((3, self.input_dim, *heads), axes=(None, "embed", "heads", "kv"), num_batch=1))
        if self.use_bias:
            self.create_variable("b", Weight((3, *heads), WeightInit.Constant(0.0), axes=(None, "heads", "kv")))

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Map (B, T, D) to queries, keys and values, each (B, T, N, H)."""
        y = jnp.einsum("...d,cdnh->c...nh", x.astype(self.compute_dtype), self.theta.w)
        if self.use_bias:
            y = y + jnp.expand_dims(self.theta.b, tuple(range(1, y.ndim - 2)))
        y = remat.saved(remat.COMBINED_QKV, y)
        return y[0], y[1], y[2]


class PerDimScale(BaseLayer):
    """Scales each element of a query by softplus(scale) / (log 2 sqrt(H)), initially 1 / sqrt(H).

    Attributes:
        dim: H.
    """

    dim: int = 0

    def setup(self) -> None:
        """Declare the scale."""
        self.create_variable("per_dim_scale", Weight((self.dim,), WeightInit.Constant(0.0), axes=("kv",)))

    def __call__(self, query: jax.Array) -> jax.Array:
        """Return (..., H), scaled."""
        scale = jax.nn.softplus(self.theta.per_dim_scale) * (1.0 / (math.log(2.0) * math.sqrt(self.dim)))
        return query * scale.astype(query.dtype)


class Attention(BaseLayer):
    """Multi-head attention with its projections.

    Attributes:
        input_dim: D. num_heads: N. dim_per_head: H; None: D / N. num_kv_heads: K, a divisor of N; None: N.
        causal: whether a token attends only to itself and earlier ones.
        use_bias: biases in all projections.
        use_output_bias: bias in the output projection; None: as `use_bias`.
        combine_qkv: one weight for queries, keys and values.
        per_dim_scale: a trained scale for each element of a query (PerDimScale) instead of 1 / sqrt(H).
        logit_cap: c: attention logits become c tanh(logits / c); 0 or None: unchanged.
        dropout_prob: of attention probabilities.
        rotary_tpl, relative_bias_tpl: of positions; None: none.
        qk_norm_tpl: of a norm of each head's queries and keys; None: none.
        flash: one kernel that does not write logits to memory (layers/fused_attention.py): `auto` if the platform has
            one for these fields, `never`, or `always`, which raises for unsupported fields; other platforms than CUDA
            then compute the same in another way. The log and plans say which attention is used, and why.
    """

    input_dim: int = 0
    num_heads: int = 1
    dim_per_head: int | None = None
    num_kv_heads: int | None = None
    causal: bool = False
    use_bias: bool = False
    use_output_bias: bool | None = None
    combine_qkv: bool = False
    per_dim_scale: bool = True
    logit_cap: float | None = None
    dropout_prob: float = 0.0
    rotary_tpl: RotaryPositionalEmbedding.HParams | None = sub_config_field(None)
    relative_bias_tpl: RelativeBias.HParams | None = sub_config_field(None)
    qk_norm_tpl: BaseHParams | None = sub_config_field(None)
    proj_tpl: AttentionProjection.HParams = sub_config_field(AttentionProjection.HParams)
    flash: Literal["auto", "never", "always"] = "auto"

    @property
    def head_dim(self) -> int:
        """H."""
        return self.dim_per_head or self.input_dim // self.num_heads

    @property
    def kv_heads(self) -> int:
        """K."""
        return self.num_kv_heads or self.num_heads

    def setup(self) -> None:
        """Check the sizes and build the parts.

        Raises:
            ConfigError: numbers of heads are not divisible as required.
        """
        self._check()
        common = {"input_dim": self.input_dim, "dim_per_head": self.head_dim}
        if self.combine_qkv:
            heads = {"num_heads": self.num_heads, "use_bias": self.use_bias}
            self.create_child("combined_qkv", CombinedQKVProjection.HParams(), **common, **heads)
        else:
            for name, heads_of in (("query", self.num_heads), ("key", self.kv_heads), ("value", self.kv_heads)):
                self.create_child(name, self.proj_tpl, num_heads=heads_of, use_bias=self.use_bias, **common)
        bias = self.use_bias if self.use_output_bias is None else self.use_output_bias
        self.create_child(
            "post", self.proj_tpl, num_heads=self.num_heads, use_bias=bias, is_output_projection=True, **common
        )
        self.create_child("scale", PerDimScale.HParams(dim=self.head_dim) if self.per_dim_scale else None)
        self.create_child("probs_dropout", Dropout.HParams(dropout_prob=self.dropout_prob))
        self._setup_positions()

    def _setup_positions(self) -> None:
        rotary, bias, norm = self.rotary_tpl, self.relative_bias_tpl, self.qk_norm_tpl
        if bias is not None and not self.causal and "bidirectional" not in bias.given():
            log.warning(
                "Attention.relative_bias_tpl: bidirectional is False where tokens attend to later ones, which all "
                "count as at distance 0. Set it to True, or to False if that is meant.",
                once=True,
            )
        self.create_child("rotary", rotary and rotary.clone().set(embedding_dims=self.head_dim))
        self.create_child("relative_bias", bias and bias.clone().set(num_heads=self.num_heads))
        for name in ("query_norm", "key_norm"):
            self.create_child(name, norm and norm.clone().set(dim=self.head_dim))

    def _check(self) -> None:
        if self.dim_per_head is None and self.input_dim % self.num_heads:
            problem = f"{self.num_heads} does not divide input_dim {self.input_dim}."
            raise refusal("Attention.num_heads", problem, "Set dim_per_head.")
        if self.num_heads % self.kv_heads:
            problem = f"{self.kv_heads} does not divide num_heads {self.num_heads}."
            raise refusal("Attention.num_kv_heads", problem, "Use a divisor.")
        if self.combine_qkv and self.kv_heads != self.num_heads:
            problem = f"a combined weight needs as many key heads ({self.kv_heads}) as query heads ({self.num_heads})."
            raise refusal("Attention.combine_qkv", problem, "Set combine_qkv to False.")

    def __call__(
        self,
        x: jax.Array,
        mask: jax.Array | None = None,
        positions: jax.Array | None = None,
        memory: jax.Array | None = None,
    ) -> jax.Array:
        """Return the attention of `x` to itself or to `memory`.

        Args:
            x: source of queries, (B, T, D).
            mask: true where a query may attend to a key, (B or 1, 1 or N, T or 1, S); None: everything that `causal`
                allows. Ignored while decoding with a cache (decoding/cache.py), which has its own mask.
            positions: of the tokens, int (B, T); None: 0, 1, 2, ...
            memory: source of keys and values, (B, S, D); None: `x`.

        Returns:
            (B, T, D).
        """
        positions = default_positions(*x.shape[:2]) if positions is None else positions
        query, key, value = self._projected(x, x if memory is None else memory)
        key_positions = positions if memory is None else default_positions(*memory.shape[:2])
        query, key = self._placed(query, key, positions, key_positions)
        causal = self.causal and memory is None
        extended = cache.extend(self, key, value, positions) if memory is None else None
        if extended is not None:
            key, value, mask, causal = extended.key, extended.value, extended.visible, False
            key_positions = extended.positions
        bias = None if self.relative_bias is None else self.relative_bias(positions, key_positions)
        query = (
            query * jnp.asarray(1.0 / math.sqrt(self.head_dim), query.dtype)
            if self.scale is None
            else self.scale(query)
        )
        context = self._attend(query, key, value, mask, bias, causal=causal)
        context = remat.saved(remat.CONTEXT, constrain(context, _HEADS))
        out: jax.Array = remat.saved(remat.OUT_PROJ, self.post(context))
        return out

    def _projected(self, x: jax.Array, memory: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        if self.combine_qkv and memory is x:
            parts = self.combined_qkv(x)
        elif self.combine_qkv:
            parts = (self.combined_qkv(x)[0], *self.combined_qkv(memory)[1:])
        else:
            names = (remat.QUERY, remat.KEY, remat.VALUE)
            made = (self.query(x), self.key(memory), self.value(memory))
            parts = tuple(remat.saved(name, part) for name, part in zip(names, made, strict=True))
        query, key, value = (constrain(part, _HEADS) for part in parts)
        return query, key, value

    def _placed(
        self, query: jax.Array, key: jax.Array, at: jax.Array, key_at: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        if self.query_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary is not None:
            query, key = self.rotary(query, at), self.rotary(key, key_at)
        return query, key

    def _attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        mask: jax.Array | None,
        bias: jax.Array | None,
        *,
        causal: bool,
    ) -> jax.Array:
        """Return attention (B, T, N, H) of scaled queries (B, T, N, H) to keys and values (B, S, K, H)."""
        kernel = self._kernel(query, key, mask, bias)
        if kernel != "plain":
            return fused_attention.attend(kernel, query, key, value, mask, bias, causal=causal, cap=self.logit_cap)
        mask = all_of(mask, causal_mask(query.shape[1])) if causal else mask
        probs = self._probabilities(query, key, mask, bias)
        grouped = probs.reshape(probs.shape[0], key.shape[2], -1, *probs.shape[2:])
        context = jnp.einsum("bkgts,bskh->btkgh", grouped.astype(value.dtype), value)
        return context.reshape(query.shape)

    def _probabilities(
        self, query: jax.Array, key: jax.Array, mask: jax.Array | None, bias: jax.Array | None
    ) -> jax.Array:
        """Return the probabilities (B, N, T, S), float32."""
        rows, queries, _, width = query.shape
        grouped = query.reshape(rows, queries, key.shape[2], -1, width)
        logits = jnp.einsum("btkgh,bskh->bkgts", grouped, key, preferred_element_type=jnp.float32)
        logits = logits.reshape(rows, self.num_heads, queries, key.shape[1])
        logits = logits if bias is None else logits + bias.astype(jnp.float32)
        logits = remat.saved(remat.LOGITS, capped(logits, self.logit_cap))
        logits = logits if mask is None else jnp.where(mask, logits, lowest())
        probs: jax.Array = self.probs_dropout(jax.nn.softmax(logits, axis=-1))
        return probs

    def _kernel(
        self, query: jax.Array, key: jax.Array, mask: jax.Array | None, bias: jax.Array | None
    ) -> fused_attention.Kernel:
        """Return the kernel to use. None is needed for few queries (decoding with a cache) and initialisation."""
        drawing = self.is_initializing() and self.flash == "auto"
        if self.flash == "never" or cache.num_slots() or drawing:
            return "plain"
        dropout = 0.0 if self.do_eval else self.dropout_prob
        choice = fused_attention.choose(
            query, key, cap=self.logit_cap, dropout=dropout, has_bias=bias is not None, mask=mask,
            anywhere=self.flash == "always",
        )  # fmt: skip
        if self.flash == "always" and choice.kernel == "plain":
            problem = f"'always', but these fields do not allow the fused kernel: {choice.reason}."
            raise refusal("Attention.flash", problem, "Change them, or use 'auto'.")
        return choice.kernel
