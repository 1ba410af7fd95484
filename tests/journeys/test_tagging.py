"""Named entities from a CoNLL file to a file of tags, from the families as they are copied."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from xdpx.run import main

FAMILIES = Path(__file__).parents[2] / "examples/families"
TINY: dict[str, Any] = {
    "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16,
    "max_position_embeddings": 32, "pretrained_model": None, "learning_rate": 0.01, "lr_scheduler": "constant",
    "batch_size": 8, "max_epoch": 12, "eval_interval": -1, "log_interval": 10, "__ignore__": ["warmup_steps"],
}  # fmt: skip
TAGS = {"paris": "B-LOC", "new": "B-LOC", "york": "I-LOC", "bob": "B-PER"}


def sentence(dice: random.Random) -> list[str]:
    parts = [["paris"], ["new", "york"], ["bob"], ["sees"], ["the"]]
    return [word for part in dice.choices(parts, k=4) for word in part]


def x(command: str, family: str, **keys: Any) -> None:
    parent = {"__parent__": str(FAMILIES / family)} if family else {}
    Path("config.json").write_text(json.dumps({**parent, **keys}))
    assert main([command, "config.json"]) == 0


@pytest.mark.slow
def test_entities_are_learnt_scored_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    dice = random.Random(1)
    Path("raw").mkdir()
    for split, size in (("train", 96), ("dev", 16)):
        sentences = [sentence(dice) for _ in range(size)]
        text = "\n".join("".join(f"{word}\t{TAGS.get(word, 'O')}\n" for word in row) for row in sentences)
        Path(f"raw/{split}.txt").write_text(text)
    Path("vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TAGS, "sees", "the"]) + "\n")
    x("x-prepro", "tagging_prepro", data_source="raw", data_dir="data", vocab_file="vocab.txt", max_len=16, workers=1,
      data_files=["train.txt", "dev.txt"])  # fmt: skip
    x("x-train", "bert_token", data_dir="data", save_dir="run", use_crf=True, **TINY)
    capsys.readouterr()
    x("x-eval", "", save_dir="run", valid_subset="dev")
    assert "f1" in capsys.readouterr().out
    Path("new.txt").write_text("bob\nsees\nnew\nyork\n\nparis\n")
    x("x-pred", "", save_dir="run", predict_file_map={"raw/dev.txt": "dev.tsv", "new.txt": "new.tsv"})
    assert Path("new.tsv").read_text().splitlines() == [
        "text\ttags", "bob sees new york\tB-PER O B-LOC I-LOC", "paris\tB-LOC",
    ]  # fmt: skip
    rows = [line.split("\t") for line in Path("dev.tsv").read_text().splitlines()[1:]]
    assert sum(tags == pred for _, tags, pred in rows) >= 14
