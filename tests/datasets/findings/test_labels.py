"""Labels that are as many as rows, written in two ways, or missing where they are to be learned."""

from __future__ import annotations

import numpy as np
import pytest

from xdpx.datasets.findings.labels import (
    imbalance,
    many_labels,
    missing_labels,
    one_label,
    pieces_of_lists,
    points_between_thousands,
    spellings,
    teacher_order,
    written_nothings,
)  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "rows", "severity"),
    [(20, 20, "fault"), (10, 20, "fault"), (8, 20, "warning"), (2, 20, None), (9, 9, None)],
)
def test_labels_as_many_as_rows_are_a_fault(labels: int, rows: int, severity: str | None) -> None:
    counts = {f"text {index}": rows // labels + (index < rows % labels) for index in range(labels)}
    assert [each.severity for each in many_labels(counts)] == ([severity] if severity else [])


def test_numbers_as_labels_are_sent_to_their_type() -> None:
    (found,) = many_labels({f"{index / 7:.3f}": 1 for index in range(50)})
    assert "target_type: number" in found.remedy


@pytest.mark.parametrize(
    ("labels", "numbers", "told"),
    [
        (["Pos", "pos", "neg"], False, "'Pos' is also written 'pos'"),
        (["1", "1.0", "0"], False, "'1', '1.0' are spelt almost alike"),
        (["not good", "not  good"], False, "almost alike"),
        (["1", "\uff11"], False, "almost alike"),
        (["1", "True", "0"], False, "'1', 'True' are spelt almost alike"),
        (["true", "false"], False, ""),
        (["pos", "pos\u200b"], False, "'pos', 'pos\\u200b' are spelt almost alike"),
        (["1", "1.0", "0"], True, ""),
        (["0.5", "-0.5"], True, ""),
        (["pos", "neg", "neutral"], False, ""),
        (["B-LOC", "I-LOC", "O"], False, ""),
        (["1", "10", "-1"], False, ""),
    ],
)
def test_labels_that_are_written_alike_are_told(labels: list[str], numbers: bool, told: str) -> None:
    found = [each.problem for each in spellings(dict.fromkeys(labels, 3), numbers=numbers)]
    assert (told in found[0]) if told else not found


@pytest.mark.parametrize(
    ("label", "other", "told"),
    [
        ("nan", "pos", True), ("NULL", "pos", True), ("none", "pos", False), ("NA", "pos", False),
        ("None", "1", True), ("N/A", "0", True), ("neutral", "1", False), ("?", "-1", True),
    ],
)  # fmt: skip
def test_a_label_that_programs_write_for_a_missing_value_is_told(label: str, other: str, told: bool) -> None:
    assert [each.severity for each in written_nothings({label: 3, other: 9})] == (["warning"] if told else [])


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (["0", "1", "2", "-1"], ["-1"]),  # SNLI as the Hub has it
        (["0.5", "3", "-1"], ["-1"]),
        (["0", "1", "-1"], []),
        (["1", "-1"], []),
        (["-2", "-1", "0", "1", "2"], []),
        (["entailment", "neutral", "-"], ["-"]),  # SNLI as its files have it
        (["good", "bad", "-", "?", "N/A"], ["-", "?", "N/A"]),
        (["!", "?", "."], []),
        (["+", "-"], []),
        (["a", "+", "-"], []),
        (["a", "-"], []),
    ],
)
def test_marks_of_rows_without_a_label_are_told_by_the_other_labels(labels: list[str], told: list[str]) -> None:
    found = list(written_nothings(dict.fromkeys(labels, 9)))
    assert [each.problem.split("'")[1] for each in found] == told


@pytest.mark.parametrize(
    ("labels", "separator", "told"),
    [
        (["a，b", "a", "b"], ",", True),  # a full-width comma, as Chinese keyboards write it
        (["a、b", "a"], ",", True),
        (["a,b", "a", "b"], None, True),
        (["a,b", "a"], None, False),
        (["Ash, Kent", "Bury"], None, False),
        (["a + b", "a", "b"], None, True),
        (["a b", "a", "b"], None, True),
        (["very good", "good"], None, False),
        (["very good", "good"], ",", False),
        (["['a', 'b']", "['b']"], None, True),
    ],
)
def test_several_labels_with_another_separator_are_told(labels: list[str], separator: str | None, told: bool) -> None:
    assert bool(list(pieces_of_lists(dict.fromkeys(labels, 3), separator))) == told


@pytest.mark.parametrize(
    ("labelled", "severity"),
    [({"train": False, "dev": True}, "fault"), ({"train": False}, "warning"), ({"train": True, "test": False}, None)],
)
def test_training_data_without_labels_are_told(labelled: dict[str, bool], severity: str | None) -> None:
    trained = {split: split == "train" for split in labelled}
    found = missing_labels(labelled, dict.fromkeys(labelled, "a text"), trained=trained)
    assert [each.severity for each in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"pos": 70, "neg": 30}, []), ({"pos": 95, "neg": 5}, ["warning"]), ({"pos": 60, "neg": 37, "x": 3}, ["note"]),
        ({"pos": 98, "neg": 2}, ["warning", "note"]), ({"pos": 10, "neg": 1}, []), ({"pos": 100}, []),
    ],
)  # fmt: skip
def test_a_label_of_nearly_all_rows_and_one_of_hardly_any_are_told(counts: dict[str, int], told: list[str]) -> None:
    assert [each.severity for each in imbalance(counts)] == told


def test_one_label_for_all_rows_is_a_fault() -> None:
    assert [each.severity for each in one_label({"pos": 50, "Pos ": 2})] == ["fault"]
    assert not list(one_label({"pos": 50, "neg": 1}))
    assert not list(one_label({"pos": 3}))


def test_logits_of_a_teacher_that_has_its_classes_in_another_order_are_a_fault() -> None:
    names = ["news", "sport", "food"]
    swapped = np.array([[5, 40, 1], [60, 4, 2], [1, 1, 30]])  # largest logit, label
    (found,) = teacher_order("train", swapped, names)
    assert (found.code, found.severity) == ("teacher_order", "fault")
    assert "in the order 'sport', 'news', 'food'." in found.problem
    for fits in (swapped[[1, 0, 2]], np.array([[30, 12, 9], [10, 9, 9], [5, 12, 9]]), np.zeros((3, 3), np.int64)):
        assert list(teacher_order("train", fits, names)) == []


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (["850", "1.250", "12.000"], True),
        (["850", "1.255", "12.001"], False),  # of so few rows with decimals by chance, who knows
        (["1.250", "12.000"], False),  # three decimals everywhere
        (["850", "1.250", "0.500"], False),
        (["850", "1.250", "3.5"], False),
        (["1", "2"], False),
    ],
)
def test_points_between_thousands_are_told(labels: list[str], told: bool) -> None:
    assert [each.code for each in points_between_thousands(dict.fromkeys(labels, 1))] == ["odd_numbers"] * told
