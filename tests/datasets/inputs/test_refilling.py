from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.inputs import BaseInput, IterableAdaptor, PaddedEvalAdaptor, RebatchAdaptor, build_input
from xdpx.datasets.inputs.refilling import Apart
from xdpx.utils.nested_map import NestedMap

ONES = np.ones(2, np.float32)


def batches(num_buffers: int, width: Callable[[int], int] = lambda number: 3) -> Iterator[NestedMap]:
    """Batches of rising numbers in one of some arrays each, with weights that are always the same array."""
    buffers: dict[tuple[int, int], np.ndarray] = {}
    for number in count():
        ids = buffers.setdefault((number % num_buffers, width(number)), np.zeros((2, width(number)), np.int32))
        ids[...] = number
        yield NestedMap(ids=ids, weights=ONES)


@pytest.mark.parametrize("num_buffers", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [lambda number: 3, lambda number: 3 + number // 9 % 2])
def test_batches_in_use_stay_as_they_were_while_later_ones_are_made(
    num_buffers: int, width: Callable[[int], int]
) -> None:
    apart, data = Apart(3), batches(num_buffers, width)
    for first in range(0, 30, 3):
        held = [apart.of(next(data)) for _ in range(3)]
        assert [batch.ids[0, 0] for batch in held] == [first, first + 1, first + 2]


def test_parts_of_an_array_that_is_filled_again_are_copied() -> None:
    apart, rows = Apart(2), np.zeros((5, 3), np.int32)
    before: list[Any] = []
    for number in range(20):
        if number % 5 == 0:
            rows[...] = number
        assert [batch.ids[0] for batch in before] == [each // 5 * 5 for each in range(max(0, number - 2), number)]
        before = [*before, apart.of(NestedMap(ids=rows[number % 5]))][-2:]


def test_arrays_that_are_new_each_time_are_not_copied() -> None:
    apart = Apart(2)
    for number in range(6):
        batch = NestedMap(ids=np.full((2, 3), number), inner=NestedMap(weights=ONES))
        kept = apart.of(batch)
    assert kept.ids is batch.ids
    assert kept.inner.weights is not ONES  # shared by all batches, so it might be filled again


class Refilling(BaseInput):
    """Fills one array again and again."""

    class HParams(BaseInput.HParams):
        """There are no more fields."""

    def get_next(self) -> NestedMap:
        if not hasattr(self, "data"):
            self.data = batches(1)
        return next(self.data)


def test_batches_that_were_made_ahead_stay_as_they_were() -> None:
    data = build_input(Refilling.HParams(prefetch=3, is_training=True))
    assert [data.get_next().ids[0, 0] for _ in range(20)] == list(range(20))
    data.close()


def refilled(batch_size: int) -> Iterator[dict[str, np.ndarray]]:
    """Six batches of rows 0, 1, 2, ... in one array."""
    ids = np.zeros((batch_size, 1), np.int32)
    for number in range(6):
        ids[:, 0] = np.arange(number * batch_size, (number + 1) * batch_size)
        yield {"ids": ids}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (IterableAdaptor.HParams(shard_by="batch", num_infeed_hosts=2), [[0, 1, 2], [6, 7, 8], [12, 13, 14]]),
        (RebatchAdaptor.HParams(batch_size=2, carry_remainder=True), [[i, i + 1] for i in range(0, 18, 2)]),
        (PaddedEvalAdaptor.HParams(batch_size=9, eval_window="full_epoch"), [[*range(9)], [*range(9, 18)]]),
    ],
)
def test_adaptors_keep_rows_of_an_iterator_that_fills_its_arrays_again(template: Any, expected: list[Any]) -> None:
    data = template.set(input=lambda: refilled(3), is_training=template.eval_window is None).Instantiate()
    apart = Apart(len(expected))
    assert [batch.ids[:, 0].tolist() for batch in [apart.of(batch) for batch in data]] == expected
