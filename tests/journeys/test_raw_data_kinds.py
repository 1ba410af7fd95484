"""From tables, saved data sets and rows of several labels to scores, by the configs of examples/families."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from xdpx.run import main

FAMILIES = Path(__file__).parents[2] / "examples/families"
SMALL = {
    "embedding_dim": 8, "hidden_size": 8, "batch_size": 16, "max_epoch": 2, "eval_interval": -1, "log_interval": 5,
}  # fmt: skip


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[str, str]]]:
    """Texts whose words tell the label."""
    monkeypatch.chdir(tmp_path)
    dice = random.Random(1)
    found = {}
    for split, count in (("train", 96), ("dev", 24)):
        labels = [dice.choice(["news", "sport"]) for _ in range(count)]
        found[split] = [(" ".join(dice.choice([label, "the", "a"]) for _ in range(5)) + f" {label}", label) for label in
                        labels]  # fmt: skip
    return found


def x(command: str, family: str, **keys: Any) -> None:
    parent = {"__parent__": str(FAMILIES / family)} if family else {}
    Path("config.json").write_text(json.dumps({**parent, **keys}))
    assert main([command, "config.json"]) == 0


def train(**keys: Any) -> dict[str, str]:
    """Train and return the last row of the evaluation log."""
    x("x-train", "cls_cnn", data_dir="data", save_dir="run", **SMALL, **keys)
    with Path("run/valid.log.tsv").open() as table:
        return list(csv.DictReader(table, delimiter="\t"))[-1]


@pytest.mark.slow
def test_tables_of_a_database_are_trained_on_scored_and_predicted(rows: Any) -> None:
    with closing(sqlite3.connect("reviews.db")) as connection:
        for split, texts in rows.items():
            connection.execute(f"CREATE TABLE {split} (id INTEGER PRIMARY KEY, label TEXT, text TEXT)")
            connection.executemany(f"INSERT INTO {split} (text, label) VALUES (?, ?)", texts)
        connection.commit()
    x("x-prepro", "table_prepro", data_source="sqlite:///reviews.db", data_dir="data", tokenizer="space",
      processor="single", max_len=16, workers=1)  # fmt: skip
    last = train(metrics=["mcc", "f1_1"], major_metric="macro_f1")
    assert {"valid_mcc", "valid_f1_1", "valid_macro_f1"} <= last.keys()
    assert float(last["best_score"]) == pytest.approx(float(last["valid_macro_f1"]))
    x("x-pred", "", save_dir="run", predict_file_map={"sqlite:///reviews.db/dev": "out.tsv"})
    predicted = [line.split("\t") for line in Path("out.tsv").read_text().splitlines()]
    assert predicted[0] == ["text", "label", "pred", "prob", "target_prob"]
    assert [tuple(row[:2]) for row in predicted[1:]] == rows["dev"]


def test_a_saved_data_set_is_trained_on(rows: Any) -> None:
    datasets = pytest.importorskip("datasets")
    splits = {split: datasets.Dataset.from_dict(dict(zip(("text", "label"), zip(*texts, strict=True), strict=True)))
              for split, texts in rows.items()}  # fmt: skip
    datasets.DatasetDict(splits).save_to_disk("saved")
    x("x-prepro", "datasets_prepro", data_source="saved", data_dir="data", tokenizer="space", processor="single",
      max_len=16, workers=1)  # fmt: skip
    assert json.loads(Path("data/meta.hjson").read_text())["data_size"] == {"dev": 24, "train": 96}


@pytest.mark.slow
def test_rows_of_several_labels_are_trained_on_and_their_thresholds_tuned(rows: Any, capsys: Any) -> None:
    Path("raw").mkdir()
    for split, texts in rows.items():
        lines = [f"{i}\t{'news,sport' if i % 5 == 0 else '' if i % 7 == 0 else label}\t{text}" for i, (text, label) in
                 enumerate(texts)]  # fmt: skip
        Path(f"raw/{split}.tsv").write_text("\n".join(["id\tlabels\ttext", *lines]) + "\n")
    x("x-prepro", "several_labels_prepro", data_source="raw", data_dir="data", tokenizer="space", processor="single",
      max_len=16, workers=1, data_files=["train.tsv", "dev.tsv"])  # fmt: skip
    last = train(loss="bce", metrics=["macro_f1", "samples_f1"], major_metric="f1")
    assert {"valid_macro_f1", "valid_samples_f1"} <= last.keys()
    x("x-pred", "", save_dir="run", predict_file_map={"raw/dev.tsv": "out.tsv"})
    capsys.readouterr()
    words = ["out.tsv", "target_map_file=data/target_map.txt", "target_col_name=labels"]
    assert main(["x-script", "bce_threshold", *words]) == 0
    chosen = json.loads(capsys.readouterr().out.splitlines()[-1])["predict_threshold"]
    x("x-eval", "", save_dir="run", valid_subset="dev", extra_config={"predict_threshold": chosen})
