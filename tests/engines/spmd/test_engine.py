"""The engine on eight imitated devices: what it computes does not depend on how it is spread."""

import pytest

MESHES = [([8, 1, 1], None), ([1, 8, 1], None), ([2, 2, 2], None), ([1, 2, 4], None), ([1, 4, 1], [2, 1, 1])]


@pytest.mark.parametrize(("ici", "dcn"), MESHES, ids=str)
def test_losses_of_fifty_steps_are_those_of_one_device(engine_on, toy, curve, ici, dcn):
    engine = engine_on(ici, dcn)
    _, losses = toy.train(engine, len(curve))
    assert losses == pytest.approx(curve, rel=0, abs=1e-5)
    assert losses[-1] < losses[0] / 2
    assert set(engine.compilations.values()) == {1}
