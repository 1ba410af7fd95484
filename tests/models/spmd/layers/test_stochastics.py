import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.models.spmd.base_layer import eval_context
from xdpx.models.spmd.layers.stochastics import Dropout

X = jnp.ones((50, 40))
KEYS = {"random": jax.random.key(3)}


def test_dropout_zeroes_its_share_and_keeps_the_mean():
    out = np.asarray(Dropout(dropout_prob=0.25).apply({}, X, rngs=KEYS))
    assert abs((out == 0).mean() - 0.25) < 0.03
    assert set(np.unique(out)) == {0.0, np.float32(1 / 0.75)}


def test_dropout_does_nothing_in_evaluation_or_without_probability():
    with eval_context():
        assert Dropout(dropout_prob=0.5).apply({}, X) is X
    assert Dropout().apply({}, X) is X


@pytest.mark.parametrize("dim", [1, -1])
def test_one_draw_can_hold_along_a_dimension(dim: int) -> None:
    out = np.asarray(Dropout(dropout_prob=0.5, broadcast_dims=(dim,)).apply({}, X, rngs=KEYS))
    assert np.all(out == out[:, :1])


def test_a_dimension_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"broadcast_dims: names dimension 2 of an array with 2. Use -2 to 1"):
        Dropout(dropout_prob=0.5, broadcast_dims=(2,)).apply({}, X, rngs=KEYS)


def test_the_same_key_draws_the_same():
    layer = Dropout(dropout_prob=0.5)
    np.testing.assert_array_equal(layer.apply({}, X, rngs=KEYS), layer.apply({}, X, rngs=KEYS))


@pytest.mark.parametrize("share", [-0.1, 1.0, 10.0])
def test_a_probability_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=rf"dropout_prob: is {share}. Give a share from 0 to less than 1"):
        Dropout(dropout_prob=share).apply({}, jnp.ones(3), rngs={"random": jax.random.key(0)})
