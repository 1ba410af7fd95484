"""A mixture-of-experts feed-forward layer: a router assigns each token to a few experts.

B rows, T positions, D and F features, G groups of S tokens, E experts, C slots per expert and group.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.config.hparams import sub_config_field
from xdpx.models.spmd.base_layer import BaseLayer, Weight
from xdpx.models.spmd.layers.activations import BaseActivation, ReLU
from xdpx.models.spmd.layers.remat import FFN1, FFN2, saved
from xdpx.models.spmd.layers.routing import Routing, capacity_of, gates_of, route
from xdpx.models.spmd.layers.stochastics import Dropout
from xdpx.models.spmd.layers.transformer import ResidualPart
from xdpx.models.spmd.sharding import constrain
from xdpx.utils.scopes import MOVING_ROWS


class MoeFeedForward(BaseLayer):
    """act(x w1) w2, or (act(x wg) * x w1) w2 with a gate, with weights of the token's own experts.

    If all experts of a token are full, its output is zero, so that the residual connection carries the token.
    """

    class HParams(BaseLayer.HParams):
        """Sizes, and routing.

        Attributes:
            input_dims: D.
            hidden_dims: F.
            num_experts: E, sharded by the mesh axis `expert`.
            experts_per_token: number of experts of each token.
            capacity_factor: slots per token; `experts_per_token` is enough if experts are equally busy.
            expert_capacity: minimum slots of an expert per group.
            num_groups: G, number of groups of a batch's tokens; None: one per row.
            aux_loss_weight: of the balance loss, which is 1 for equally busy experts.
            router_z_loss_weight: of the mean squared logsumexp of the router's logits; 0 for none.
            use_gated_activation: whether there is a gate.
            activation_tpl: of the hidden layer, or of the gate.
            dropout_prob: of the hidden layer.

        Source: Lepikhin et al., "GShard", ICLR 2021; the z-loss: Zoph et al., "ST-MoE", 2022, equation 5.
        """

        input_dims: int = 0
        hidden_dims: int = 0
        num_experts: int = 0
        experts_per_token: int = 2
        capacity_factor: float = 2.0
        expert_capacity: int = 0
        num_groups: int | None = None
        aux_loss_weight: float = 0.01
        router_z_loss_weight: float = 0.0
        use_gated_activation: bool = False
        activation_tpl: BaseActivation.HParams = sub_config_field(ReLU.HParams)
        dropout_prob: float = 0.0

    def setup(self) -> None:
        """Declare the router and the experts.

        Raises:
            ConfigError: there are fewer experts than `experts_per_token`.
        """
        if not 1 <= self.experts_per_token <= self.num_experts:
            problem = f"experts_per_token is {self.experts_per_token} and num_experts is {self.num_experts}."
            raise refusal("MoeFeedForward", problem, "Use 1 <= experts_per_token <= num_experts.")
        features, hidden, experts = self.input_dims, self.hidden_dims, self.num_experts
        self.create_variable("gate", Weight((features, experts), axes=("embed", None), keep_dtype=True))
        up = Weight((experts, features, hidden), axes=("expert", "embed", "mlp"), num_batch=1)
        self.create_variable("wi_0", up)
        if self.use_gated_activation:
            self.create_variable("wi_1", up)
        self.create_variable("wo_0", Weight((experts, hidden, features), axes=("expert", "mlp", "embed"), num_batch=1))
        self.create_child("activation", self.activation_tpl)
        self.create_child("dropout", Dropout.HParams(dropout_prob=self.dropout_prob))

    def __call__(self, x: jax.Array, paddings: jax.Array | None = None) -> jax.Array:
        """Map (B, T, D) to the same shape. `paddings` (B, T) is 1 at padding, which is routed to no expert.

        Raises:
            ConfigError: the number of tokens is not divisible by `num_groups`.
        """
        groups = self._groups(x)
        counts = jnp.ones(groups.shape[:2]) if paddings is None else 1.0 - paddings.reshape(groups.shape[:2])
        logits = jnp.einsum("gsd,de->gse", groups.astype(jnp.float32), self.theta.gate.astype(jnp.float32))
        slots = capacity_of(groups.shape[1], self.num_experts, self.capacity_factor, self.expert_capacity)
        routing = route(logits, counts, experts_per_token=self.experts_per_token, capacity=slots)
        self._tell(routing, logits, counts)
        with jax.named_scope(MOVING_ROWS):
            taken = jnp.einsum("gsec,gsd->egcd", routing.dispatch.astype(groups.dtype), groups)
        given = self._experts(_by_expert(taken))
        with jax.named_scope(MOVING_ROWS):
            out = jnp.einsum("gsec,egcd->gsd", routing.combine.astype(given.dtype), _by_expert(given))
        return constrain(out.reshape(x.shape), ("activation_batch", "activation_length", "activation_embed"))

    def dense(self, x: jax.Array) -> jax.Array:
        """Compute every token by its experts without capacity limits: slow; equals `__call__` if no token is dropped.

        Args:
            x: shape (B, T, D).
        """
        logits = jnp.einsum("btd,de->bte", x.astype(jnp.float32), self.theta.gate.astype(jnp.float32))
        _, gates, chosen = gates_of(logits, self.experts_per_token)
        every = self._experts(jnp.broadcast_to(x[None], (self.num_experts, *x.shape)))
        picked = jnp.take_along_axis(jnp.moveaxis(every, 0, 2), chosen[..., None], axis=2)
        return jnp.sum(picked * gates[..., None].astype(picked.dtype), axis=2)

    def _groups(self, x: jax.Array) -> jax.Array:
        rows, length, _ = x.shape
        groups = rows if self.num_groups is None else math.gcd(self.num_groups, rows * length)
        if self.num_groups is not None and groups != self.num_groups:
            problem = f"{rows} x {length} tokens cannot be divided into {self.num_groups} groups."
            raise refusal("MoeFeedForward.num_groups", problem, "Use a divisor, or None for one group per row.")
        cut = x.astype(self.compute_dtype).reshape(groups, -1, self.input_dims)
        return constrain(cut, ("activation_batch", None, "activation_embed"))

    def _experts(self, x: jax.Array) -> jax.Array:
        """Return the output of expert e for x[e], of shape (..., D)."""
        hidden = saved(FFN1, jnp.einsum("e...d,edf->e...f", x, self.theta.wi_0))
        if self.use_gated_activation:
            hidden = hidden * self.activation(saved(FFN1, jnp.einsum("e...d,edf->e...f", x, self.theta.wi_1)))
        else:
            hidden = self.activation(hidden)
        return saved(FFN2, jnp.einsum("e...f,efd->e...d", self.dropout(hidden), self.theta.wo_0))

    def _tell(self, routing: Routing, logits: jax.Array, counts: jax.Array) -> None:
        """Add the auxiliary losses, and record statistics of the experts."""
        self.add_aux_loss("expert_balance", self.aux_loss_weight * routing.balance)
        if self.router_z_loss_weight:
            spread = jnp.square(jax.nn.logsumexp(logits, axis=-1)) * counts
            self.add_aux_loss("router_z", self.router_z_loss_weight * spread.sum() / jnp.maximum(counts.sum(), 1.0))
        self.add_summary("expert_balance", routing.balance)
        self.add_summary("dropped_tokens", routing.dropped)


class TransformerFeedForwardMoe(ResidualPart):
    """A mixture of experts as feed-forward part of a block, with norm and residual connection.

    Attributes:
        hidden_dims: width of an expert.
        moe_tpl: of the experts.
    """

    hidden_dims: int = 0
    moe_tpl: MoeFeedForward.HParams = sub_config_field(MoeFeedForward.HParams)

    def setup(self) -> None:
        """Build the parts."""
        self._setup_residual()
        self.create_child("moe", self.moe_tpl, input_dims=self.input_dims, hidden_dims=self.hidden_dims)

    def __call__(self, x: jax.Array, paddings: jax.Array | None = None) -> jax.Array:
        """Map (B, T, D) to the same shape; padding is routed to no expert."""
        return self._with_residual(x, lambda y: self.moe(y, paddings))


def _by_expert(x: jax.Array) -> jax.Array:
    """Shard (E, G, C, D) by expert."""
    return constrain(x, ("activation_expert", "activation_batch", None, None))
