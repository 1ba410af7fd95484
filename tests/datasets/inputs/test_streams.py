"""Batches of what must be read to be measured: equal to those of what lies in memory, and read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.datasets.inputs import Arrays, LanguageModelFeatures, SeqIOInput, Source, Task
from xdpx.datasets.inputs.sources import Columns, Rows

ROWS = [[number + 1] * (1 + number % 4) for number in range(23)]
READ: list[int] = []


class OnDisk(Source):
    """Rows that nobody knows the lengths of before they are read; tells which were."""

    class HParams(Source.HParams):
        """Nothing more."""

    @property
    def num_examples(self) -> int:
        """How many there are."""
        return len(ROWS)

    def take(self, rows: Rows) -> Columns:
        """Gather rows, and note which."""
        READ.extend(rows.tolist())
        return Arrays(columns={"targets": [ROWS[row] for row in rows.tolist()]}).columns


def packed(source: Any, **fields: Any) -> SeqIOInput:
    options = {
        "mixture_or_task": Task.HParams(name="t", source=source),
        "task_feature_lengths": {"targets": 4},
        "feature_converter": LanguageModelFeatures.HParams(with_inputs=False, pack=True),
        "batch_size": 3,
        "packing_window": 5,
        "eval_window": "full_epoch",
    }
    READ.clear()
    return SeqIOInput(**{**options, **fields})


@pytest.mark.parametrize("host", [0, 1])
def test_a_window_that_must_be_read_is_read_once_and_gives_the_same_batches(host: int) -> None:
    hosts = {"num_infeed_hosts": 2, "infeed_host_index": host}
    there = [batch.labels.tolist() for batch in packed(Arrays.HParams(columns={"targets": ROWS}), **hosts)]
    read = [batch.labels.tolist() for batch in packed(OnDisk.HParams(), **hosts)]
    assert read == there
    assert sorted(READ) == list(range(len(ROWS)))


def test_a_place_that_is_returned_to_gives_the_same_batches_again() -> None:
    data = packed(OnDisk.HParams(), is_training=True, input_random_seed=2)
    data.get_next()
    place = data.get_state()
    first = [data.get_next().labels for _ in range(4)]
    data.set_state(place)
    assert all(np.array_equal(data.get_next().labels, labels) for labels in first)
