from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import ArrayRecords, LanguageModelFeatures, SavedDataset, SeqIOInput, Task
from xdpx.processors.samples import Ragged

ROWS = [[5, 6, 7], [8], [9, 10]]


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    datasets = pytest.importorskip("datasets")
    columns = {"ids": ROWS, "label": [0, 1, 1], "text": ["a", "b", None]}
    dataset = datasets.Dataset.from_dict(columns)
    dataset.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": dataset, "dev": dataset.select([2])}).save_to_disk(str(tmp_path / "both"))
    return tmp_path


def test_a_dataset_on_disk_is_read_in_any_order(saved: Path) -> None:
    source = SavedDataset(path=str(saved / "one"))
    taken = source.take(np.array([2, 0, 2]))
    ids = taken["ids"]
    assert isinstance(ids, Ragged)
    assert [ids.row(i).tolist() for i in range(3)] == [ROWS[2], ROWS[0], ROWS[2]]
    assert taken["label"].tolist() == [1, 0, 1]  # type: ignore[union-attr]
    assert taken["text"] == ["", "a", ""]


def test_a_split_is_chosen_by_its_name(saved: Path) -> None:
    assert SavedDataset(path=str(saved / "both"), split="dev").num_examples == 1
    with pytest.raises(ConfigError, match="holds train, dev"):
        SavedDataset(path=str(saved / "both")).num_examples  # noqa: B018 - opened by being asked


@pytest.mark.parametrize("pack", [False, True])
def test_a_dataset_on_disk_feeds_an_input(saved: Path, pack: bool) -> None:
    task = Task.HParams(name="t", source=SavedDataset.HParams(path=str(saved / "one")), features={"targets": "ids"})
    converter = LanguageModelFeatures.HParams(with_inputs=False, pack=pack)
    data = SeqIOInput(
        mixture_or_task=task,
        batch_size=3,
        task_feature_lengths={"targets": 4},
        feature_converter=converter,
        eval_window="full_epoch",
    )
    labels = data.get_next().labels.tolist()
    assert labels == ([[5, 6, 7, 8], [9, 10, 0, 0], [0] * 4] if pack else [[5, 6, 7, 0], [8, 0, 0, 0], [9, 10, 0, 0]])


@pytest.mark.parametrize("record", ["json", "text", "int32"])
def test_array_records_are_read_in_any_order(tmp_path: Path, record: str) -> None:
    module = pytest.importorskip("array_record.python.array_record_module")
    encode = {
        "json": lambda row: json.dumps({"targets": row}).encode(),
        "text": lambda row: " ".join(map(str, row)).encode(),
        "int32": lambda row: np.array(row, "<i4").tobytes(),
    }[record]
    for number in range(2):
        writer = module.ArrayRecordWriter(str(tmp_path / f"part{number}.array_record"), "group_size:1")
        for row in ROWS:
            writer.write(encode([number, *row]))
        writer.close()
    source = ArrayRecords(paths=f"{tmp_path}/*.array_record", record=record)
    assert source.num_examples == 6
    taken = next(iter(source.take(np.array([4, 0])).values()))
    found = [taken.row(i).tolist() for i in range(2)] if isinstance(taken, Ragged) else list(taken)
    assert found == (["1 8", "0 5 6 7"] if record == "text" else [[1, 8], [0, 5, 6, 7]])


def test_records_that_are_nowhere_are_told(tmp_path: Path) -> None:
    pytest.importorskip("array_record")
    with pytest.raises(ConfigError, match="but there is no such file"):
        ArrayRecords(paths=f"{tmp_path}/*.array_record").num_examples  # noqa: B018 - opened by being asked


@pytest.mark.parametrize(
    ("source", "package"), [(SavedDataset(path="x"), "datasets"), (ArrayRecords(paths="x"), "array_record")]
)
def test_a_package_that_is_not_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, source: Any, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_data_source", None)
    with pytest.raises(ConfigError, match=f"needs the package {package}. Install it: pip install {package}"):
        source.num_examples  # noqa: B018 - opened by being asked


def test_chunks_of_what_is_not_in_memory_are_refused(saved: Path) -> None:
    task = Task.HParams(name="t", source=SavedDataset.HParams(path=str(saved / "one")), chunk=4)
    data = SeqIOInput(
        mixture_or_task=task.set(features={"targets": "ids"}),
        batch_size=1,
        task_feature_lengths={"targets": 4},
        feature_converter=LanguageModelFeatures.HParams(with_inputs=False),
        is_training=True,
    )
    with pytest.raises(ConfigError, match="it would have to be read whole. Use NumpyFiles"):
        data.get_next()
