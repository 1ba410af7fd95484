"""Random keys for seeds of any size."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from xdpx.engines.spmd.seeds import key_of


def data(key):
    return jax.random.key_data(key).tolist()


@pytest.mark.parametrize("seed", [0, 1234, 2**31, 2**32 - 1])
def test_a_seed_of_32_bits_has_the_key_that_jax_gives_it(seed):
    assert data(key_of(seed)) == data(jax.random.key(np.uint32(seed)))


def test_each_bit_of_a_seed_counts():
    seeds = [5, 2**32 + 5, 2**33 + 5, 2**63 + 5, 2**64 + 5, 2**96 + 5]
    assert len({str(data(key_of(seed))) for seed in seeds}) == len(seeds)
