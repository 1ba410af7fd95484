"""Scores of a rare class, as somebody reads them who looks at the last line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xdpx.run import main

TINY: dict[str, Any] = {
    "model": "cls_cnn", "embedding_dim": 8, "hidden_size": 8, "max_update": 20, "max_epoch": None, "seed": 1,
    "batch_size": 16, "learning_rate": 0.05, "eval_interval": -1, "major_metric": "f1", "loss": "cross_entropy",
    "optimizer": "adam", "lr_scheduler": "constant",
}  # fmt: skip


def x(command: str, **keys: Any) -> None:
    Path("config.json").write_text(json.dumps(keys))
    assert main([command, "config.json"]) == 0


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A classifier that knows one word of each class; 47 of 820 negative rows of dev hold the other word."""
    monkeypatch.chdir(tmp_path)
    Path("raw").mkdir()
    Path("raw/train.txt").write_text("it is good\tpos\nit is bad\tneg\n" * 32)
    Path("raw/dev.txt").write_text("it is bad\tneg\n" * 773 + "it is good\tneg\n" * 47 + "it is good\tpos\n" * 8)
    x("x-prepro", data_source="raw", data_dir="data", loader="single", processor="single", tokenizer="space", max_len=8)
    x("x-train", __parent__="data/meta", data_dir="data", save_dir="run", **TINY)


def test_a_class_that_is_told_badly_is_seen_at_once_where_rows_are_820_to_8(trained: None, capsys: Any) -> None:
    log = Path("run/log.txt").read_text()
    assert "major_metric f1: the macro average of the classes; f1_average chooses another" in log
    assert "step 20: each class (precision/recall/f1): neg 1/0.943/0.97 of 820, pos 0.145/1/0.254 of 8" in log
    capsys.readouterr()
    x("x-eval", save_dir="run", valid_subset="dev")
    printed, told = capsys.readouterr()
    header, row = (line.split("\t") for line in printed.splitlines())
    scores = dict(zip(header, row, strict=True))
    assert (scores["acc"], scores["f1"]) == ("0.943237", "0.612232")
    shown = [line.strip("| ").split() for line in told.splitlines()]
    assert ["pos", "8", "55", "0.145455", "1", "0.253968"] in shown
    assert ["class", "rows", "predicted", "precision", "recall", "f1"] in shown


def test_micro_is_the_accuracy_and_comes_only_when_it_is_asked_for(trained: None, capsys: Any) -> None:
    capsys.readouterr()
    x("x-eval", save_dir="run", valid_subset="dev", extra_config={"f1_average": "micro", "metrics": ["macro_f1"]})
    header, row = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    scores = dict(zip(header, row, strict=True))
    assert scores["f1"] == scores["acc"] != scores["macro_f1"]
