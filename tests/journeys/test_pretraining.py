"""Masked language modelling: a corpus cut in every way, a BERT from random weights, and its weights used after."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

from xdpx.run import main

WORDS = {"the": ["king", "queen", "sea"], "king": ["##dom", "speaks", "sleeps"], "queen": ["speaks", "sings"]}
SHAPE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
COMMON = {"learning_rate": 0.01, "batch_size": 16, "log_interval": 10, "major_metric": "acc"}


def x(command: str, **keys: object) -> None:
    """Run one command with these keys."""
    Path(f"{command}.json").write_text(json.dumps(keys))
    assert main([command, f"{command}.json"]) == 0


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sentences in which a word says much about the next, documents between blank lines."""
    monkeypatch.chdir(tmp_path)
    dice = random.Random(1)
    pieces = sorted({piece.removeprefix("##") for pair in WORDS.items() for piece in [pair[0], *pair[1]]})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, "##dom"]
    Path("vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary))
    Path("raw").mkdir()
    for split, count in (("train", 800), ("dev", 120)):
        lines = []
        for number in range(count):
            subject = dice.choice(WORDS["the"][:2])
            lines.append(f"the {subject} {dice.choice(WORDS[subject][1:])}" + "\n" * (2 if number % 9 == 8 else 1))
        Path(f"raw/{split}.txt").write_text("".join(lines))
    return tmp_path


def prepare(**keys: object) -> None:
    usual = {"data_source": "raw", "loader": "corpus", "parser": "none", "processor": "bert_lm"}
    x("x-prepro", tokenizer="bert", vocab_file="vocab.txt", max_len=19, **(usual | keys))


def test_every_way_to_cut_a_corpus_keeps_its_rules(corpus: Path) -> None:
    sizes = {}
    for mode in ("none", "none_doc", "complete", "complete_doc", "eos"):
        prepare(data_dir=mode, break_mode=mode)
        sizes[mode] = json.loads((corpus / mode / "meta.hjson").read_text())["data_size"]["train"]
    assert sizes["eos"] == 800
    assert sizes["none"] == 800 * 3 // 16
    assert sizes["none"] <= sizes["complete"] <= sizes["complete_doc"]
    assert sizes["none_doc"] <= sizes["complete_doc"] < sizes["eos"]


def test_a_bert_from_random_weights_learns_and_its_weights_serve_a_classifier(corpus: Path) -> None:
    prepare(data_dir="blocks", break_mode="complete")
    lm = {"data_dir": "blocks", "save_dir": "lm", "model": "bert_lm", "loss": "masked_lm", "pretrained_model": None}
    x("x-train", __parent__="blocks/meta", **lm, **SHAPE, **COMMON, max_update=60, eval_interval=30)
    with (corpus / "lm/valid.log.tsv").open() as file:
        losses = [float(row["valid_loss"]) for row in csv.DictReader(file, delimiter="\t")]
    with (corpus / "lm/train.log.tsv").open() as file:
        first = float(next(csv.DictReader(file, delimiter="\t"))["loss"])
    assert losses[-1] < 0.8 * first
    Path("texts").mkdir()
    Path("texts/train.txt").write_text("the king speaks\tking\nthe queen speaks\tqueen\n" * 16)
    Path("texts/dev.txt").write_text("the king speaks\tking\nthe queen speaks\tqueen\n" * 4)
    prepare(data_source="texts", data_dir="single", loader="single", parser="csv", processor="bert_single")
    tuned = {"data_dir": "single", "save_dir": "tuned", "model": "bert_classification", "loss": "cross_entropy"}
    x("x-train", __parent__="single/meta", **tuned, **SHAPE, **COMMON, pretrained_model="lm/<best>", max_update=60,
      eval_interval=-1)  # fmt: skip
    x("x-eval", save_dir="tuned", valid_subset="dev", save_to_file="scores.tsv", compare_origin=True)
    with (corpus / "scores.tsv").open() as file:
        assert float(next(csv.DictReader(file, delimiter="\t"))["acc"]) == 1.0
