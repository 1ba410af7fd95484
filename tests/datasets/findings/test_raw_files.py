"""Headers, delimiters and JSON are seen in the first rows of a file; plain text is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xdpx.datasets.findings.raw_files import Head, another_reading, columns, head_of, header, how_to_cut, quotes
from xdpx.loaders import loaders
from xdpx.loaders.base import Loader
from xdpx.loaders.parsers import parsers

SENTENCES = [
    "It was a fine, long evening.", "Nobody came, nobody left.", "We ate soup, bread, and cheese.", "The end.",
    "He said 'no', and went.", "Rain again.", "What a film, what a night!", "Slow, dull.", "I would go again.",
    "Twice the price, half the fun.", "A friend, once.", "Yes.",
]  # fmt: skip


def loader(name: str = "single") -> Loader:
    made: Loader = loaders[name](loaders[name].Parameters(tokenizer="space"))
    return made


def found(path: Path, content: str, *, labelled: bool, labels: Any = (), **keys: Any) -> list[str]:
    path.write_text(content, encoding="utf-8")
    parser = parsers["csv"](parsers["csv"].Parameters(**keys))
    head = head_of(str(path), parser)
    return [each.place for each in header(str(path), head, parser, labelled=labelled, labels=labels)]


@pytest.mark.parametrize("first", ["text\tlabel", "Sentence\tLabel", "#1 String\t#2 String", "question1\tquestion2"])
def test_a_row_of_names_is_a_header(tmp_path: Path, first: str) -> None:
    path = tmp_path / "a.tsv"
    assert found(path, f"{first}\ngood\t1\n", labelled=False) == [f"{path}:1"]
    assert found(path, f"\n{first}\ngood\t1\n", labelled=False) == [f"{path}:2"]
    assert found(path, f"{first}\ngood\t1\n", labelled=False, start_line=1) == []


@pytest.mark.parametrize(
    ("row", "labels", "is_header"),
    [
        ("what they said\tlabel", ["label", "pos", "neg"], True),
        ("what they said\tanswer", ["answer", "0", "1"], True),
        ("0\t1", ["1", "pos", "neg"], True),
        ("what they said\tpos", ["pos", "neg"], False),
        ("text\tpos", ["pos", "neg"], False),
        ("what they said\tlabel", ["label"], False),
        ("text\tpred", ["pos", "neg"], True),
        ("text\tpred", ["pos", "neg", "pred"], False),
        ("what they said\tpred", ["pos", "neg"], False),
        ("text\t3.7", ["1", "2"], False),
    ],
)
def test_a_label_that_is_the_name_of_a_column_makes_a_header(
    tmp_path: Path, row: str, labels: list[str], is_header: bool
) -> None:
    assert bool(found(tmp_path / "a.tsv", f"{row}\ngood\t1\n", labelled=True, labels=labels)) is is_header


@pytest.mark.parametrize(
    ("row", "fields"),
    [("id\ttext", '["text"]'), ("label\ttext", '["text", "label"]'), ("pred\treview", '["review", "pred"]')],
)
def test_names_of_columns_are_shown_in_the_order_of_fields(tmp_path: Path, row: str, fields: str) -> None:
    (tmp_path / "a.tsv").write_text(f"{row}\ngood\t1\n")
    parser = parsers["csv"](parsers["csv"].Parameters())
    head = head_of(str(tmp_path / "a.tsv"), parser)
    (only,) = header(str(tmp_path / "a.tsv"), head, parser, labelled=True, labels=["0", "1"])
    assert f"fields: {fields}." in only.remedy


@pytest.mark.parametrize(
    ("lines", "remedy"),
    [
        (["good,1", "bad,0", "fine,1", "poor,0"], "delimiter: ','"),
        (["text,label", "good,1", '"bad, cold",0', "fine,1", "poor,0"], "fields: [...]"),
        (["7;pos;good", "8;neg;bad", "9;pos;fine", "10;neg;poor", "11;pos;nice"], "delimiter: ';'"),
        (['{"text": "a", "label": 1}', '{"text": "b", "label": 0}'], "parser: jsonl, fields: [...] of: text, label"),
        ([f"a film of {number} minutes {number % 2}" for number in range(20)], "Put a tab in front"),
    ],
)
def test_lines_of_another_format_are_told_how_to_be_read(lines: list[str], remedy: str) -> None:
    how = how_to_cut(lines, loader(), given="\t")
    assert how is not None
    assert remedy in " ".join(how)


@pytest.mark.parametrize("name", ["single", "pair"])
def test_plain_text_is_left_alone(name: str) -> None:
    assert how_to_cut(SENTENCES, loader(name), given="\t") is None
    commands = [
        f"turn {way} the {thing}" for way in ("on", "off", "up") for thing in ("lamp", "heater", "radio", "fan")
    ]
    assert how_to_cut(commands * 3, loader(name), given="\t") is None
    assert how_to_cut(["Well, no.", "Well, yes.", "Oh, no!", "So, what?"], loader(name), given="\t") is None
    assert how_to_cut([f"{line} ." for line in SENTENCES], loader(name), given="\t") is None
    assert (
        how_to_cut(
            ["今天天气很好，我们去公园", "好，走吧", "不去，太远了", "嗯，好", "行，可以"], loader(name), given="\t"
        )
        is None
    )


@pytest.mark.parametrize(
    ("ends", "labels", "wrong"),
    [
        ("film plot", {"pos", "neg"}, False),
        ("film plot", (), True),
        ("Pos neg", {"pos", "neg"}, True),
        ("pos film", {"pos", "neg"}, False),
        ("0 1", {"pos", "neg"}, True),
    ],
)
def test_last_words_are_labels_of_a_model_only_where_it_knows_them(ends: str, labels: Any, wrong: bool) -> None:
    lines = [f"a very good {word}" for word in ends.split()] * 8
    assert (how_to_cut(lines, loader(), given="\t", labels=labels) is not None) is wrong


@pytest.mark.parametrize(
    ("last", "labelled", "labels", "wrong"),
    [
        (["pos", "neg", "pos", "neg"], False, {"pos", "neg"}, True),
        (["a text", "another", "a third", "more", "and more"], True, {"pos", "neg"}, True),
        (["a text", "another", "pos", "more", "and more"], True, {"pos", "neg"}, False),
        (["mixed", "new", "mixed", "new"], True, {"pos", "neg"}, False),
        (["0.31", "2.7", "3.9", "4.44", "1.21"], True, {"0.5", "2.25"}, False),
        (["a", "b"], True, {"pos", "neg"}, False),
    ],
)
def test_a_last_column_of_another_kind_than_the_model_knows_is_seen(
    last: list[str], labelled: bool, labels: set[str], wrong: bool
) -> None:
    head = Head(1, [["a text", each] for each in last])
    assert bool(list(columns("a", head, loader(), labelled=labelled, labels=labels))) is wrong


def test_a_corpus_has_no_labels_to_be_lost(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good,1\nbad,0\nfine,1\npoor,0\n")
    parser = parsers["none"](parsers["none"].Parameters())
    head = head_of(str(tmp_path / "a.txt"), parser)
    assert not list(another_reading("a", head, parser, loader("corpus")))
    assert list(another_reading("a", head, parser, loader("single")))


@pytest.mark.parametrize(
    ("line", "keys", "told"),
    [
        ('"a fine day"\t"good"', {}, True), ('a fine day\t"good"', {}, True), ('"a" fine "day"\tgood', {}, False),
        ('"a fine day"\t"good"', {"quotechar": '"'}, False), ('"a fine day","good"', {"delimiter": ","}, False),
    ],
)  # fmt: skip
def test_quotes_that_wrap_every_cell_and_stay_are_told(
    tmp_path: Path, line: str, keys: dict[str, Any], told: bool
) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"{line}\n" * 5 + ('"another", day\tgood\n' if line[:3] == '"a"' else ""), encoding="utf-8")
    parser = parsers["csv"](parsers["csv"].Parameters(**keys))
    assert [each.code for each in quotes(str(path), head_of(str(path), parser), parser)] == ["quotes"] * told
