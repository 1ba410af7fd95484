"""Lists in cells: labels have bars between them, words blanks, and words with tags are sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.guessing.decision import Wishes
from xdpx.datasets.guessing.lists import LISTED, without_brackets
from xdpx.datasets.guessing.looking import Found, look_at

WORDS = [["day", "number", "x" * index] for index in range(1, 60)]


def look(path: Path, rows: list[dict[str, Any]]) -> Found:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return look_at(str(path), Wishes(), {"dev": 0.1, "test": 0.1})


def test_words_in_a_list_are_a_text_with_blanks(tmp_path: Path) -> None:
    rows = [{"tokens": words, "label": index % 2} for index, words in enumerate(WORDS)]
    assert " ".join(WORDS[-1]) in {row[0] for rows in look(tmp_path / "f.jsonl", rows).rows.values() for row in rows}


def test_words_and_their_tags_are_sentences_and_not_several_labels(tmp_path: Path) -> None:
    rows = [{"ner": ["O", "B-X", "I-X"], "tokens": words} for words in WORDS]
    found = look(tmp_path / "f.jsonl", rows)
    assert (found.columns.task, found.rows["train"][0][1]) == ("tags", "O B-X I-X")
    with pytest.raises(ConfigError, match="has a number for each word in 'ner_tags'"):
        look(tmp_path / "f.jsonl", [{"tokens": words, "ner_tags": [0, 1, 2]} for words in WORDS])


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        (["['a', 'b']", "[]", '["b"]'], [f"a{LISTED}b", "", "b"]),
        (["[1, 2]", "[3]"], [f"1{LISTED}2", "3"]),
        (["['a' 'b']", "['b']"], ["['a' 'b']", "['b']"]),
        (["[sic] a text", "['a']"], ["[sic] a text", "['a']"]),
    ],
)
def test_lists_as_pandas_writes_them_are_lists(cells: list[str], read: list[str]) -> None:
    assert without_brackets([[cell] for cell in cells]) == [[cell] for cell in read]
