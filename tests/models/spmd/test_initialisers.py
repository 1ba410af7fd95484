import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.models.spmd.initialisers import METHODS, WeightInit, draw, fans

SHAPE = (400, 100)


def _drawn(init: WeightInit, **kwargs: int) -> np.ndarray:
    return np.asarray(draw(init, **kwargs)(jax.random.key(1), SHAPE, jnp.float32))


@pytest.mark.parametrize(
    ("init", "deviation"),
    [
        (WeightInit.Gaussian(0.5), 0.5),
        (WeightInit.GaussianSqrtDim(), 1 / 20),
        (WeightInit.GaussianSqrtFanIn(2.0), 2 / 20),
        (WeightInit.of("gaussian_sqrt_fanout"), 1 / 10),
        (WeightInit.of("gaussian_sqrt_fanavg"), 1 / math.sqrt(250)),
        (WeightInit.Uniform(3.0), 3 / math.sqrt(3)),
        (WeightInit.Xavier(), math.sqrt(2 / 500)),
        (WeightInit.of("xavier_fixup"), math.sqrt(1 / 500)),
        (WeightInit.UniformUnitScaling(), 1 / 20),
        (WeightInit.TruncatedGaussian(1.0), 0.8796),
    ],
)
def test_the_spread_is_that_of_the_formula(init: WeightInit, deviation: float):
    assert _drawn(init).std() == pytest.approx(deviation, rel=0.02)


def test_a_constant_is_constant_and_bounds_are_kept():
    assert np.all(_drawn(WeightInit.Constant(3.0)) == 3.0)
    assert np.abs(_drawn(WeightInit.TruncatedGaussian(0.5))).max() <= 1.0
    assert np.abs(_drawn(WeightInit.Uniform(0.5))).max() <= 0.5


def test_every_method_draws_the_shape_and_dtype():
    for method in METHODS:
        shape = (3, 3, 4, 4) if method == "delta_orthogonal" else (4, 6)
        drawn = jax.eval_shape(lambda key, m=method, s=shape: draw(WeightInit.of(m))(key, s, jnp.bfloat16), KEY)
        assert (drawn.shape, drawn.dtype) == (shape, jnp.bfloat16)


KEY = jax.random.key(0)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'gaussian'"):
        WeightInit.of("gausian")


def test_an_unknown_method_in_a_template_is_refused_when_a_weight_is_declared():
    with pytest.raises(ConfigError, match="no method 'gaussian_sqrt_fan_in'. Did you mean 'gaussian_sqrt_fanin'"):
        draw(WeightInit(method="gaussian_sqrt_fan_in"))


def test_fans_count_heads_as_outputs_and_leave_batches_out():
    assert fans((8, 2, 3)) == (8, 6)
    assert fans((2, 3, 8), num_in=2) == (6, 8)
    assert fans((3, 8, 2, 3), num_batch=1) == (8, 6)
    assert fans((5,)) == (5, 5)
    assert fans(()) == (1, 1)
