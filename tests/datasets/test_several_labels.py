"""Rows with several labels, or none: from the raw file to the batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.commands.prepro import Prepro
from xdpx.config import checking
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.datasets.store import Store
from xdpx.processors import processors

ROWS = "a b\tNews, sport\nb c\t\na\tsport,sport\nc\tart\n"


def build(folder: Path, text: str, **values: Any) -> Path:
    (folder / "raw").mkdir(exist_ok=True)
    (folder / "raw" / "train.txt").write_text(text)
    known = {
        "parser": "csv", "loader": "single", "tokenizer": "space", "processor": "single", "max_len": 5,
        "label_separator": ",", "data_source": str(folder / "raw"), "data_dir": str(folder / "data"), **values,
    }  # fmt: skip
    Prepro(resolve(known, "x-prepro", source="test")).run()
    return folder / "data"


@pytest.mark.parametrize("save_format", ["torch", "jsonl"])
def test_each_row_keeps_all_its_labels_once_and_a_row_may_have_none(tmp_path: Path, save_format: str) -> None:
    data = build(tmp_path, ROWS, save_format=save_format)
    assert (data / "target_map.txt").read_text() == "sport\nart\nNews\n"
    store = Store.open(str(next(data.glob("train.[pj]*"))))
    assert [store.sample(index)["target"] for index in range(4)] == [[2, 0], [], [0], [1]]


def test_a_batch_marks_each_label_of_a_row(tmp_path: Path) -> None:
    data = build(tmp_path, ROWS)
    meta = json.loads((data / "meta.hjson").read_text())
    assert meta["several_labels"] is True
    kind = processors["single"]
    processor = kind(kind.Parameters(max_len=5, pad_index=0, num_classes=meta["num_classes"]))
    batch = processor.collate(Store.open(str(data / "train.pt")).take(np.arange(4)))
    assert batch["target"].tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_a_label_that_is_not_known_makes_its_line_bad_or_becomes_the_one_for_that(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("sport\nother\n")
    known = {"target_map_file": str(tmp_path / "labels.txt")}
    with pytest.raises(ConfigError, match=r"train.txt:1: is labelled 'News', which the target map lacks"):
        build(tmp_path, ROWS, **known)
    data = build(tmp_path, ROWS, **known, target_unk="other")
    assert Store.open(str(data / "train.pt")).sample(0)["target"] == [1, 0]


def test_bad_lines_can_be_skipped_and_the_others_keep_their_labels(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("sport\nart\n")
    data = build(tmp_path, ROWS, target_map_file=str(tmp_path / "labels.txt"), skip_bad_lines=True)
    store = Store.open(str(data / "train.pt"))
    assert [store.sample(index)["target"] for index in range(len(store))] == [[], [0], [1]]


def test_samples_that_need_no_label_lose_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n")
    data = build(
        tmp_path, ROWS, processor="bert_lm", tokenizer="bert", vocab_file=str(tmp_path / "vocab.txt"), max_len=8
    )
    store = Store.open(str(data / "train.pt"))
    assert ("target" in store.columns, len(store)) == (False, 4)


def test_a_loss_for_one_label_per_row_is_refused() -> None:
    values = {"loss": "cross_entropy", "num_classes": 3, "several_labels": True, "major_metric": "acc"}
    draft = checking.check("x-train", values, origins={}, meta_keys=frozenset({"several_labels", "num_classes"}))
    faults = checking.conflicts(draft)
    assert any("this loss is for one label per row" in str(fault) for fault in [*draft.faults, *faults])
