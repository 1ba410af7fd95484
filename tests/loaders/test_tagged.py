"""Words and their tags, from files to samples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from xdpx.datasets.store import Store
from xdpx.loaders import loaders
from xdpx.loaders.parsers import parsers
from xdpx.loaders.parsers.base import Rows
from xdpx.run import main


def parsed(folder: Path, text: str, **keys: object) -> Rows:
    (folder / "a.txt").write_text(text, encoding="utf-8")
    parser = parsers["conll"](parsers["conll"].Parameters(**keys))
    return parser.parse(next(iter(parser.blocks(str(folder / "a.txt")))))


def test_a_sentence_becomes_its_words_and_its_tags(tmp_path: Path) -> None:
    rows = parsed(tmp_path, "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\nPeter NNP B-PER")
    assert rows.rows == [["EU rejects", "B-ORG O"], ["Peter", "B-PER"]]
    assert list(rows.lines) == [3, 7]


def test_a_word_of_white_space_keeps_its_tag(tmp_path: Path) -> None:
    assert parsed(tmp_path, "\u3000\tO\n北\tB-LOC\n", delimiter="\t").rows == [["\u2423 北", "O B-LOC"]]


def test_a_tab_may_be_written_as_in_every_config(tmp_path: Path) -> None:
    assert parsed(tmp_path, "New York\tB-LOC\n", delimiter=r"\t").rows == [["NewYork", "B-LOC"]]


def test_a_file_without_tags_is_unlabelled(tmp_path: Path) -> None:
    rows = parsed(tmp_path, "a\nb\n\nc\n").rows
    assert rows == [["a b"], ["c"]]
    loader = loaders["tagged"](loaders["tagged"].Parameters(tokenizer="space"))
    assert loader.is_labelled(rows[0]) is False


def test_a_line_of_another_width_makes_its_sentence_bad(tmp_path: Path) -> None:
    rows = parsed(tmp_path, "a O\nb\n\nc O\n")
    assert rows.rows == [["c", "O"]]
    assert rows.bad[0] == (1, "has 2 columns in its first line, 1 in line 2")


def test_a_word_with_an_empty_tag_makes_its_sentence_bad(tmp_path: Path) -> None:
    rows = parsed(tmp_path, "a\tO\nb\t \n\nc\tO\n", delimiter="\t")
    assert (rows.rows, rows.bad) == ([["c", "O"]], [(1, "has an empty tag in line 2")])
    assert "Write O" in parsers["conll"](parsers["conll"].Parameters()).remedy(rows.bad[0].problem)


def test_words_without_a_tag_are_bad() -> None:
    loader = loaders["tagged"](loaders["tagged"].Parameters(tokenizer="space"))
    found = loader.records(Rows([["a b", "O"], ["c", "B-X"]], [1, 2], []), labelled=True)
    assert (found.fields["text"], found.targets) == (["c"], ["B-X"])
    assert found.bad == [(1, "has 2 words, but 1 tags")]


def test_every_word_keeps_its_tag_whatever_the_tokenizer_makes_of_it(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/train.txt").write_text("ab B-X\n\u200b I-X\nb O\n\n\u200b O\n", encoding="utf-8")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##b\nb\n")
    config = {
        "data_source": str(tmp_path / "raw"), "data_dir": str(tmp_path / "data"), "max_len": 9, "tokenizer": "bert",
        "vocab_file": str(tmp_path / "vocab.txt"), "loader": "tagged", "processor": "bert_token",
    }  # fmt: skip
    (tmp_path / "prepro.json").write_text(json.dumps(config))
    assert main(["x-prepro", str(tmp_path / "prepro.json")]) == 0
    samples = Store.open(str(tmp_path / "data/train.pt")).take(np.arange(2))
    assert samples.ragged("input_ids").row(0).tolist() == [2, 4, 5, 1, 6, 3]
    assert samples.ragged("word_starts").row(0).tolist() == [1, 3, 4]
    assert samples.ragged("target").lengths.tolist() == [3, 1]
    meta = json.loads((tmp_path / "data/meta.hjson").read_text())
    assert sorted(meta["tags"]) == ["B-X", "I-X", "O"]


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "tag_column is 3" in parsed(tmp_path, "a O\n", tag_column=3).bad[0].problem


def test_bytes_that_are_no_text_make_their_sentence_bad(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"\xff O\n\nc O\n")
    parser = parsers["conll"](parsers["conll"].Parameters())
    rows = parser.parse(next(iter(parser.blocks(str(tmp_path / "b.txt")))))
    assert rows.rows == [["c", "O"]]
    assert "not UTF-8" in rows.bad[0].problem
