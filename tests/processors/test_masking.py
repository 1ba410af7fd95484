from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdpx.processors.masking import FATE, NUM_WORDS, REPLACEMENT, SCORE, Masking, cumulative_weights
from xdpx.processors.samples import Ragged, offsets_of

GOLDEN = Path(__file__).parent / "golden" / "masks.txt"
ALL64 = 2**64 - 1
MASK = 4


def mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & ALL64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & ALL64
    return word ^ (word >> 31)


def draw(key: int, counter: int) -> int:
    return mix((key + 0x9E3779B97F4A7C15 * (counter + 1)) & ALL64)


def one_by_one(rule: Masking, tokens: list[int], starts: list[bool], *, sample: int, seed: int, epoch: int) -> Any:
    """The rule again, for one sample, in plain Python."""
    key = mix((mix((0x9E3779B97F4A7C15 + seed) & ALL64) + 0x9E3779B97F4A7C15 + epoch) & ALL64)
    key = draw(key, sample)
    words: list[list[int]] = []
    for place in range(len(tokens)):
        words.append([place]) if place == 0 or starts[place] else words[-1].append(place)
    wanted = int(rule.mask_prob * len(words) + (draw(key, NUM_WORDS) >> 11) * 2.0**-53)
    most = rule.max_predictions
    most = most if isinstance(most, int) else max(1, int(most * len(tokens)))
    order = sorted(range(len(words)), key=lambda w: (draw(draw(key, words[w][0]), SCORE) >> 20, w))
    chosen, out, used = set(), list(tokens), 0
    for rank, word in enumerate(order):
        places = words[word]
        if rank == 0 or (rank < wanted and used + len(places) <= most):
            chosen |= set(places[:most])
            fate = (draw(draw(key, places[0]), FATE) >> 11) * 2.0**-53
            for place in places[:most]:
                if fate < rule.leave_unmasked_prob:
                    continue
                out[place] = rule.mask_index
                if fate < rule.leave_unmasked_prob + rule.random_token_prob:
                    picked = (draw(draw(key, place), REPLACEMENT) >> 32) * len(rule.candidates) >> 32
                    out[place] = int(rule.candidates[picked])
        used += len(places)
    return sorted(chosen), out


def rule(**changes: Any) -> Masking:
    options: dict[str, Any] = {
        "mask_prob": 0.15, "leave_unmasked_prob": 0.1, "random_token_prob": 0.1, "max_predictions": 0.33,
        "mask_index": MASK, "candidates": np.arange(5, 105),
    }  # fmt: skip
    return Masking(**(options | changes))


def rows_of(lengths: list[int]) -> tuple[Ragged, Any]:
    offsets = offsets_of(np.array(lengths, np.int64))
    numbers = np.random.default_rng(3)
    values = numbers.integers(5, 105, offsets[-1]).astype(np.int32)
    return Ragged(values, offsets), values % 3 != 1


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=6),
    st.sampled_from([0.15, 0.5, 1.0]),
    st.sampled_from([0.33, 1.0, 0.1, 1, 2, 5]),
    st.booleans(),
    st.integers(0, 5),
)
@settings(max_examples=60)
def test_a_batch_is_masked_as_its_samples_are_one_by_one(
    lengths: list[int], share: float, most: float, whole: bool, epoch: int
) -> None:
    rows, starts = rows_of(lengths)
    masking = rule(mask_prob=share, max_predictions=most)
    ids = np.arange(len(lengths)) + (1 << 40)
    chosen, out = masking.corrupt(rows, ids=ids, word_starts=starts if whole else None, seed=9, epoch=epoch)
    for index in range(len(lengths)):
        piece = slice(rows.offsets[index], rows.offsets[index + 1])
        begins = starts[piece].tolist() if whole else [True] * lengths[index]
        tokens = rows.values[piece].tolist()
        expected = one_by_one(masking, tokens, begins, sample=int(ids[index]), seed=9, epoch=epoch)
        assert (np.flatnonzero(chosen[piece]).tolist(), out[piece].tolist()) == expected


