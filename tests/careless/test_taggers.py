"""Named entities in long texts, as somebody tags them who never looks at max_len."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xdpx.run import main

FAMILIES = Path(__file__).parents[2] / "examples/families"
TAGS = {"Paris": "B-LOC", "New": "B-LOC", "York": "I-LOC", "Bob": "B-PER"}
ENCODER: dict[str, Any] = {
    "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16,
    "max_position_embeddings": 32, "pretrained_model": None, "__ignore__": ["warmup_steps"],
}  # fmt: skip
RECURRENT: dict[str, Any] = {"embedding_dim": 8, "hidden_size": 16, "__ignore__": ["warmup_steps"]}


def text(dice: random.Random, parts: int) -> str:
    pieces = [["Paris"], ["New", "York"], ["Bob"], ["sees"], ["the"], ["it"]]
    words = [word for piece in dice.choices(pieces, k=parts) for word in piece]
    return "".join(f"{word}\t{TAGS.get(word, 'O')}\n" for word in words)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.chdir(tmp_path)
    Path("raw").mkdir()
    dice = random.Random(1)
    for split, size in (("train", 24), ("dev", 12)):
        Path(f"raw/{split}.txt").write_text("\n".join(text(dice, dice.choice([3, 40])) for _ in range(size)))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(word.lower() for word in (*TAGS, "sees", "the", "it"))]
    Path("vocab.txt").write_text("\n".join(words) + "\n")

    def do(command: str, family: str, **keys: Any) -> None:
        parent = {"__parent__": str(FAMILIES / family)} if family else {}
        Path("config.json").write_text(json.dumps({**parent, **keys}))
        assert main([command, "config.json"]) == 0

    return do


@pytest.mark.parametrize(
    ("prepro", "model", "keys"),
    [
        ("tagging_prepro", "bert_token", {**ENCODER, "use_crf": True}),
        ("tagging_words_prepro", "lstm_token", RECURRENT),
        ("tagging_words_prepro", "gru_token", {**RECURRENT, "use_crf": False}),
    ],
)
def test_seqeval_on_the_written_tags_gives_the_f1_that_was_logged(
    run: Callable[..., None], prepro: str, model: str, keys: dict[str, Any], capsys: Any
) -> None:
    from seqeval.metrics import f1_score

    vocabulary = {"vocab_file": "vocab.txt"} if model == "bert_token" else {}
    run("x-prepro", prepro, data_source="raw", data_dir="data", max_len=12, workers=1,
        data_files=["train.txt", "dev.txt"], **vocabulary)  # fmt: skip
    assert "texts longer than max_len 12 are read in windows" in Path("data/log.txt").read_text()
    run("x-train", model, data_dir="data", save_dir="run", learning_rate=0.02, lr_scheduler="constant", batch_size=8,
        max_epoch=None, max_update=24, seed=1, eval_interval=-1, **keys)  # fmt: skip
    capsys.readouterr()
    run("x-eval", "", save_dir="run", valid_subset=["dev", "raw/dev.txt"])
    header, *rows = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    logged = [float(row[header.index("f1")]) for row in rows]
    run("x-pred", "", save_dir="run", predict_file_map={"raw/dev.txt": "dev.tsv"})
    written = [line.split("\t") for line in Path("dev.tsv").read_text().splitlines()[1:]]
    gold, found = ([row[column].split() for row in written] for column in (1, 2))
    assert [len(each) for each in gold] == [len(each) for each in found]
    assert logged == pytest.approx([f1_score(gold, found)] * 2, abs=1e-6)
    assert logged[0] > 0.05
