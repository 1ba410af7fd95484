import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xdpx.models.spmd.layers.activations import ACTIVATIONS, GELU, BaseActivation

X = np.linspace(-4, 4, 41, dtype=np.float32)
PEERS = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "relu6": torch.nn.functional.relu6,
    "leakyrelu": torch.nn.functional.leaky_relu,
    "squaredrelu": lambda x: torch.relu(x) ** 2,
    "elu": torch.nn.functional.elu,
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "swish": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": torch.nn.functional.softplus,
    "exp": torch.exp,
}


def test_every_activation_is_that_of_torch():
    assert set(PEERS) == set(ACTIVATIONS)
    for name, cls in ACTIVATIONS.items():
        np.testing.assert_allclose(cls().apply({}, X), PEERS[name](torch.tensor(X)), atol=2e-5, rtol=2e-5, err_msg=name)


def test_gelu_can_be_exact():
    exact = torch.nn.functional.gelu(torch.tensor(X))
    np.testing.assert_allclose(GELU(approximate=False).apply({}, X), exact, atol=2e-6)


def test_the_base_is_abstract():
    with pytest.raises(NotImplementedError, match="use one of identity"):
        BaseActivation().apply({}, jnp.ones(1))


def test_activations_have_no_weights():
    assert jax.tree.leaves(GELU().init(jax.random.key(0), X)) == []
