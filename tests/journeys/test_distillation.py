"""From a teacher to a light student, by the configs of examples/families."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from xdpx.checkpoints import trusted
from xdpx.run import main

FAMILIES = Path(__file__).parents[2] / "examples/families"
SMALL = {
    "embedding_dim": 8, "hidden_size": 8, "batch_size": 8, "max_epoch": 2, "eval_interval": -1, "log_interval": 5,
    "learning_rate": 0.03,
}  # fmt: skip
WORDS = {"news": "paper", "sport": "ball"}


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts whose words tell the label; those of unlabelled.tsv have none."""
    monkeypatch.chdir(tmp_path)
    dice = random.Random(1)
    Path("raw").mkdir()
    for split, count in (("train", 64), ("dev", 24), ("test", 24), ("unlabelled", 64)):
        labels = [dice.choice(list(WORDS)) for _ in range(count)]
        texts = [" ".join(dice.choice([WORDS[label], "the", "a"]) for _ in range(5)) + f" {WORDS[label]}" for label in
                 labels]  # fmt: skip
        lines = (
            texts if split == "unlabelled" else [f"{text}\t{label}" for text, label in zip(texts, labels, strict=True)]
        )
        Path(f"raw/{split}.tsv").write_text("\n".join(lines) + "\n")


def x(command: str, family: str, **keys: Any) -> None:
    parent = {"__parent__": str(FAMILIES / family)} if family else {}
    Path("config.json").write_text(json.dumps({**parent, **keys}))
    assert main([command, "config.json"]) == 0


def last_row(run: str) -> dict[str, str]:
    with Path(run, "valid.log.tsv").open() as table:
        return list(csv.DictReader(table, delimiter="\t"))[-1]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["cross_entropy", "bce"])
def test_a_student_learns_what_a_teacher_thinks_of_texts_without_labels(raw: None, loss: str) -> None:
    words = {"tokenizer": "space", "max_len": 16, "workers": 1, "vocab_file": "words.txt"}
    Path("words.txt").write_text("[PAD]\n[UNK]\nthe\na\npaper\nball\n")
    x("x-prepro", "classification_prepro", data_source="raw", data_dir="data", processor="single", **words)
    x("x-train", "cls_cnn", data_dir="data", save_dir="teacher", loss=loss, **{**SMALL, "max_epoch": 8})
    Path("logits").mkdir()
    files = {"raw/unlabelled.tsv": "logits/train.tsv", "raw/dev.tsv": "logits/dev.tsv"}
    x("x-pred", "", save_dir="teacher", predict_file_map=files, distill=True)
    Path("logits/test.tsv").write_text(Path("raw/test.tsv").read_text())  # held-out data need no teacher
    x(
        "x-prepro",
        "distill_prepro",
        __def__={"teacher_data_dir": "data"},
        data_source="logits",
        data_dir="soft",
        **words,
    )
    student = "static_distill" if loss == "cross_entropy" else "bce_distill"
    more = {"__ignore__": ["negative_classes_in_f1"]} if loss == "bce" else {}
    keys = {**SMALL, **more, "max_epoch": 8, "gold_loss_lambda": 0.0}
    x("x-train", "static_distill", data_dir="soft", save_dir="student", loss=student, **keys)
    assert float(last_row("student")["valid_acc"]) > 0.9
    x("x-pred", "", save_dir="student", predict_file_map={"raw/unlabelled.tsv": "out.tsv"})
    assert len(Path("out.tsv").read_text().splitlines()) == 65


@pytest.mark.slow
def test_a_student_learns_while_its_teacher_is_asked_and_goes_on_exactly_where_it_was_stopped(raw: None) -> None:
    words = {"tokenizer": "space", "max_len": 16, "workers": 1}
    x("x-prepro", "classification_prepro", data_source="raw", data_dir="data", processor="single", **words,
      data_files={"train.tsv": "train", "dev.tsv": "dev"})  # fmt: skip
    x("x-train", "cls_cnn", data_dir="data", save_dir="teacher", **{**SMALL, "max_epoch": 8})
    sizes = {"embedding_dim": 8, "hidden_size": 8, "encoder_layers": 1, "kernel_sizes": [3]}
    keys = {key: value for key, value in SMALL.items() if key not in sizes} | {"max_epoch": 8, "gold_loss_lambda": 0.0}
    keys |= {"data_dir": "data", "teacher_model": "cls_cnn", "teacher_pretrained_model": "teacher/<best>", "seed": 1}
    keys |= {f"teacher_{key}": value for key, value in sizes.items()}
    keys |= {"student_embedding_dim": 8, "student_hidden_size": 8, "save_best_only": False}
    keys["save_full_checkpoint"] = True
    x("x-train", "distill", save_dir="whole", **keys)
    assert float(last_row("whole")["valid_acc"]) > 0.9
    x("x-train", "distill", save_dir="parts", train_steps=24, **keys)
    x("x-train", "distill", save_dir="parts", resume=True, **keys)
    whole, parts = (trusted.load_weights(f"{run}/checkpoint-64.pt") for run in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    Path("teacher").rename("gone")
    x("x-pred", "", save_dir="whole", predict_file_map={"raw/unlabelled.tsv": "out.tsv"})
    assert len(Path("out.tsv").read_text().splitlines()) == 65
