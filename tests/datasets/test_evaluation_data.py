from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.evaluation_data import EvaluationData, in_file_order
from xdpx.datasets.store import Store


@pytest.fixture
def store(tmp_path: Path, write_store: Any) -> Store:
    write_store(tmp_path / "dev.pt", 47)
    return Store.open(str(tmp_path / "dev.pt"))


def test_each_sample_is_scored_once_and_finds_its_way_back(store: Store, processor: Any) -> None:
    batches = list(EvaluationData(store, processor, batch_size=10))
    assert [len(rows) for rows, _ in batches] == [10, 10, 10, 10, 7]
    ids = in_file_order([rows for rows, _ in batches], [batch["id"] for _, batch in batches])
    assert ids.tolist() == list(range(47))


def test_the_longest_samples_come_first_and_padding_is_little(store: Store, processor: Any) -> None:
    widths = [batch["net_input"]["input_ids"].shape[1] for _, batch in EvaluationData(store, processor, batch_size=10)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == store.lengths.max()


def test_a_limit_looks_at_the_first_samples_of_the_file(store: Store, processor: Any) -> None:
    data = EvaluationData(store, processor, batch_size=10, max_steps=3)
    assert (len(data), data.num_samples) == (3, 30)
    assert sorted(np.concatenate([rows for rows, _ in data]).tolist()) == list(range(30))
    assert len(EvaluationData(store, processor, batch_size=10, max_steps=99)) == 5


def test_a_limit_may_look_at_samples_from_everywhere_the_same_ones_every_time(store: Store, processor: Any) -> None:
    chosen = [
        sorted(np.concatenate([rows for rows, _ in EvaluationData(store, processor, **known)]).tolist())
        for known in 2 * [{"batch_size": 10, "max_steps": 2, "shuffled": True}]
    ]
    assert chosen[0] == chosen[1] != list(range(20))
    assert len(set(chosen[0])) == 20
    assert max(chosen[0]) > 30


def test_batches_that_a_sampler_drew_are_taken_as_they_are_and_marked(store: Store, processor: Any) -> None:
    drawn = [np.array([5, 3, 5]), np.array([0]), np.array([7])]
    batches = list(EvaluationData(store, processor, batch_size=10, max_steps=2, drawn=drawn))
    assert [rows.tolist() for rows, _ in batches] == [[5, 3, 5], [0]]
    assert all(batch["drawn"] for _, batch in batches)


def test_every_evaluation_of_a_run_sees_the_same_masks_whatever_the_batches(store: Store, processor: Any) -> None:
    def guesses(batch_size: int, seed: int) -> list[int]:
        found = []
        for rows, batch in EvaluationData(store, processor, batch_size=batch_size, seed=seed):
            width = batch["net_input"]["input_ids"].shape[1]
            place, column = np.divmod(batch["net_input"]["masked_positions"], width)
            found += [(int(row), int(at)) for row, at in zip(rows[place], column, strict=True)]
        return sorted(found)

    assert guesses(10, 1) == guesses(3, 1) == guesses(10, 1)
    assert guesses(10, 1) != guesses(10, 2)


def test_nothing_to_score_gives_no_batch(tmp_path: Path, write_store: Any, processor: Any) -> None:
    write_store(tmp_path / "empty.pt", 0)
    assert list(EvaluationData(Store.open(str(tmp_path / "empty.pt")), processor, batch_size=4)) == []
