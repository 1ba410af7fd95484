"""Which column is what: right where the table tells, a question where it does not."""

from __future__ import annotations

from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.guessing.columns import Columns, columns_of
from xdpx.datasets.guessing.decision import Wishes
from xdpx.datasets.guessing.reading import Table, numbered

TEXTS = [f"words {index} of text {index % 7}" for index in range(60)]
OTHERS = [f"other {index * 3} words {index % 11}" for index in range(60)]
LABELS = [("yes", "no")[index % 2] for index in range(60)]
IDS = [f"r{index:04d}" for index in range(60)]


def columns(names: list[str] | None, *cells: list[str], **wishes: Any) -> Columns:
    rows = [list(row) for row in zip(*cells, strict=True)]
    table = Table("f.csv", names or numbered(len(cells)), named=names is not None, rows=rows)
    return columns_of(table, Wishes(**wishes))[0]


def test_text_and_label_are_found_in_any_order_and_beside_an_id() -> None:
    assert columns(None, TEXTS, LABELS) == Columns((0,), 1, "class")
    assert columns(None, LABELS, TEXTS) == Columns((1,), 0, "class")
    assert columns(["key", "body", "y"], IDS, TEXTS, LABELS) == Columns((1,), 2, "class")
    assert columns(["n", "what", "how"], [str(index) for index in range(60)], TEXTS, LABELS).texts == (1,)


def test_a_column_with_one_label_is_refused() -> None:
    for label in ("1", "spam"):
        with pytest.raises(ConfigError, match=rf"label: is '{label}' in every row: there is nothing to distinguish"):
            columns(["text", "label"], TEXTS, [label] * 60)


def test_labels_in_other_case_are_counted_as_one_class() -> None:
    rows = [[text, label] for text, label in zip(TEXTS, ["Pos", "neg", "pos", "neg", "POS"] * 12, strict=True)]
    table = Table("f.csv", ["text", "label"], named=True, rows=rows)
    told = {each.what: each.value for each in columns_of(table, Wishes())[1]}
    assert told["task"] == "class, of 2: POS (36), neg (24)"


def test_two_texts_are_a_pair_by_their_names_or_without_names() -> None:
    for names in (
        ["sentence1", "sentence2", "gold"],
        ["premise", "hypothesis", "label"],
        ["text_a", "text_b", "y"],
        None,
    ):
        assert columns(names, TEXTS, OTHERS, LABELS) == Columns((0, 1), 2, "class")
    assert columns(None, TEXTS, OTHERS, LABELS) == Columns((0, 1), 2, "class")
    with pytest.raises(ConfigError, match="could be one of title, body, or two of a pair. Choose: text=title, or"):
        columns(["title", "body", "label"], TEXTS, OTHERS, LABELS)
    assert columns(["title", "body", "label"], TEXTS, OTHERS, LABELS, text="body").texts == (1,)
    assert columns(["title", "body", "label"], TEXTS, OTHERS, LABELS, text="title,body").texts == (0, 1)


def test_between_two_columns_of_labels_there_is_a_question() -> None:
    kinds = [("fruit", "tablet", "phone")[index % 3] for index in range(60)]
    with pytest.raises(ConfigError, match="Choose: label=cat or label=label"):
        columns(["cat", "label", "review"], kinds, LABELS, TEXTS)
    assert columns(["cat", "label", "review"], kinds, LABELS, TEXTS, label="label", text="review").label == 1
    with pytest.raises(ConfigError, match="no column looks like labels"):
        columns(None, TEXTS, OTHERS)
    with pytest.raises(ConfigError, match="Did you mean 'label'"):
        columns(["cat", "label", "review"], kinds, LABELS, TEXTS, label="lable")


def test_several_labels_in_a_cell_are_seen_by_what_stands_between_them() -> None:
    several = [("sport", "news,sport", "news", "news,money", "money")[index % 5] for index in range(60)]
    assert columns(["text", "labels"], TEXTS, several) == Columns((0,), 1, "several", ",")
    spoken = [("yes, of course", "no, never")[index % 2] for index in range(60)]
    assert columns(["text", "label"], TEXTS, spoken).task == "class"


def test_many_different_numbers_are_to_be_predicted_and_few_whole_ones_are_classes() -> None:
    assert columns(["text", "score"], TEXTS, [f"{index / 10}" for index in range(60)]).task == "number"
    assert columns(["text", "score"], TEXTS, [str(index % 5) for index in range(60)]).task == "class"
    assert columns(["text", "score"], TEXTS, [str(index % 30) for index in range(60)], task="class").task == "class"


def test_a_label_with_as_many_values_as_rows_and_too_few_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match="60 different values in 60 rows"):
        columns(["text", "label"], TEXTS, OTHERS)
    with pytest.raises(ConfigError, match="20 are the minimum"):
        columns(None, TEXTS[:8], LABELS[:8])


def test_chinese_is_cut_into_characters() -> None:
    assert columns(None, [f"这家酒店很好，房间{index}号" for index in range(60)], LABELS).characters
    assert not columns(None, TEXTS, LABELS).characters


def test_numbers_with_a_decimal_comma_are_numbers_and_a_thousand_is_asked_about() -> None:
    halves = [f"{index},5" for index in range(60)]
    found = columns(["text", "score"], TEXTS, halves)
    assert (found.task, found.commas, found.label_of(["", " 3,5 "])) == ("number", True, "3.5")
    assert columns(["text", "y"], TEXTS, ["1,2", "1", "2", "3,1", "3"] * 12).task == "several"
    with pytest.raises(ConfigError, match=r"If these are numbers, write them plainly, such as 1234\.5"):
        columns(["text", "score"], TEXTS, [f"{index},000" for index in range(1, 61)])


@pytest.mark.parametrize("shown", ["{} %", "${}", "({})", "{}°"])
def test_numbers_with_a_sign_are_likely_classes_if_they_are_few_and_asked_about_otherwise(shown: str) -> None:
    with pytest.raises(ConfigError, match="25 different values in 60 rows.*write them plainly"):
        columns(["text", "score"], TEXTS, [shown.format(index % 25) for index in range(60)])
    rows = [[text, shown.format(index % 5)] for index, text in enumerate(TEXTS)]
    found, decisions = columns_of(Table("f.csv", ["text", "rate"], named=True, rows=rows), Wishes())
    assert found.task == "class"
    assert [each.sure for each in decisions if each.what == "task"] == ["likely"]
    codes = [f"C{index % 24}" for index in range(240)]
    assert columns(["text", "label"], [f"{text} {part}" for part in range(4) for text in TEXTS], codes).task == "class"


def test_the_rows_without_a_number_are_named() -> None:
    with pytest.raises(ConfigError, match="holds numbers, except in 2 of 60 rows, such as 'unknown'"):
        columns(["text", "score"], TEXTS, ["unknown", "unknown", *(f"{index}.5" for index in range(58))])


def test_a_column_without_content_is_no_text() -> None:
    assert columns(None, TEXTS, [""] * 60, LABELS).texts == (0,)