def show_masks() -> str:
    """Write out the masks of six samples in three epochs, guessed tokens in brackets."""
    rows, starts = rows_of([3, 8, 8, 12, 20, 30])
    lines = []
    for seed, epoch in [(1, 1), (1, 2), (2, 1), (1, 0)]:
        chosen, out = rule().corrupt(rows, ids=np.arange(6), word_starts=starts, seed=seed, epoch=epoch)
        shown = [f"[{token}]" if guessed else str(token) for token, guessed in zip(out, chosen, strict=True)]
        for index in range(6):
            line = " ".join(shown[rows.offsets[index] : rows.offsets[index + 1]])
            lines.append(f"seed {seed} epoch {epoch} sample {index}: {line}")
    return "\n".join(lines) + "\n"


def test_masks_are_those_that_every_earlier_version_drew() -> None:
    # A run that is resumed with a newer version must see the same masks. Never write this file again.
    assert show_masks() == GOLDEN.read_text()


def test_the_mask_of_a_sample_does_not_depend_on_its_batch() -> None:
    rows, starts = rows_of([9, 14, 30, 5])
    together, _ = rule().corrupt(rows, ids=np.arange(4), word_starts=starts, seed=1, epoch=1)
    for index in range(4):
        piece = slice(rows.offsets[index], rows.offsets[index + 1])
        alone, _ = rule().corrupt(
            rows.take(np.array([index])), ids=np.array([index]), word_starts=starts[piece], seed=1, epoch=1
        )
        assert alone.tolist() == together[piece].tolist()


def test_shares_are_those_asked_for() -> None:
    rows, _ = rows_of([40] * 1500)
    chosen, out = rule().corrupt(rows, ids=np.arange(1500), word_starts=None, seed=1, epoch=1)
    assert abs(chosen.mean() - 0.15) < 0.002
    guessed, before = out[chosen], rows.values[chosen]
    assert abs((guessed == MASK).mean() - 0.8) < 0.02
    assert abs((guessed == before).mean() - 0.1) < 0.02
    assert (out[~chosen] == rows.values[~chosen]).all()
    per_place = chosen.reshape(1500, 40).mean(0)
    assert per_place.min() > 0.10
    assert per_place.max() < 0.20


@pytest.mark.parametrize("most", [1, 2, 0.05])
def test_no_sample_has_more_to_guess_than_max_predictions_nor_nothing(most: float) -> None:
    rows, starts = rows_of([1, 7, 20, 40])
    chosen, _ = rule(mask_prob=0.9, max_predictions=most).corrupt(
        rows, ids=np.arange(4), word_starts=starts, seed=1, epoch=1
    )
    counts = [int(chosen[a:b].sum()) for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]
    limits = [most if isinstance(most, int) else max(1, int(most * length)) for length in (1, 7, 20, 40)]
    assert all(1 <= count <= limit for count, limit in zip(counts, limits, strict=True))


def test_pieces_of_a_word_are_masked_together_or_not_at_all() -> None:
    rows, starts = rows_of([40] * 50)
    chosen, _ = rule().corrupt(rows, ids=np.arange(50), word_starts=starts, seed=1, epoch=1)
    begins = starts | (np.arange(len(starts)) % 40 == 0)
    word = np.cumsum(begins) - 1
    parts = np.bincount(word, chosen)
    assert set(parts[np.flatnonzero(parts)] / np.bincount(word)[np.flatnonzero(parts)]) == {1.0}


def test_replacements_follow_their_weights() -> None:
    rows, _ = rows_of([40] * 800)
    cumulative = cumulative_weights(np.array([0.0, 16.0, 4.0, 0.0]), 0.5)
    masking = rule(
        mask_prob=1.0, max_predictions=1.0, leave_unmasked_prob=0.0, random_token_prob=1.0,
        candidates=np.array([11, 12, 13, 14]), cumulative=cumulative,
    )  # fmt: skip
    _, out = masking.corrupt(rows, ids=np.arange(800), word_starts=None, seed=1, epoch=1)
    assert set(out.tolist()) == {12, 13}
    assert abs((out == 12).mean() - 2 / 3) < 0.01


def test_an_empty_batch_and_an_empty_sample_need_no_special_care() -> None:
    for lengths in ([], [0], [0, 3, 0]):
        rows, _ = rows_of(lengths)
        chosen, out = rule().corrupt(rows, ids=np.arange(len(lengths)), word_starts=None, seed=1, epoch=1)
        assert len(chosen) == len(out) == sum(lengths)
        assert chosen.sum() == (1 if sum(lengths) else 0)
