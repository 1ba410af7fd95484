"""Rows with the same text are found in every split, in bounded memory, by the same shares."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from xdpx.datasets.findings import same_texts
from xdpx.datasets.findings.finding import Finding
from xdpx.datasets.findings.same_texts import SameTexts, keys_of
from xdpx.loaders.base import Records

Rows = Sequence[tuple[str, str]]


def look(splits: dict[str, Rows], *, dropped: bool = False, classes: bool = True, block: int = 3) -> list[Finding]:
    same = SameTexts()
    for split, rows in splits.items():
        for start in range(0, len(rows), block):
            texts, labels = zip(*rows[start : start + block], strict=True)
            lines = range(start + 1, start + 1 + len(texts))
            same.add(split, keys_of(Records({"text": list(texts)}, list(labels), lines, [])))
    trained = {split: "train" in split for split in splits}
    return list(same.findings(trained, {split: split for split in splits}, dropped=dropped, classes=classes))


def test_texts_of_training_in_a_test_are_told_with_their_lines() -> None:
    train = [(f"film {index}", "1") for index in range(9)]
    (found,) = look({"test": [("another", "0"), (" Film 3 ", "1")], "train": train})
    assert (found.code, found.place) == ("leakage", "test")
    assert "1 of 2 texts (50.00%) also occur in training, such as test:2 = train:4" in found.problem


def test_without_training_each_split_is_compared_with_those_before() -> None:
    found = look({"fold0": [("a", "1"), ("b", "0")], "fold1": [("b", "0")], "fold2": [("c", "0"), ("a", "1")]})
    assert [(each.code, each.place) for each in found] == [("leakage", "fold1"), ("leakage", "fold2")]


def test_shards_of_training_share_no_secret() -> None:
    assert not look({"train0": [("a", "1"), ("b", "0")], "train1": [("b", "0")]})


def test_rows_that_came_before_are_told_unless_they_are_dropped() -> None:
    rows = [("a", "1"), ("b", "0"), ("a", "1"), ("a", "1"), ("c", "0")]
    (found,) = look({"train": rows})
    assert "2 of 5 rows repeat an earlier row of the split, such as train:3 = train:1" in found.problem
    assert not look({"train": rows}, dropped=True)
    assert not look({"train": [("x", "1")], "test": rows})


def test_a_text_under_two_labels_is_told_also_across_shards() -> None:
    (found,) = look({"train0": [("a", "1"), ("b", "0")], "train1": [("a", "0")]})
    assert (found.code, "1 text has two" in found.problem) == ("contradictions", True)
    assert re.search(r"train\d:1 and train\d:1", found.problem)
    assert not look({"train": [("a", "1"), ("a", "0")]}, classes=False)


def test_labels_that_differ_in_case_do_not_contradict() -> None:
    assert {each.code for each in look({"train": [("a", "Pos"), ("a", "pos")]})} == {"duplicates"}


def test_pairs_are_the_same_when_both_texts_are() -> None:
    def keys(first: str, second: str) -> int:
        return int(keys_of(Records({"text1": [first], "text2": [second]}, None, [1], [])).texts[0])

    assert keys("a", "b") != keys("b", "a")
    assert keys("ab", "c") != keys("a", "bc")


def test_many_rows_are_judged_by_a_part_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_texts, "MOST_ROWS", 2000)
    numbers = np.random.default_rng(0)
    train = [(f"text {index}", "1") for index in range(20000)]
    test = [(f"text {index}", "1") for index in numbers.integers(0, 40000, 4000)]
    same = SameTexts()
    for split, rows in (("train", train), ("test", test)):
        records = Records({"text": [text for text, _ in rows]}, [label for _, label in rows], range(len(rows)), [])
        same.add(split, keys_of(records))
        assert same._rows <= 2000
    found = {each.code: each.problem for each in same.findings(
        {"train": True, "test": False}, {"train": "a", "test": "b"}, dropped=False, classes=True
    )}  # fmt: skip
    share = float(re.search(r"\(([\d.]+)%\)", found["leakage"])[1])  # type: ignore[index]
    assert 42 < share < 58
    assert "one of 16 texts" in found["leakage"]
    assert "duplicates" not in found
