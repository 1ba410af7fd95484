"""Tokens of data and of weights, and the case of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xdpx.tokenizers.agreement import case_conflict, of_classifier, of_data, of_weights, word_piece_conflict


def write(folder: Path, *tokens: str, name: str = "vocab.txt") -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{token}\n" for token in tokens))
    return str(folder)


def test_the_first_token_that_differs_is_named_with_both_files(tmp_path: Path) -> None:
    data, model = write(tmp_path / "data", "a", "c", "b"), write(tmp_path / "model", "a", "b", "c")
    fault = of_weights("pretrained_model", f"{model}/model.safetensors", data)
    assert fault is not None
    assert f"line 2 is 'c' in {data}/vocab.txt, and 'b' in {model}/vocab.txt." in fault.problem


@pytest.mark.parametrize("theirs", [["a", "b"], ["a", "[unused1]"], ["a", "b", "c"]])
def test_tokens_that_agree_or_were_free_are_no_fault(tmp_path: Path, theirs: list[str]) -> None:
    assert of_weights("pretrained_model", write(tmp_path / "m", *theirs), write(tmp_path / "data", "a", "b")) is None


@pytest.mark.parametrize("vocab", [{"a": 0, "b": 1}, [["a", -1.0], ["b", -2.0]]])
def test_a_tokenizer_json_numbers_tokens_too(tmp_path: Path, vocab: object) -> None:
    model = tmp_path / "model"
    model.mkdir()
    added = [{"content": "<s>", "id": 3}]
    (model / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": added}))
    same = write(tmp_path / "same", "a", "b", "[unused id 2]", "<s>")
    assert of_weights("pretrained_model", str(model), same) is None
    fault = of_weights("pretrained_model", str(model), write(tmp_path / "other", "b", "a"))
    assert fault is not None
    assert f"line 1 is 'b' in {tmp_path}/other/vocab.txt, and 'a' in {model}/tokenizer.json." in fault.problem


@pytest.mark.parametrize("text", ["", "no JSON", "[1]"])
def test_weights_beside_which_no_tokens_lie_are_believed(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    assert of_weights("pretrained_model", str(tmp_path / "model.pt"), write(tmp_path / "data", "a")) is None


def test_a_classifier_of_the_same_labels_in_another_order_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "Pos", "neg", name="target_map.txt")
    run = write(tmp_path / "run", "neg", "pos", name="target_map.txt")
    fault = of_classifier("pretrained_model", f"{run}/checkpoint-4.pt", data)
    assert fault is not None
    assert f"class 0 is 'neg' there, and 'pos' in {data}/target_map.txt" in fault.problem
    assert run in fault.remedy
    library = tmp_path / "library"
    library.mkdir()
    (library / "config.json").write_text(json.dumps({"id2label": {"0": "neg", "1": "pos"}}))
    assert of_classifier("pretrained_model", str(library), data) is not None


def test_a_classifier_of_other_labels_or_in_the_same_order_is_no_fault(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "pos", "neg", name="target_map.txt")
    for number, labels in enumerate((["Pos", "Neg"], ["a", "b"], ["pos", "neg", "other"])):
        run = write(tmp_path / str(number), *labels, name="target_map.txt")
        assert of_classifier("pretrained_model", run, data) is None
    assert of_classifier("pretrained_model", str(tmp_path), data) is None


def test_labels_of_an_earlier_version_in_lower_case_are_the_same(tmp_path: Path) -> None:
    used = f"{write(tmp_path / 'run', 'pos', 'neg', name='target_map.txt')}/target_map.txt"
    other = f"{write(tmp_path / 'data', 'Pos', 'Neg', name='target_map.txt')}/target_map.txt"
    assert of_data("valid_subset", used, other) is None
    write(tmp_path / "data", "Neg", "Pos", name="target_map.txt")
    fault = of_data("valid_subset", used, other)
    assert fault is not None
    assert "line 1 is 'neg' in" in fault.problem


@pytest.mark.parametrize(
    ("config", "tokens", "lower", "certain"),
    [
        ({"do_lower_case": False}, ["a"], True, True),
        ({"do_lower_case": True}, ["A"], False, True),
        ({"do_lower_case": True}, ["A"], True, None),
        ({}, ["[UNK]", "Paris", "paris"], True, False),
        ({}, ["[UNK]", "paris"], False, False),
        ({}, ["[UNK]", "paris"], True, None),
        ({}, ["[UNK]", "Paris"], False, None),
        ({}, ["[UNK]", "中"], False, None),
    ],
)
def test_the_case_of_texts_is_compared_with_that_of_the_vocabulary(
    tmp_path: Path, config: dict[str, bool], tokens: list[str], lower: bool, certain: bool | None
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = case_conflict(str(tmp_path / "vocab.txt"), tokens, lower=lower)
    assert (found and found[1]) == certain


@pytest.mark.parametrize(
    ("config", "conflict"),
    [
        ({"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}, None),
        ({"strip_accents": True}, None),
        ({"strip_accents": False}, "keeps accents (strip_accents)"),
        ({"tokenize_chinese_chars": False}, "does not split Chinese into characters (tokenize_chinese_chars)"),
        ({"added_tokens_decoder": {"0": {"content": "[UNK]"}}}, None),
        ({"added_tokens_decoder": {"7": {"content": "<e1>"}}}, "finds '<e1>' whole in a text (added_tokens_decoder)"),
    ],
)
def test_the_rules_of_a_model_for_texts_are_compared_with_those_of_bert(
    tmp_path: Path, config: dict[str, Any], conflict: str | None
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert word_piece_conflict(str(tmp_path / "vocab.txt"), lower=True, special=["[UNK]"]) == conflict
