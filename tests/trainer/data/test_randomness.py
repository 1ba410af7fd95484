import random
from types import SimpleNamespace

import numpy as np
import torch
from transformers.trainer_utils import seed_worker as their_seed_worker

from xdpx.trainer.data.randomness import (
    WATCHED_BATCHES,
    CollatorGenerators,
    Randomness,
    StateWatch,
    seed_worker,
    untouched,
)


def draw():
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_what_is_put_back_is_drawn_again():
    before = Randomness.now()
    drawn = draw()
    before.put_back()
    assert draw() == drawn


def test_it_is_saved_as_what_loads_without_trust(tmp_path):
    random.gauss(0, 1)  # leaves a value in reserve, as does NumPy's
    np.random.randn()
    torch.save(Randomness.now().saved(), tmp_path / "state.pt")
    drawn = draw(), random.gauss(0, 1), np.random.randn()
    Randomness.loaded(torch.load(tmp_path / "state.pt", weights_only=True)).put_back()
    assert (draw(), random.gauss(0, 1), np.random.randn()) == drawn


def test_the_generators_are_left_as_they_were_found_even_after_an_error():
    before = Randomness.now()
    try:
        with untouched():
            draw()
            raise KeyError
    except KeyError:
        drawn = draw()
    before.put_back()
    assert draw() == drawn


def test_a_worker_is_seeded_as_by_the_original():
    torch.manual_seed(77)
    their_seed_worker(1, num_workers=2, rank=3)
    expected = draw()
    torch.manual_seed(77)
    seed_worker(1, num_workers=2, rank=3)
    assert draw() == expected


def test_generators_that_batches_do_not_draw_from_are_no_longer_looked_at():
    watch = StateWatch()
    for _ in range(WATCHED_BATCHES):
        assert None not in watch.before()
        np.random.rand()
        watch.after()
    state = watch.before()
    assert state.python is None
    assert state.numpy is not None
    drawn = np.random.rand(), torch.rand(())
    state.put_back()
    assert (np.random.rand(), torch.rand(())) == drawn


def test_what_is_left_out_is_saved_as_nothing():
    state = Randomness.now(python=False, numpy=False)
    assert Randomness.loaded(state.saved()) == (None, None, state.torch)


def test_generators_of_a_collator_whose_state_cannot_be_kept_are_left_alone():
    collator = SimpleNamespace(system=random.SystemRandom(), twister=np.random.Generator(np.random.MT19937(1)), size=3)
    assert CollatorGenerators(SimpleNamespace(collator=collator)).states() == {}
    assert CollatorGenerators(len).states() == {}
