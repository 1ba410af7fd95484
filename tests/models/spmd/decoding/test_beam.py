from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from tests.tiers import some
from xdpx.models.spmd.decoding.beam import BeamSearch, gnmt_norm, power_norm, search
from xdpx.models.spmd.decoding.sequences import Decoded, Limits, Prompts

VOCABULARY, END = 5, 4
NORMED = [(power_norm, 0.8), (gnmt_norm, 0.8)]
LIKELY = log_softmax(np.random.default_rng(2).normal(size=(VOCABULARY, VOCABULARY)) * 2, axis=-1)


def step(cache: Any, ids: jax.Array, positions: jax.Array, wanted: jax.Array) -> tuple[jax.Array, Any]:
    """A bigram model; its cache holds the last token, so that beams that are not moved with their ids give nonsense."""
    last = ids[jnp.arange(len(ids)), wanted]
    before = last[:, None, None, None] if cache is None else cache
    return jnp.asarray(LIKELY)[last] + 0.0 * before[:, 0, 0], last[:, None, None, None]


def every_ending(start: int, most: int) -> list[tuple[float, list[int]]]:
    """All continuations that end, or have all tokens, with the sums of their log-probabilities."""
    found = []
    for length in range(1, most + 1):
        for ids in itertools.product(range(VOCABULARY), repeat=length):
            if END in ids[:-1] or (ids[-1] != END and length < most):
                continue
            steps = itertools.pairwise([start, *ids])
            found.append((sum(LIKELY[a, b] for a, b in steps), list(ids)))
    return found


def beams(beam_count: int, alpha: float, *, most: int = 3, norm: Any = power_norm, early_exit: bool = False) -> Decoded:
    prompts = Prompts(jnp.array([[1, 2], [3, 0]]), jnp.array([2, 1]))
    limits = Limits(most=most, ends=(END,))
    options = BeamSearch(beam_count, max(2, 2) * beam_count, norm(alpha), early_exit, limits)
    return search(step, prompts, options)


@pytest.mark.parametrize(("norm", "alpha"), some([(power_norm, 0.0), *NORMED], NORMED))
def test_with_enough_beams_the_best_of_all_continuations_is_found(norm: Any, alpha: float) -> None:
    out = beams(60, alpha, norm=norm)
    for row, start in ((0, 2), (1, 3)):
        scored = [(total / float(norm(alpha)(jnp.int32(len(ids)))), ids) for total, ids in every_ending(start, 3)]
        best, ids = max(scored)
        first = int(out.prefix_lengths[row])
        found = np.asarray(out.output_ids[row, 0, first : int(out.decode_lengths[row, 0])])
        assert found.tolist() == ids
        assert float(out.scores[row, 0]) == pytest.approx(best, abs=1e-4)


def test_beams_come_best_first_and_their_scores_are_those_of_their_tokens() -> None:
    out = beams(4, 0.8)
    assert np.all(np.diff(out.scores, axis=1) <= 0)
    chosen = np.where(out.logprobs == 1.0, 0.0, out.logprobs).sum(-1)
    new = np.asarray(out.decode_lengths) - np.asarray(out.prefix_lengths)[:, None]
    np.testing.assert_allclose(chosen / new**0.8, out.scores, atol=1e-4)


def test_one_beam_without_norm_takes_the_likeliest_token_each_time() -> None:
    out = beams(1, 0.0, most=4)
    ids, expected = np.asarray(out.output_ids[0, 0]), [1, 2]
    while len(expected) < 6 and expected[-1] != END:
        expected.append(int(LIKELY[expected[-1]].argmax()))
    assert ids[: len(expected)].tolist() == expected


def test_early_exit_stops_as_soon_as_every_prompt_has_enough_endings() -> None:
    patient, hasty = beams(2, 1.0, most=6), beams(2, 1.0, most=6, early_exit=True)
    assert np.all(np.asarray(hasty.decode_lengths) <= np.asarray(patient.decode_lengths).max())
    assert np.all(np.asarray(patient.scores[:, 0]) >= np.asarray(hasty.scores[:, 0]) - 1e-6)
