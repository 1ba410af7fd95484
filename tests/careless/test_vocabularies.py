"""Encoders and vocabularies that do not belong together, as somebody joins them who looks at their sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xdpx.run import main

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "book"]
TINY = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16,
        "max_position_embeddings": 32}  # fmt: skip
TRAIN: dict[str, Any] = {
    "__parent__": "data/meta", "data_dir": "data", "save_dir": "run", "model": "bert_classification",
    "optimizer": "adam", "loss": "cross_entropy", "lr_scheduler": "constant", "learning_rate": 0.01, "batch_size": 4,
    "max_update": 2, "max_epoch": None, "seed": 1, "eval_interval": -1, "major_metric": "acc",
}  # fmt: skip


def x(command: str, **keys: Any) -> int:
    Path("config.json").write_text(json.dumps(keys))
    return main([command, "config.json"])


def prepro(folder: str = "data", **keys: Any) -> int:
    return x("x-prepro", data_source="raw", data_dir=folder, loader="single", processor="bert_single",
             max_len=8, **{"tokenizer": "bert", "vocab_file": "model/vocab.txt", **keys})  # fmt: skip


def model(folder: str, words: list[str], **config: Any) -> None:
    Path(folder).mkdir()
    Path(f"{folder}/vocab.txt").write_text("".join(f"{word}\n" for word in words))
    if config:
        Path(f"{folder}/tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder in Hugging Face format, and a vocabulary of as many tokens in another order."""
    from transformers import BertConfig, BertModel

    monkeypatch.chdir(tmp_path)
    model("model", WORDS)
    model("other", [*WORDS[:6], "film", "bad", "book"])
    BertModel(BertConfig(vocab_size=len(WORDS), **TINY)).save_pretrained("model")
    Path("raw").mkdir()
    for split in ("train", "dev"):
        Path(f"raw/{split}.txt").write_text("good film\tyes\nbad book\tno\n" * 4)


def test_data_of_another_vocabulary_of_the_same_size_is_not_trained_on(encoder: None, capsys: Any) -> None:
    assert prepro(vocab_file="other/vocab.txt") == 0
    assert x("x-train", **TRAIN, pretrained_model="model") == 2
    assert "line 7 is 'film' in data/vocab.txt, and 'bad' in model/vocab.txt." in capsys.readouterr().err
    assert not Path("run").exists()


def test_nor_is_it_when_one_line_makes_the_data_and_trains(encoder: None, capsys: Any) -> None:
    data = {"data_source": "raw", "data_dir": "data", "loader": "single", "processor": "bert_single", "max_len": 8}
    Path("prepro.json").write_text(json.dumps({**data, "tokenizer": "bert", "vocab_file": "other/vocab.txt"}))
    Path("train.json").write_text(json.dumps({**TRAIN, "pretrained_model": "model"}))
    assert main(["x-prepro", "prepro.json", "x-train", "train.json"]) == 2
    assert "'bad' in model/vocab.txt" in capsys.readouterr().err


def test_data_that_were_made_again_with_another_vocabulary_are_not_scored(encoder: None, capsys: Any) -> None:
    assert prepro() == 0
    assert x("x-train", **TRAIN, pretrained_model="model") == 0
    Path("data").rename("first")
    assert prepro(vocab_file="other/vocab.txt") == 0
    for wanted in ("dev", "data/dev.pt", "raw/dev.txt"):
        capsys.readouterr()
        assert x("x-eval", save_dir="run", valid_subset=wanted) == 2
        assert "line 7 is 'film' in data/vocab.txt, and 'bad' in run/vocab.txt." in capsys.readouterr().err
    assert x("x-pred", save_dir="run", predict_file_map={"raw/dev.txt": "out.tsv"}) == 2
    assert x("x-eval", save_dir="run", valid_subset="dev", extra_config={"data_dir": "first"}) == 0


