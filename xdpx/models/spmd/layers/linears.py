"""Linear layers, biases, and feed-forward layers made of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.models.spmd.base_layer import BaseLayer, Weight
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.models.spmd.layers.activations import BaseActivation, Identity, ReLU
from xdpx.models.spmd.sharding import Axes


class Linear(BaseLayer):
    """A product with a weight of shape (input_dims, output_dims).

    Attributes:
        input_dims: width of the input.
        output_dims: width of the output.
        axes: logical axes of the weight.
    """

    input_dims: int = 0
    output_dims: int = 0
    axes: tuple[Any, ...] = ("embed", "mlp")

    def setup(self) -> None:
        """Declare the weight."""
        self.create_variable("w", Weight((self.input_dims, self.output_dims), axes=tuple(self.axes)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map (..., input_dims) to (..., output_dims)."""
        return jnp.einsum("...x,xy->...y", x.astype(self.compute_dtype), self.theta.w)


class Bias(BaseLayer):
    """Adds a weight of shape (dims,).

    Attributes:
        dims: width of the input.
        bias_init: initial value.
        axes: logical axis of the weight.
    """

    dims: int = 0
    bias_init: float = 0.0
    axes: tuple[Any, ...] = ("mlp",)

    def setup(self) -> None:
        """Declare the bias."""
        self.create_variable("b", Weight((self.dims,), WeightInit.Constant(self.bias_init), axes=tuple(self.axes)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return x + b, of the shape of x."""
        return x + self.theta.b


class FeedForward(BaseLayer):
    """activation(x w + b).

    Attributes:
        input_dims: width of the input.
        output_dims: width of the output.
        has_bias: whether there is a bias b.
        axes: logical axes of the weight; the bias has the last.
        linear_tpl, bias_tpl, activation_tpl: of the parts.
    """

    input_dims: int = 0
    output_dims: int = 0
    has_bias: bool = True
    axes: tuple[Any, ...] = ("embed", "mlp")
    linear_tpl: BaseHParams = sub_config_field(Linear.HParams)
    bias_tpl: BaseHParams = sub_config_field(Bias.HParams)
    activation_tpl: BaseActivation.HParams = sub_config_field(ReLU.HParams)

    def setup(self) -> None:
        """Build the parts."""
        axes: Axes = tuple(self.axes)
        self.create_child(
            "linear", self.linear_tpl, input_dims=self.input_dims, output_dims=self.output_dims, axes=axes
        )
        if self.has_bias:
            self.create_child("bias", self.bias_tpl, dims=self.output_dims, axes=axes[-1:])
        self.create_child("activation", self.activation_tpl)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map (..., input_dims) to (..., output_dims)."""
        x = self.linear(x)
        return self.activation(self.bias(x) if self.has_bias else x)  # type: ignore[no-any-return]


class MLPBlock(BaseLayer):
    """A stack of feed-forward layers.

    Attributes:
        num_layers: number of layers, at least 1; the last one has no activation.
        input_dims, hidden_dims, output_dims: widths.
        ff_tpl: of one layer.
    """

    num_layers: int = 3
    input_dims: int = 0
    hidden_dims: int = 128
    output_dims: int = 0
    ff_tpl: FeedForward.HParams = sub_config_field(FeedForward.HParams)

    def setup(self) -> None:
        """Build the layers; neighbours shard opposite dimensions, so that only every other product communicates."""
        widths = [self.input_dims, *[self.hidden_dims] * (self.num_layers - 1), self.output_dims]
        layers = []
        for index, (width_in, width_out) in enumerate(zip(widths, widths[1:], strict=False)):
            layer = self.ff_tpl.clone().set(input_dims=width_in, output_dims=width_out)
            layer.axes = ("embed", "mlp") if index % 2 == 0 else ("mlp", "embed")
            if index == self.num_layers - 1:
                layer.activation_tpl = Identity.HParams()
            layers.append(layer)
        self.create_children("layers", layers)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map (..., input_dims) to (..., output_dims)."""
        for layer in self.layers:
            x = layer(x)
        return x
