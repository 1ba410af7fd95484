from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.models.spmd.decoding.sequences import NO_LOG_PROBABILITY, Decoded, Limits, Prompts, gathered, grown, started

NEXT = jnp.array([0, 2, 3, 4, 5, 6, 7, 1])
"""After token t comes NEXT[t], almost surely."""


def step(cache: Any, ids: jax.Array, positions: jax.Array, wanted: jax.Array) -> tuple[jax.Array, Any]:
    """A model that knows the last token only; its cache counts the tokens that each row was asked with."""
    last = ids[jnp.arange(len(ids)), wanted]
    cache = jnp.zeros((len(ids), 1, 1, 1)) if cache is None else cache
    return jax.nn.one_hot(NEXT[last], 8) * 10, cache + ids.shape[1]


def greedy(limits: Limits, times: int = 1) -> Decoded:
    prompts = Prompts(jnp.array([[1, 2, 9], [3, 4, 5]]), jnp.array([2, 3]))
    rows = started(step, prompts, limits, times=times)
    return gathered(grown(step, rows, lambda logits, number: logits.argmax(-1), limits), prompts)


def test_new_tokens_follow_each_prompt_directly() -> None:
    out = greedy(Limits(most=3))
    np.testing.assert_array_equal(out.output_ids[:, 0], [[1, 2, 3, 4, 5, 0], [3, 4, 5, 6, 7, 1]])
    np.testing.assert_array_equal(out.decode_lengths[:, 0], [5, 6])


def test_the_limit_counts_new_tokens_only() -> None:
    out = greedy(Limits(most=1))
    np.testing.assert_array_equal(out.decode_lengths[:, 0] - out.prefix_lengths, [1, 1])


def test_a_row_ends_with_an_end_of_sequence_and_is_padded() -> None:
    out = greedy(Limits(most=4, ends=(7, 5), padding=0))
    np.testing.assert_array_equal(out.output_ids[:, 0], [[1, 2, 3, 4, 5, 0, 0], [3, 4, 5, 6, 7, 0, 0]])
    np.testing.assert_array_equal(out.decode_lengths[:, 0], [5, 5])


def test_no_end_of_sequence_comes_before_the_least_number_of_tokens() -> None:
    out = greedy(Limits(most=4, least=2, ends=(3,)))
    first = np.asarray(out.output_ids[0, 0])
    assert first[2] != 3
    assert int(out.decode_lengths[0, 0]) - 2 >= 2


def test_log_probabilities_stand_at_new_tokens_and_a_filler_elsewhere() -> None:
    out = greedy(Limits(most=2))
    likely = float(jax.nn.log_softmax(jnp.eye(8)[0] * 10)[0])
    np.testing.assert_allclose(out.logprobs[0, 0], [1, 1, likely, likely, 1], atol=1e-6)
    assert NO_LOG_PROBABILITY == 1.0
    np.testing.assert_allclose(out.scores[:, 0], 2 * likely, atol=1e-6)


def test_each_prompt_grows_as_many_rows_as_are_asked_for() -> None:
    out = greedy(Limits(most=2), times=3)
    assert out.output_ids.shape == (2, 3, 5)
    np.testing.assert_array_equal(out.output_ids[:, 0], out.output_ids[:, 2])


@pytest.mark.parametrize("end", [-1, 4])
def test_an_end_that_the_model_cannot_say_is_refused(end: int) -> None:
    with pytest.raises(ConfigError, match=f"eos_id: is {end}, but the ids of the model are 0 to 3"):
        Limits(3, least=2, ends=(1, end)).allowed(jnp.zeros((1, 4)), jnp.int32(0))
