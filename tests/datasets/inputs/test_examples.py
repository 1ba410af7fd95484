from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import Arrays, Characters, NumpyFiles, Task
from xdpx.datasets.inputs.examples import Examples, Pool
from xdpx.datasets.inputs.sources import Source
from xdpx.processors.samples import Ragged


def examples(columns: dict[str, Any], lengths: dict[str, int], **task: Any) -> Examples:
    p = Task.HParams(name="t", source=Arrays.HParams(columns=columns), **task)
    return Examples(p.Instantiate(), "train", lengths)


def rows_of(column: Ragged) -> list[list[int]]:
    return [column.row(i).tolist() for i in range(len(column))]


def test_features_are_trimmed_and_then_ended() -> None:
    found = examples({"targets": [[2, 3, 4], [5]]}, {"targets": 3}, add_eos=("targets",))
    assert rows_of(found.take(np.array([0, 1]))["targets"]) == [[2, 3, 1], [5, 1]]
    assert found.row_lengths(np.array([1, 0]))["targets"].tolist() == [2, 3]


def test_texts_are_encoded_and_features_take_other_columns() -> None:
    columns = {"question": ["ab", "b"], "answer": ["c", "a"]}
    names = {"inputs": "question", "targets": "answer"}
    found = examples(
        columns, {"inputs": 4, "targets": 4}, features=names, vocabulary=Characters.HParams(alphabet="abc")
    )
    assert rows_of(found.take(np.array([1, 0]))["inputs"]) == [[4], [3, 4]]
    assert found.raw(0) == {"question": "ab", "answer": "c"}


def test_preprocessing_sees_many_examples_at_once() -> None:
    calls = []

    def double(columns: dict[str, Any]) -> dict[str, Any]:
        calls.append(len(columns["targets"]))
        rows = columns["targets"]
        return {"targets": Ragged(rows.values * 2, rows.offsets)}

    found = examples({"targets": [[2], [3], [4]]}, {"targets": 3}, preprocess=double)
    assert rows_of(found.take(np.array([2, 0]))["targets"]) == [[8], [4]]
    assert calls == [3]


def test_features_of_different_numbers_of_examples_are_refused(tmp_path: Path) -> None:
    for name, count in (("inputs", 3), ("targets", 2)):
        np.save(tmp_path / f"{name}.npy", np.ones((count, 2), np.int32))
    paths = {name: str(tmp_path / f"{name}.npy") for name in ("inputs", "targets")}
    task = Task.HParams(name="t", source=NumpyFiles.HParams(paths=paths)).Instantiate()
    with pytest.raises(ConfigError, match="different numbers of examples: {'inputs': 3, 'targets': 2}"):
        _ = Examples(task, "train", {"inputs": 3, "targets": 3}).size


def without_first(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: rows.take(np.arange(1, len(rows))) for name, rows in columns.items()}


def test_preprocessing_keeps_all_examples_of_a_source_that_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arrays, "whole", Source.whole)
    found = examples({"targets": [[2], [3], [4]]}, {"targets": 3}, preprocess=without_first)
    with pytest.raises(ConfigError, match="makes 1 examples of 2"):
        found.take(np.array([0, 1]))


def test_an_example_as_in_the_source_is_refused_where_preprocessing_removed_some() -> None:
    found = examples({"targets": [[2], [3], [4]]}, {"targets": 3}, preprocess=without_first)
    assert rows_of(found.take(np.array([0]))["targets"]) == [[3]]
    with pytest.raises(ConfigError, match="makes 2 of 3 examples"):
        found.raw(0)


def test_one_number_per_example_is_a_row_of_one() -> None:
    assert rows_of(examples({"targets": [7, 8]}, {"targets": 3}).take(np.array([1]))["targets"]) == [[8]]


def test_a_missing_column_offers_the_nearest() -> None:
    with pytest.raises(ConfigError, match="the source has: target. Did you mean 'target'"):
        examples({"target": [[1]]}, {"targets": 3}).take(np.array([0]))


def test_texts_without_a_vocabulary_are_refused() -> None:
    with pytest.raises(ConfigError, match="feature 'targets' is text, but there is no vocabulary"):
        examples({"targets": ["a"]}, {"targets": 3}).take(np.array([0]))


def test_a_split_without_examples_or_source_is_told() -> None:
    with pytest.raises(ConfigError, match="has no example in split 'train'"):
        examples({"targets": []}, {"targets": 3}).size  # noqa: B018 - opened by being asked
    task = Task(name="t", source={"dev": Arrays.HParams(columns={"targets": [[1]]})})
    with pytest.raises(ConfigError, match="has no split 'train', only dev"):
        task.source_of("train")
    assert task.source_of("dev").num_examples == 1
    with pytest.raises(ConfigError, match="has no source"):
        Task(name="t").source_of("train")


def test_examples_of_several_tasks_come_in_the_order_asked_for() -> None:
    pool = Pool([examples({"targets": [[i, n] for n in range(3)]}, {"targets": 2}) for i in (5, 6)])
    which, rows = np.array([1, 0, 1, 1]), np.array([2, 0, 0, 1])
    assert rows_of(pool.take(which, rows)["targets"]) == [[6, 2], [5, 0], [6, 0], [6, 1]]
    assert pool.row_lengths(which, rows)["targets"].tolist() == [2, 2, 2, 2]
    assert pool.measured(which, rows)[1] is None
