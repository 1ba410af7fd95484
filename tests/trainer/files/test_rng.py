from __future__ import annotations

import io
import random

import numpy as np
import pytest
import torch

from xdpx.trainer.files import rng


def draw() -> list[float]:
    return [random.random(), float(np.random.rand()), float(np.random.randn()), float(torch.rand(()))]


def test_what_is_drawn_after_restoring_is_what_was_drawn_after_capturing() -> None:
    np.random.randn()  # one of a pair: the other one is in the state
    states = rng.capture()
    expected = draw()
    draw()
    rng.restore(states)
    assert draw() == expected


def test_the_state_can_be_stored_without_code() -> None:
    file = io.BytesIO()
    torch.save(rng.capture(), file)
    file.seek(0)
    states = torch.load(file, weights_only=True)
    expected = draw()
    rng.restore(states)
    assert draw() == expected


def test_a_state_as_the_original_stores_it_is_restored() -> None:
    states = {
        "python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.random.get_rng_state(),
    }  # fmt: skip
    expected = draw()
    rng.restore(states)
    assert draw() == expected


def test_a_missing_state_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    rng.restore(None, where="checkpoint-5")
    assert "checkpoint-5: has no state of the random generators" in capsys.readouterr().err
