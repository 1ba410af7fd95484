"""Rows that only mean something together, through all commands: episodes of few shots, candidates of queries."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from xdpx.run import main

FAMILIES = Path(__file__).parents[2] / "examples/families"
SMALL = {
    "embedding_dim": 16, "hidden_size": 16, "max_epoch": 1, "eval_interval": -1, "log_interval": 10,
    "learning_rate": 0.02, "save_best_only": False,
}  # fmt: skip
WORDS = {"tokenizer": "space", "processor": "single", "max_len": 16, "workers": 1}


def x(command: str, family: str, **keys: Any) -> None:
    parent = {"__parent__": str(FAMILIES / family)} if family else {}
    Path("config.json").write_text(json.dumps({**parent, **keys}))
    assert main([command, "config.json"]) == 0


def table(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def write(path: str, rows: list[str]) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("".join(f"{row}\n" for row in rows))


def topic(dice: random.Random, name: str, size: int) -> list[str]:
    """Texts of a topic, which has two words of its own among words of all."""
    own = [f"{name}{number}" for number in range(2)]
    return [f"{' '.join(dice.choices([*own, 'the', 'a', 'of'], k=6))} {own[0]}\t{name}" for _ in range(size)]


@pytest.mark.slow
def test_classes_that_training_never_saw_are_told_by_a_few_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    dice = random.Random(2)
    for split, names in (("train", "abcd"), ("dev", "efg"), ("test", "hij")):
        write(f"raw/{split}.tsv", [row for name in names for row in topic(dice, name, 12)])
    write("raw/shots.tsv", [row for name in "hij" for row in topic(dice, name, 3)])
    files = {f"{split}.tsv": split for split in ("train", "dev", "test", "shots")}
    x("x-prepro", "classification_prepro", data_source="raw", data_dir="data", data_files=files,
      vocab_subset="*", **WORDS)  # fmt: skip
    shape = {"n_way": 3, "k_shot": 3, "q_query": 2, "batch_size": 15, "train_episodes": 10, "dev_episodes": 8}
    x("x-train", "fewshot", data_dir="data", save_dir="run", support_subset="shots", proj_hidden_size=16, **SMALL,
      **shape)  # fmt: skip
    assert float(table("run/valid.log.tsv")[-1]["valid_acc"]) > 0.6
    x("x-eval", "", save_dir="run", valid_subset="dev", compare_origin=True)
    capsys.readouterr()
    x("x-eval", "", save_dir="run", valid_subset=["test", "raw/test.tsv"])
    store, raw = csv.DictReader(capsys.readouterr().out.splitlines(), delimiter="\t")
    assert (store["acc"], store["loss"]) == (raw["acc"], raw["loss"])
    x("x-pred", "", save_dir="run", predict_file_map={"raw/test.tsv": "found.tsv"})
    found = table("found.tsv")
    assert sum(row["pred"] == row["target"] for row in found) > 0.6 * len(found)
    write("labels.txt", list("jihgfedcba"))
    x("x-prepro", "classification_prepro", data_source="raw", data_dir="other", data_files=files,
      vocab_subset="*", target_map_file="labels.txt", __ignore__=["target_type"], **WORDS)  # fmt: skip
    capsys.readouterr()
    again = {"save_dir": "run", "predict_file_map": {"raw/test.tsv": "2.tsv"}, "extra_config": {"data_dir": "other"}}
    Path("config.json").write_text(json.dumps(again))
    assert main(["x-pred", "config.json"]) == 2
    assert "other/target_map.txt is not run/target_map.txt" in capsys.readouterr().err


def candidates(dice: random.Random, number: int) -> list[str]:
    """Candidates with more words of the query are better."""
    query = dice.sample([f"w{index}" for index in range(12)], 3)
    rows = []
    for grade in (0, 1, 2, 3):
        shared = query[:grade] + dice.choices(["the", "a", "of"], k=3 - grade)
        rows.append(f"q{number}\t{' '.join(query)}\t{' '.join(shared)}\t{grade}")
    return dice.sample(rows, 4)


@pytest.mark.slow
def test_candidates_of_queries_come_into_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    dice = random.Random(2)
    for split, size in (("train", 80), ("dev", 20), ("test", 20)):
        write(f"raw/{split}.tsv", [row for number in range(size) for row in candidates(dice, number)])
    x("x-prepro", "rank_prepro", data_source="raw", data_dir="data", **{**WORDS, "processor": "pair"})
    keys = {**SMALL, "max_epoch": 8, "list_size": 4, "batch_size": 32}
    x("x-train", "ranknet", data_dir="data", save_dir="run", **keys)
    scores = table("run/valid.log.tsv")
    assert float(scores[-1]["valid_ndcg"]) > 0.9
    assert 0 <= float(scores[-1]["valid_hit@1"]) <= 1
    x("x-eval", "", save_dir="run", valid_subset="dev", compare_origin=True)
    capsys.readouterr()
    x("x-eval", "", save_dir="run", valid_subset=["test", "raw/test.tsv"])
    store, raw = csv.DictReader(capsys.readouterr().out.splitlines(), delimiter="\t")
    assert store["ndcg"] == raw["ndcg"]
    x("x-pred", "", save_dir="run", predict_file_map={"raw/test.tsv": "found.tsv"})
    found = table("found.tsv")
    assert list(found[0]) == ["query_id", "text1", "text2", "target", "score"]
    best, worst = ([float(row["score"]) for row in found if row["target"] == grade] for grade in "30")
    assert sum(best) / len(best) > sum(worst) / len(worst)
