"""Folders that `datasets` saved, written by `datasets` itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xdpx.commands.prepro import Prepro
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.datasets.store import Store
from xdpx.loaders.parsers import parsers
from xdpx.loaders.parsers.base import BadLine


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two splits of texts with classes, lists of tokens with classes, and a row without a class."""
    datasets: Any = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features({
        "label": names, "text": datasets.Value("string"), "tokens": datasets.List(datasets.Value("string")),
        "tags": datasets.List(datasets.ClassLabel(names=["O", "B-PER"])),
    })  # fmt: skip
    rows: dict[str, Any] = {
        "label": [1, 0, 1, -1], "text": ["good", "bad", "very good", "none"],
        "tokens": [["a", "b"]] * 4, "tags": [[0, 1]] * 4,
    }  # fmt: skip
    train = datasets.Dataset.from_dict(rows, features=features)
    folder = tmp_path_factory.mktemp("saved")
    splits = {"train": train.select([2, 0, 1]), "dev": train.select([0])}
    datasets.DatasetDict(splits).save_to_disk(folder, num_shards={"train": 2, "dev": 1})
    train.save_to_disk(folder / "odd")
    return folder


def read(path: Path, **values: Any) -> list[tuple[int, Any]]:
    kind = parsers["datasets"]
    return list(kind(kind.Parameters(**values)).read(str(path)))


def test_classes_get_their_names_and_all_files_are_read_in_order(saved: Path) -> None:
    found = [(1, ["very good", "pos"]), (2, ["good", "pos"]), (3, ["bad", "neg"])]
    assert read(saved / "train", fields=["text", "label"]) == found


def test_lists_of_tokens_and_tags_become_texts(saved: Path) -> None:
    assert read(saved / "dev", fields=["tokens", "tags"]) == [(1, ["a b", "O B-PER"])]


def test_a_row_without_a_class_is_bad(saved: Path) -> None:
    assert read(saved / "odd", fields=["label"])[-1] == (4, BadLine(4, "column 'label' is a int, not text or a class"))


def test_a_row_whose_class_is_hidden_has_no_label(saved: Path) -> None:
    assert read(saved / "odd", fields=["text", "label"])[-2:] == [(3, ["very good", "pos"]), (4, ["none"])]


def test_a_column_that_is_not_there_is_refused_with_the_nearest(saved: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no column 'txt'\. Did you mean 'text'\?"):
        read(saved / "dev", fields=["txt", "label"])


def test_a_folder_that_nobody_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder in which datasets saved a split"):
        read(tmp_path)


def test_a_saved_data_set_becomes_a_data_dir(saved: Path, tmp_path: Path) -> None:
    known = {
        "parser": "datasets", "loader": "single", "tokenizer": "space", "processor": "single", "max_len": 5,
        "fields": ["text", "label"], "data_files": ["train", "d*"], "data_source": str(saved),
        "data_dir": str(tmp_path / "data"),
    }  # fmt: skip
    run = resolve(known, "x-prepro", source="test")
    assert not Prepro(run).check()
    Prepro(run).run()
    assert json.loads((tmp_path / "data" / "meta.hjson").read_text())["data_size"] == {"dev": 1, "train": 3}
    assert Store.open(str(tmp_path / "data" / "train.pt")).sample(2)["target"] == 1
