"""Words of other tools: one meaning each, and an answer that names the word used here."""

from __future__ import annotations

import pytest

from xdpx.config import catalogue, checking, synonyms

KEYS_HERE = {item.key for kind in catalogue.kinds() for entry in catalogue.entries(kind) for item in entry.parameters}


def test_no_word_of_another_tool_is_a_key_here_and_each_leads_to_one() -> None:
    assert not synonyms.KEYS.keys() & KEYS_HERE
    assert {name for called in synonyms.KEYS.values() for name in called.names} <= KEYS_HERE


def test_no_value_of_another_tool_is_registered_here_and_each_leads_to_one_that_is() -> None:
    for kind, words in synonyms.VALUES.items():
        if kind in catalogue.kinds():
            names = set(catalogue.names(kind))
            assert not words.keys() & names
            assert set(words.values()) <= names


def draft(**values: object) -> checking.Draft:
    return checking.check(
        "x-train", {"loss": "cross_entropy", "num_classes": 2, **values}, origins={}, meta_keys=frozenset()
    )


@pytest.mark.parametrize(
    ("key", "word", "here"),
    [("optimizer", "adamw", "adam"), ("engine", "jax", "spmd"), ("major_metric", "accuracy", "acc"),
     ("major_metric", "f1_macro", "macro_f1"), ("lr_scheduler", "linear", "linear")],
)  # fmt: skip
def test_a_value_that_means_the_same_becomes_the_word_used_here(key: str, word: str, here: str) -> None:
    assert draft(**{key: word}).values[key] == here


@pytest.mark.parametrize(
    ("word", "here"),
    [("lr", "learning_rate"), ("num_train_epochs", "max_epoch"), ("gradient_accumulation_steps", "update_freq"),
     ("max_seq_length", "max_len"), ("warmup_ratio", "warmup_steps")],
)  # fmt: skip
def test_a_key_of_another_tool_is_refused_with_its_name_here(word: str, here: str) -> None:
    told = [fault for fault in draft(**{word: 1}, max_len=3).faults if fault.key == word]
    assert len(told) == 1
    assert told[0].remedy.startswith(f"It is called '{here}' here.")


def test_a_name_that_a_user_registers_means_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "names", lambda kind: ["adam", "adamw"])
    assert synonyms.with_own_words({"optimizer": "adamw"}) == {"optimizer": "adamw"}
