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


@pytest.mark.parametrize("host", [0, 1])
@pytest.mark.parametrize("source", [Arrays.HParams(columns={"targets": ROWS}), OnDisk.HParams()])
def test_packed_rows_keep_the_number_of_each_example_in_them(host: int, source: Any) -> None:
    data = packed(source, num_infeed_hosts=2, infeed_host_index=host)
    spec = data.spec()
    for batch in data:
        assert {name: array.shape for name, array in batch.FlattenItems()} == {
            name: tuple(one.shape) for name, one in spec.FlattenItems()
        }
        numbers = batch.provenance.index_within_shard
        for row, segments in enumerate(batch.segment_ids):
            count = segments.max()
            assert [batch.labels[row][segments == k + 1].tolist() for k in range(count)] == [
                ROWS[number] for number in numbers[row, :count]
            ]
            assert set(numbers[row, count:].tolist()) <= {-1}
        assert np.array_equal(batch.provenance.num_shards > 0, numbers >= 0)


def test_all_examples_of_an_epoch_are_named_once_by_the_packed_rows_of_all_hosts() -> None:
    hosts = [packed(OnDisk.HParams(), num_infeed_hosts=2, infeed_host_index=host) for host in (0, 1)]
    named = np.concatenate([batch.provenance.index_within_shard.ravel() for data in hosts for batch in data])
    assert sorted(named[named >= 0].tolist()) == list(range(len(ROWS)))
