import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from xdpx.metrics import (
    bounded_interval,
    by_length,
    confusion,
    error_quantiles,
    evidence_of,
    judge_classes,
    judge_numbers,
    judge_several,
    judge_tags,
    macro_f1_interval,
    mean_interval,
    precision_recall_f1,
    resampling,
    several_labels,
    share_interval,
)

PROB = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]])


def test_the_worst_row_is_the_one_whose_wrong_class_got_the_largest_probability():
    judged = judge_classes(np.array([0, 0, 0, 1]), PROB.argmax(axis=1), PROB, ["neg", "pos"])
    assert judged.right.tolist() == [True, False, False, False]
    assert judged.worst(2).tolist() == [1, 3]
    assert judged.describe(1) == {
        "true": "neg", "predicted": "pos", "probability": 0.8, "probability_of_true": pytest.approx(0.2),
    }  # fmt: skip


def test_a_probability_that_is_no_number_comes_before_all_others():
    prob = np.array([[0.1, 0.9], [np.nan, np.nan]])
    judged = judge_classes(np.array([0, 1]), np.array([1, 0]), prob, None)
    assert judged.worst(9).tolist() == [1, 0]
    assert judged.describe(0)["predicted"] == "1"


def test_of_several_labels_a_row_is_right_only_with_all_of_them_and_no_other():
    target = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    prob = np.array([[0.9, 0.1, 0.2], [0.1, 0.2, 0.3], [0.7, 0.6, 0.1]])
    judged = judge_several(target, prob > 0.5, prob, ["a", "b", "c"])
    assert judged.right.tolist() == [False, True, False]
    assert judged.worst(5).tolist() == [0, 2]
    assert judged.describe(0)["probabilities"] == {"c": 0.2}
    assert (judged.describe(2)["true"], judged.describe(2)["predicted"]) == (["b"], ["a", "b"])


def test_texts_with_the_most_wrong_entities_come_first():
    targets = [["O", "B-PER"], ["B-LOC", "I-LOC"], ["B-PER", "O"]]
    preds = [["O", "B-PER"], ["B-LOC", "O"], ["O", "O"]]
    judged = judge_tags(targets, preds, np.array([0, 2, 3]))
    assert judged.worst(5).tolist() == [1, 2]
    assert judged.badness.tolist() == [0, 2, 1]
    assert judged.describe(2)["missed"] == [{"kind": "PER", "start": 0, "stop": 1}]
    assert judged.describe(1)["false"] == [{"kind": "LOC", "start": 0, "stop": 1}]


def test_numbers_are_judged_by_the_size_of_their_error():
    judged = judge_numbers(np.array([1.0, 2.0, 3.0]), np.array([1.5, 0.0, 3.0]))
    assert judged.worst(2).tolist() == [1, 0]
    assert judged.describe(1) == {"true": 2.0, "predicted": 0.0, "error": -2.0}
    assert error_quantiles(judged.badness)[-1] == {"share": 1.0, "error": 2.0}


def test_groups_by_length_hold_about_as_many_rows_and_none_of_one_length_is_split():
    lengths = np.array([3] * 40 + list(range(4, 64)))
    pred = np.zeros(100, int)
    pred[70:] = 1
    judged = judge_classes(np.zeros(100, int), pred, np.full((100, 2), 0.5), None)
    groups = by_length(judged, lengths)
    assert [each["rows"] for each in groups] == [40, 20, 20, 20]
    assert [(each["from"], each["to"]) for each in groups][:2] == [(3, 3), (4, 23)]
    assert [each["score"] for each in groups] == [1.0, 1.0, 0.5, 0.0]
    assert groups[2]["interval"] == [*share_interval(0.5, 20)]


def test_scores_of_rows_with_one_label_and_with_several_are_those_of_scikit_learn():
    draw = np.random.default_rng(0)
    target, pred = draw.integers(0, 4, 300), draw.integers(0, 4, 300)
    table = confusion(target, pred, 4)
    assert precision_recall_f1(table, average="macro")[2] == pytest.approx(f1_score(target, pred, average="macro"))
    judged = judge_classes(target, pred, np.full((300, 4), 0.25), None)
    assert judged.right.mean() == accuracy_score(target, pred)
    wanted, found = draw.integers(0, 2, (300, 4)), draw.integers(0, 2, (300, 4))
    assert judge_several(wanted, found, found, None).right.mean() == accuracy_score(wanted, found)
    assert several_labels(wanted, found, average="macro")[2] == pytest.approx(f1_score(wanted, found, average="macro"))


def test_the_bootstrap_of_macro_f1_is_that_of_rows_and_the_same_every_time():
    draw = np.random.default_rng(1)
    target = draw.integers(0, 3, 200)
    pred = np.where(draw.random(200) < 0.7, target, draw.integers(0, 3, 200))
    low, high = macro_f1_interval(confusion(target, pred, 3))
    rows = [draw.integers(0, 200, 200) for _ in range(300)]
    scores = [precision_recall_f1(confusion(target[row], pred[row], 3), average="macro")[2] for row in rows]
    assert (low, high) == pytest.approx(np.quantile(scores, [0.025, 0.975]).tolist(), abs=0.02)
    assert macro_f1_interval(confusion(target, pred, 3)) == (low, high)


@pytest.mark.parametrize("negative_classes", [(), (1,)])
def test_the_interval_of_macro_f1_is_that_of_tables_scored_one_by_one(
    negative_classes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
):
    """Some classes are missing in many of the drawn tables: those must not count there as classes with F1 of 0."""
    monkeypatch.setattr(resampling, "MOST_COUNTS", 1000)  # draws are computed in several pieces
    table = np.array([[9, 2, 0, 0], [3, 7, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1]])
    cells = np.flatnonzero(table)
    draw, scores = np.random.default_rng(0), []
    for _ in range(1000):
        drawn = np.zeros(table.size, np.int64)
        drawn[cells] = draw.multinomial(table.sum(), table.ravel()[cells] / table.sum())
        drawn = drawn.reshape(table.shape)
        scores.append(precision_recall_f1(drawn, average="macro", negative_classes=negative_classes)[2])
    value = precision_recall_f1(table, average="macro", negative_classes=negative_classes)[2]
    rows = table.sum(axis=1)
    evidence = evidence_of(np.repeat(np.arange(4), rows))
    wanted = bounded_interval(value, np.array(scores), evidence)
    assert macro_f1_interval(table, negative_classes=negative_classes) == pytest.approx(wanted, rel=1e-12)


def test_the_interval_of_a_mean_is_that_of_students_t():
    low, high = mean_interval(np.array([1.0, 2.0, 3.0]))
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5))
    assert np.isnan(mean_interval(np.array([1.0]))).all()
