"""Which of many records came before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xdpx.datasets.duplicates import SeenRecords


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12), max_size=8))
def test_of_equal_hashes_the_first_is_new(portions: list[list[tuple[int, int]]]) -> None:
    seen, known = SeenRecords(), set()
    for portion in portions:
        new = seen.add(np.array(portion, np.uint64).reshape(-1, 2))
        for pair, is_new in zip(portion, new.tolist(), strict=True):
            # Pairs that share the first word are one in 2**64; only then may a repeated one pass for new.
            assert is_new or pair in known
            assert not (is_new and pair in known and len({first for first, _ in known}) == len(known))
            known.add(pair)


def test_a_hundred_thousand_random_hashes_are_new_once() -> None:
    hashes = np.random.default_rng(1).integers(0, 2**63, (100_000, 2), dtype=np.uint64)
    seen = SeenRecords()
    assert all(seen.add(part).all() for part in np.array_split(hashes, 50))
    assert not any(seen.add(part).any() for part in np.array_split(hashes, 7))