def test_labels_in_another_order_are_not_scored(encoder: None, capsys: Any) -> None:
    assert prepro() == 0
    assert x("x-train", **TRAIN, pretrained_model="model") == 0
    Path("data").rename("first")
    assert prepro(special_targets=["yes"]) == 0
    assert x("x-eval", save_dir="run", valid_subset="dev") == 2
    assert "line 1 is 'yes' in data/target_map.txt, and 'no' in run/target_map.txt." in capsys.readouterr().err


def test_classes_that_training_never_saw_are_scored_where_they_are_told_by_a_few_rows(encoder: None) -> None:
    assert prepro() == 0
    few = {"loss": "fewshot", "model": "protonet", "sampler": "episode", "n_way": 2, "k_shot": 1, "q_query": 1,
           "proj_hidden_size": 4, "batch_by_len": False, "dev_episodes": 2, "train_episodes": 4}  # fmt: skip
    assert x("x-train", **{**TRAIN, **few}, pretrained_model="model") == 0
    for split in ("train", "dev"):
        Path(f"raw/{split}.txt").write_text("good film\tlong\nbad book\tshort\n" * 4)
    assert prepro("other_classes") == 0
    assert x("x-eval", save_dir="run", valid_subset="dev", extra_config={"data_dir": "other_classes"}) == 0


def test_texts_are_not_lower_cased_for_a_cased_model_without_a_word(encoder: None, capsys: Any) -> None:
    model("cased", [*WORDS, "Good", "Bad"], do_lower_case=False)
    model("uncased", WORDS, do_lower_case=True)
    model("silent", [*WORDS, "Good", "Bad"])
    assert prepro(vocab_file="cased/vocab.txt") == 2
    assert "lower: is true, but the model of cased/vocab.txt keeps the case of its texts" in capsys.readouterr().err
    assert prepro(vocab_file="uncased/vocab.txt", lower=False) == 2
    assert prepro(vocab_file="silent/vocab.txt") == 0
    assert "warning: lower is true, but 33.3% of the tokens of silent/vocab.txt have capital" in capsys.readouterr().err


def test_accents_are_not_removed_for_a_model_that_keeps_them_without_a_word(encoder: None, capsys: Any) -> None:
    model("accented", WORDS, do_lower_case=True, strip_accents=False)
    assert prepro(vocab_file="accented/vocab.txt") == 2
    told = capsys.readouterr().err
    assert "the model of accented/vocab.txt keeps accents (strip_accents). Use tokenizer: auto" in told


def test_a_split_is_not_added_with_other_rules_for_tokens(encoder: None, capsys: Any) -> None:
    train, dev = {"train.txt": "train"}, {"dev.txt": "dev"}
    assert prepro(data_files=train) == 0
    labels = {"target_map_file": "data/target_map.txt"}
    for other in ({"tokenizer": "char_zh"}, {"lower": False}):
        assert prepro(data_files=dev, **labels, **other) == 2
        assert "in the earlier splits in data (train). Set " in capsys.readouterr().err
    assert prepro(data_files=dev, **labels) == 0
    assert prepro(data_files={**train, **dev}, **labels, lower=False) == 0  # no other split stays


def test_marks_of_entities_that_are_split_are_told(encoder: None, capsys: Any) -> None:
    model("marked", [*WORDS, "[", "]", "e", "##1", "[E1]", "[E2]", "[unused1]"])
    Path("raw/train.txt").write_text("[E1] good [E1] film [unused1]\tyes\nbad book\tno\n" * 4)
    assert prepro(vocab_file="marked/vocab.txt") == 0
    assert "holds '[E1]', which texts contain, but it is read as [ e ##1 ]. To" in capsys.readouterr().err
    Path("raw/train.txt").write_text("[MASK] good\tyes\nbad book\tno\n" * 4)
    assert prepro("others", vocab_file="marked/vocab.txt") == 0
    assert "which texts contain" not in capsys.readouterr().err
