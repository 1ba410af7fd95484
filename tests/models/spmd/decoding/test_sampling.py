from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from xdpx.models.spmd.decoding import sampling

LOGITS = jnp.asarray(np.random.default_rng(3).normal(size=(4, 50)) * 3, jnp.float32)
IDS = torch.zeros(4, 1, dtype=torch.long)


def kept_by(warper: object) -> np.ndarray:
    return np.isfinite(warper(IDS, torch.tensor(np.asarray(LOGITS))).numpy())  # type: ignore[operator]


def test_top_k_keeps_what_transformers_keeps() -> None:
    ours = np.isfinite(sampling.among_top_k(LOGITS, 7))
    np.testing.assert_array_equal(ours, kept_by(TopKLogitsWarper(7)))


def test_top_p_keeps_what_transformers_keeps() -> None:
    for p in (0.3, 0.9, 0.999):
        ours = np.isfinite(sampling.among_top_p(LOGITS, p))
        np.testing.assert_array_equal(ours, kept_by(TopPLogitsWarper(p)))


def test_tokens_as_likely_as_the_last_of_top_p_stay() -> None:
    row = jnp.log(jnp.array([[0.2, 0.4, 0.2, 0.2]]))
    np.testing.assert_array_equal(np.isfinite(sampling.among_top_p(row, 0.5)), [[True, True, True, True]])
    np.testing.assert_array_equal(np.isfinite(sampling.among_top_p(row, 0.3)), [[False, True, False, False]])


def test_no_limit_keeps_all_and_the_likeliest_token_always_stays() -> None:
    assert sampling.among_top_k(LOGITS, 0) is LOGITS
    assert sampling.among_top_p(LOGITS, 1.0) is LOGITS
    np.testing.assert_array_equal(np.isfinite(sampling.among_top_p(LOGITS, 1e-6)).sum(1), 1)


def test_draws_follow_the_probabilities() -> None:
    row = jnp.log(jnp.array([0.5, 0.3, 0.2, 0.0]))
    keys = sampling.row_keys(jax.random.key(0), 20_000)
    drawn = sampling.drawn(jnp.broadcast_to(row, (20_000, 4)), keys, jnp.int32(5))
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20_000, [0.5, 0.3, 0.2, 0.0], atol=0.015)


def test_what_a_row_draws_does_not_depend_on_how_many_rows_there_are() -> None:
    few = sampling.drawn(LOGITS[:2], sampling.row_keys(jax.random.key(1), 2), jnp.int32(0))
    many = sampling.drawn(LOGITS, sampling.row_keys(jax.random.key(1), 4), jnp.int32(0))
    np.testing.assert_array_equal(few, many[:2])
