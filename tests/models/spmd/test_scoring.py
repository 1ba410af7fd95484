from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xdpx.config.faults import ConfigError
from xdpx.models.spmd.scoring import cross_entropy, mean_of, smoothed, smoothing_of, with_rows

DRAWN = np.random.default_rng(0)
LOGITS = jnp.asarray(DRAWN.normal(size=(3, 4, 7)) * 3, jnp.float32)
LABELS = jnp.asarray(DRAWN.integers(0, 7, (3, 4)), jnp.int32)


def test_cross_entropy_and_smoothing_are_those_of_optax() -> None:
    xent = cross_entropy(LOGITS, LABELS)
    np.testing.assert_allclose(xent, optax.softmax_cross_entropy_with_integer_labels(LOGITS, LABELS), rtol=1e-5)
    target = optax.smooth_labels(jax.nn.one_hot(LABELS, 7), 0.1)
    np.testing.assert_allclose(smoothed(xent, LOGITS, 0.1), optax.softmax_cross_entropy(LOGITS, target), rtol=1e-5)
    assert smoothed(xent, LOGITS, 0.0) is xent


def test_rows_that_fill_up_a_batch_count_nothing_and_nothing_has_the_mean_zero() -> None:
    weights = with_rows(jnp.ones((3, 4)), {"eval_sample_weights": jnp.array([1, 0, 1])})
    np.testing.assert_array_equal(weights.sum(1), [4, 0, 4])
    assert float(mean_of(jnp.ones(4), jnp.zeros(4))) == 0


def test_smoothing_is_a_share_in_training_only() -> None:
    model = SimpleNamespace(label_smoothing_prob=0.1, do_eval=False)
    assert smoothing_of(model) == 0.1
    model.do_eval = True
    assert smoothing_of(model) == 0.0
    model.label_smoothing_prob = 10
    with pytest.raises(ConfigError, match="label_smoothing_prob: is 10. Give a share"):
        smoothing_of(model)
