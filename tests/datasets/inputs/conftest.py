"""Small tasks shared by the tests of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.inputs import Arrays, LanguageModelFeatures, SeqIOInput, Task
from xdpx.processors.samples import Ragged, offsets_of


def ragged(rows: list[list[int]]) -> Ragged:
    """Return rows as a ragged column."""
    flat = np.array([token for row in rows for token in row], np.int32)
    return Ragged(flat, offsets_of(np.array([len(row) for row in rows], np.int64)))


@pytest.fixture(name="ragged")
def ragged_maker() -> Callable[[list[list[int]]], Ragged]:
    return ragged


TOY_INPUTS = [[7, 8, 5], [8, 4, 9, 3], [6], [5, 5], [9, 9, 9]]
TOY_TARGETS = [[3, 9], [4], [2, 2, 2], [7], [8, 8]]


@pytest.fixture
def toy_task() -> Task.HParams:
    """The five examples for which batches of Pax were recorded."""
    return Task.HParams(name="toy", source=Arrays.HParams(columns={"inputs": TOY_INPUTS, "targets": TOY_TARGETS}))


@pytest.fixture
def numbered() -> Callable[..., Any]:
    """Return HParams of an input over `size` examples; example i is the single token i + 1."""

    def make(size: int, *, pack: bool = False, tokens: int = 1, **fields: Any) -> Any:
        rows = ragged([[number + 1] * (1 + number % tokens) for number in range(size)])
        task = Task.HParams(name="numbered", source=Arrays.HParams(columns={"targets": rows}))
        converter = LanguageModelFeatures.HParams(with_inputs=False, pack=pack)
        options = {"task_feature_lengths": {"targets": max(tokens, 1)}, "feature_converter": converter, **fields}
        return SeqIOInput.HParams(mixture_or_task=task, **options)

    return make
