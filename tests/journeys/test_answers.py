"""Questions about paragraphs, from the JSON of SQuAD to written answers, from the families as they are copied."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from xdpx import load_run
from xdpx.config.faults import ConfigError
from xdpx.run import main
from xdpx.tokenizers.bert import SPECIAL_WORDS

FAMILIES = Path(__file__).parents[2] / "examples/families"
TINY: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 32,
    "max_position_embeddings": 32, "pretrained_model": None, "learning_rate": 0.005, "lr_scheduler": "constant",
    "batch_size": 8, "max_epoch": 20, "eval_interval": -1, "log_interval": 10, "__ignore__": ["warmup_steps"],
}  # fmt: skip
PEOPLE, PLACES = ["Bob", "O'Neil", "Éve"], ["Paris", "Rome", "北京"]
KNOWN = ["bob", "o", "'", "neil", "paris", "北", "京", "who", "where", "?", "lives", "in"]


def paragraph(dice: random.Random) -> dict[str, Any]:
    who, where = dice.choice(PEOPLE), dice.choice(PLACES)
    context = f"{who} lives in {where}"
    asked = [("who", who), ("where", where)]
    questions = [
        {"question": f"{word} ?", "answers": [{"text": text, "answer_start": context.index(text)}]}
        for word, text in asked
    ]
    return {"context": context, "qas": questions}


def x(command: str, family: str, **keys: Any) -> None:
    parent = {"__parent__": str(FAMILIES / family)} if family else {}
    Path("config.json").write_text(json.dumps({**parent, **keys}))
    assert main([command, "config.json"]) == 0


def scored(text: str) -> dict[str, str]:
    """Return the scores that x-eval printed."""
    names, values = (line.split("\t") for line in text.splitlines() if "\t" in line)
    return dict(zip(names[2:], values[2:], strict=True))


@pytest.mark.slow
def test_answers_are_learnt_scored_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    dice = random.Random(1)
    Path("raw").mkdir()
    for split, size in (("train", 48), ("dev", 8)):
        data = [{"paragraphs": [paragraph(dice) for _ in range(size)]}]
        Path(f"raw/{split}.json").write_text(json.dumps({"data": data}))
    Path("vocab.txt").write_text("\n".join([*SPECIAL_WORDS, *KNOWN]) + "\n")
    x(
        "x-prepro",
        "qa_prepro",
        data_source="raw",
        data_dir="data",
        vocab_file="vocab.txt",
        max_len=16,
        doc_stride=4,
        workers=1,
    )
    x("x-train", "bert_qa", data_dir="data", save_dir="run", **TINY)
    capsys.readouterr()
    x("x-eval", "", save_dir="run", valid_subset="dev")
    scores = scored(capsys.readouterr().out)
    x("x-eval", "", save_dir="run", valid_subset="raw/dev.json")
    assert scored(capsys.readouterr().out) == scores
    x("x-pred", "", save_dir="run", predict_file_map={"raw/dev.json": "dev.tsv"})
    rows = [line.split("\t") for line in Path("dev.tsv").read_text().splitlines()[1:]]
    assert sum(found == right for _, _, right, _, _, found in rows) / len(rows) == float(scores["em"]) == 1.0
    asked = {"context": "Éve lives in 北京", "qas": [{"question": "who ?"}, {"question": "where ?"}]}
    long = {**asked, "context": "Éve lives in " * 20 + "北京"}
    Path("new.json").write_text(json.dumps({"data": [{"paragraphs": [long, asked]}]}))
    for keys in ({}, {"concat_origin": False, "skip_bad_lines": True}):  # windows are put together either way
        x("x-pred", "", save_dir="run", predict_file_map={"new.json": "new.tsv"}, extra_config={"n_best": 2}, **keys)
        rows = [line.split("\t") for line in Path("new.tsv").read_text().splitlines()]
        assert len(rows) == 1 + 4
        assert rows[0][-2:] == ["answer", "n_best"]
        assert all(0 < sum(share for _, share in json.loads(row[-1])) <= 1 + 1e-5 for row in rows[1:])
    Path("new.json").write_text(json.dumps({"data": [{"paragraphs": [asked]}]}))
    x("x-pred", "", save_dir="run", predict_file_map={"new.json": "new.tsv"})
    rows = [line.split("\t") for line in Path("new.tsv").read_text().splitlines()]
    assert rows[0] == ["question", "context", "answer"]
    assert [row[-1] for row in rows[1:]] == ["Éve", "北京"]
    x("x-pred", "", save_dir="run", predict_file_map={"new.json": "new.pt"}, binary=True, concat_origin=False)
    assert torch.load("new.pt", weights_only=True)["span"].shape == (2, 1, 2)
    with pytest.raises(ConfigError, match=r"has questions without answers, so it cannot be scored"):
        load_run("run").evaluate("new.json")
