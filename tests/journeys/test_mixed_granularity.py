"""Segmented texts by the configs of examples/families: words of their own, from raw text to predictions."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from xdpx.checkpoints import trusted
from xdpx.run import main

FAMILIES = Path(__file__).parents[2] / "examples/families"
WORDS = {"news": "paper", "sport": "football"}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "paper", "foot", "##ball"]
TINY = {
    "pretrained_model": None, "embedding_dim": 4, "char_hidden_size": 8, "encoder_hidden_size": 8,
    "fusion_hidden_size": 8, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "max_position_embeddings": 32, "batch_size": 8, "max_epoch": 6, "eval_interval": -1,
    "log_interval": 8, "learning_rate": 0.003, "top_lr_ratio": 3,
}  # fmt: skip


def x(command: str, family: str, **keys: Any) -> int:
    parent = {"__parent__": str(FAMILIES / family)} if family else {}
    Path("config.json").write_text(json.dumps({**parent, **keys}))
    return main([command, "config.json"])


@pytest.mark.slow
def test_words_have_a_vocabulary_and_vectors_of_their_own_all_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    dice = random.Random(1)
    Path("raw").mkdir()
    for split in ("train", "dev", "test"):
        rows = [
            (label, " ".join([*dice.choices(["the", "a"], k=3), WORDS[label]]))
            for label in dice.choices([*WORDS], k=40)
        ]
        Path(f"raw/{split}.tsv").write_text("".join(f"{text}\t{label}\n" for label, text in rows))
    Path("raw/test.tsv").write_text("the football unheard\na paper\n")
    Path("pieces.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    Path("vectors.txt").write_text("football 1 0 0 2\nthe 0 1 0 0\n")
    keys = {"vocab_file": "pieces.txt", "pretrained_embeddings": "vectors.txt", "workers": 1, "max_len": 16}
    keys |= {"data_source": "raw", "data_dir": "data", "min_word_count": 2}
    assert x("x-prepro", "classification_mix_prepro", **keys) == 0
    words = Path("data/word_vocab.txt").read_text().split()
    assert words[:2] == ["[PAD]", "[UNK]"]
    assert sorted(words[2:]) == ["a", "football", "paper", "the"]
    vectors = trusted.load_tensors("data/embeddings.pt")
    assert vectors.shape == (6, 4)
    assert vectors[words.index("football")].tolist() == [1.0, 0.0, 0.0, 2.0]
    assert x("x-train", "bert_mix", data_dir="data", save_dir="run", **TINY) == 0
    assert Path("run/word_vocab.txt").read_text().split() == words
    Path("data/word_vocab.txt").unlink()  # what the run kept is enough
    files = {"raw/test.tsv": "out.tsv", "raw/dev.tsv": "dev.tsv"}
    assert x("x-pred", "", save_dir="run", predict_file_map=files) == 0
    assert len(Path("out.tsv").read_text().splitlines()) == 3
    header, *rows = (line.split("\t") for line in Path("dev.tsv").read_text().splitlines())
    assert [row[header.index("pred")] for row in rows] == [row[header.index("target")] for row in rows]
    keys |= {"data_dir": "other", "processor": "bert_single"}
    dropped = ["min_word_count", "max_word_vocab"]
    assert x("x-prepro", "classification_mix_prepro", __ignore__=dropped, **{
        key: value for key, value in keys.items() if key not in dropped
    }) == 2  # fmt: skip
    assert (
        "is true, but the data have no word_vocab.txt. Preprocess with processor: bert_single_mix"
        in capsys.readouterr().err
    )
