"""Confident learning and its linear model, against closed cases."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from xdpx.datasets.examining.linear import Sparse, fit, shares_of
from xdpx.datasets.examining.near import near_pairs
from xdpx.datasets.examining.noise import suspects_of, weak_slices
from xdpx.datasets.examining.sample import Sample
from xdpx.datasets.examining.words import words_of


def sample(texts: list[str]) -> Sample:
    count = len(texts)
    places = np.arange(count)
    return Sample({"text": texts}, [""] * count, 0 * places, places, ["train"], ["t"], [False], {"train": count})


def test_words_are_cut_at_signs_and_chinese_characters_stand_alone() -> None:
    text = "Don't stop, 2nd café 很好吗"
    words = words_of(["", text, "don STOP"])
    found = [text[start:end] for start, end in zip(words.starts_W[:8], words.ends_W[:8], strict=True)]
    assert found == ["Don", "t", "stop", "2nd", "café", "很", "好", "吗"]
    assert words.hashes_W[0] == words.hashes_W[8]
    assert words.hashes_W[2] == words.hashes_W[9]
    assert len(set(words.hashes_W.tolist())) == 8


def test_the_same_words_have_the_same_hash_wherever_they_stand() -> None:
    many = [f"word{index} and more" for index in range(50_000)]
    there = words_of([*many, "word7 and more"])
    assert there.hashes_W[-3:].tolist() == there.hashes_W[21:24].tolist()


def test_near_rows_are_paired_and_others_are_not() -> None:
    base = "the quick brown fox jumps over the lazy dog near the old stone bridge at noon today"
    texts = [
        base,
        "something else entirely stands in this row of text here",
        base.replace("noon", "dawn"),
        base.replace(" the", ", The"),
    ]
    pairs, alike = near_pairs(sample([*texts, "short one"]))
    assert pairs.tolist() == [[0, 2], [0, 3]]
    assert alike[1] == 1.0
    assert 0.8 <= alike[0] < 1.0


def rows_of(matrix: list[list[float]]) -> Sparse:
    array = np.array(matrix, np.float32)
    owners, features = np.nonzero(array)
    offsets = np.searchsorted(owners, np.arange(len(array) + 1))
    return Sparse(features.astype(np.int32), array[owners, features], offsets, array.shape[1])


def test_the_regression_finds_the_weights_that_scikit_learn_finds() -> None:
    from sklearn.linear_model import LogisticRegression

    from xdpx.datasets.examining.linear import STRENGTH

    random = np.random.default_rng(0)
    matrix = (random.random((300, 8)) * (random.random((300, 8)) < 0.5)).tolist()
    for count in (2, 3):
        classes = np.array([int(np.argmax(row[:count])) for row in matrix])
        ours = shares_of(rows_of(matrix), fit(rows_of(matrix), classes, count))
        theirs = LogisticRegression(C=STRENGTH, max_iter=1000).fit(matrix, classes).predict_proba(matrix)
        assert np.abs(ours - theirs).max() < 0.02


def test_an_empty_row_gets_the_share_of_the_classes() -> None:
    weights = fit(rows_of([[1, 0], [0, 1], [0, 1], [0, 0]]), np.array([0, 1, 1, 1]), 2)
    assert shares_of(rows_of([[0, 0]]), weights).sum() == 1


def test_labels_that_sure_models_contradict_are_suspects_the_surest_first() -> None:
    shares = np.array([[0.9, 0.1]] * 10 + [[0.2, 0.8]] * 10, np.float32)
    given = np.array([0] * 10 + [1] * 10)
    shares[3], shares[14] = [0.01, 0.99], [0.85, 0.15]
    assert suspects_of(shares, given).tolist() == [3, 14]


def test_where_the_model_agrees_no_label_is_suspected() -> None:
    shares = np.array([[0.6, 0.4]] * 10 + [[0.4, 0.6]] * 10, np.float32)
    assert not len(suspects_of(shares, np.array([0] * 10 + [1] * 10)))


def test_a_source_and_one_of_two_labels_that_are_mostly_wrong_are_named() -> None:
    """300 rows whose field says where they come from: those of one forum are wrong in half of the cases."""
    source = ["news", "forum", "mail"] * 100
    given = np.repeat([0, 1], 150)
    right = np.array([each != "forum" or index % 2 == 0 for index, each in enumerate(source)])
    right[given == 0] |= np.arange(150) % 3 > 0
    fields = {"source": source, "text": [f"text {row}" for row in range(300)]}
    rows = Sample(
        fields, ["a"] * 300, np.zeros(300, np.int64), np.arange(300), ["train"], ["train.tsv"], [True], {"train": 300}
    )
    known = SimpleNamespace(has_a_say=True, rows=np.arange(300), given=given, names=["neg", "pos"], right=right)
    told = [finding.problem for finding in weak_slices(rows, known)]  # type: ignore[arg-type]
    assert any("whose source is 'forum'" in each for each in told)
    assert not any("news" in each or "whose text" in each for each in told)
    right[:] = given == 0
    told = [finding.problem for finding in weak_slices(rows, known)]  # type: ignore[arg-type]
    assert any("labelled 'pos'" in each for each in told)
