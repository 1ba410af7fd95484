import random

import numpy as np
import torch

from xdpx.utils.seeds import seeded, states


def test_global_generators_are_seeded_inside_and_left_as_they_were():
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    drawn = []
    for seed in (3, 3, 4, 2**40):
        with seeded(seed):
            drawn.append((random.random(), np.random.rand(), float(torch.rand(()))))
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


def test_any_number_that_is_drawn_shows_in_the_states():
    seen = [states(), states()]
    assert seen[0] == seen[1]
    for draw in (random.random, np.random.rand, lambda: torch.rand(())):
        draw()
        seen.append(states())
    assert len(set(seen)) == 4
