from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.tasks.scoring import _scores, evaluate, gather, tell_of_classes


def test_metrics_do_not_depend_on_how_rows_are_cut_into_batches(engine: Any, loss: Any) -> None:
    values = np.arange(12.0)
    state = engine.start(3)
    scores = [
        evaluate(engine, state, [{"value": part} for part in np.array_split(values, cuts)], loss) for cuts in (1, 5)
    ]
    assert scores[0] == scores[1]
    assert scores[0]["rows"] == 12


def test_rows_are_joined_in_order_and_single_numbers_are_added() -> None:
    gathered = gather([{"row": np.array([1, 2]), "sum": 1.5}, {"row": np.array([3]), "sum": np.array(2.0)}])
    assert gathered["row"].tolist() == [1, 2, 3]
    assert gathered["sum"] == 3.5


def test_an_empty_split_is_an_error(engine: Any, loss: Any) -> None:
    with pytest.raises(ValueError, match="empty"):
        evaluate(engine, engine.start(0), [], loss)


@pytest.mark.parametrize("odd", [None, "high", [0.5], np.ones(2)])
def test_a_metric_that_is_not_a_number_is_the_fault_of_the_loss(engine: Any, loss: Any, odd: Any) -> None:
    loss.scores = lambda gathered: {"mine": odd}
    with pytest.raises(ConfigError, match="loss: gives the metric 'mine' as .*, not a number"):
        evaluate(engine, engine.start(0), [{"value": np.ones(1)}], loss)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([{"x": np.ones(2)}, {}], "for 1 of 2 batches as rows"),
        ([{}, {"x": np.ones(2)}], "for 1 of 2 batches as rows"),
        ([{"x": np.ones(2)}, {"x": 1.0}], "for 1 of 2 batches as rows"),
        ([{"x": [1.0, 2.0]}, {"x": [3.0]}], "as list"),
        ([{"x": "high"}], "as str"),
        ([{"x": np.ones((2, 3))}, {"x": np.ones((2, 4))}], r"in shapes that do not fit \("),
    ],
)
def test_predictions_that_cannot_be_joined_are_the_fault_of_the_loss(batches: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=f"loss: gives 'x' in its predictions {words}"):
        gather(batches)


@pytest.mark.parametrize(("average", "told"), [("binary", True), ("macro", False)])
def test_which_label_f1_of_one_class_is_about_is_said(
    capsys: pytest.CaptureFixture[str], average: str, told: bool
) -> None:
    kind = losses["cross_entropy"]
    known = kind(kind.Parameters(f1_average=average, num_classes=2))
    found = {"prob": np.eye(2)[[0, 1, 1]], "pred": np.array([0, 1, 1]), "target": np.array([0, 1, 0])}
    scores = _scores({**found, "loss_sum": 1.0, "count": 3.0}, known, ["1", "0"])
    printed = capsys.readouterr()
    assert ("f1: about the label '0', which is class 1" in printed.out + printed.err) == told
    assert scores.metrics["acc"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (["1", "0"], "warning: f1_1: about the label '0', which is class 1 ('1' is class 0; "),
        (["-1", "1", "0"], "| f1_1: about the label '1', which is class 1 ("),
        (["a", "b", "c"], "| f1_1: about the label 'b', which is class 1 ("),
    ],
)
def test_which_label_a_metric_of_a_numbered_class_is_about_is_said(
    capsys: pytest.CaptureFixture[str], labels: list[str], told: str
) -> None:
    kind = losses["cross_entropy"]
    known = kind(kind.Parameters(num_classes=len(labels)))
    tell_of_classes(["f1_1", "mcc", "f1_9"], known, labels)
    printed = capsys.readouterr()
    assert told in printed.out + printed.err
    assert "mcc" not in printed.out + printed.err


def test_the_words_of_a_prompt_are_told_which_labels_they_stand_for(capsys: pytest.CaptureFixture[str]) -> None:
    kind = losses["bert_prompt_loss"]
    tell_of_classes([], kind(kind.Parameters(num_classes=2)), ["1", "0"])
    assert "warning: labels_ext: by the numbers of the classes: 0 is '1', 1 is '0'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "given", "told"),
    [
        (
            ["1", "0"],
            {"class_weights": [1.0, 5.0]},
            "warning: class_weights: by the numbers of the classes: 0 is '1', 1",
        ),
        (
            ["pos", "neg"],
            {"negative_classes_in_f1": [0]},
            "| negative_classes_in_f1: by the numbers of the classes: 0 is",
        ),
        (["1", "0"], {}, ""),
        ([], {"class_weights": [1.0, 5.0]}, ""),
    ],
)
def test_keys_that_go_by_the_numbers_of_classes_are_told_which_those_are(
    capsys: pytest.CaptureFixture[str], labels: list[str], given: dict[str, Any], told: str
) -> None:
    kind = losses["cross_entropy"]
    tell_of_classes([], kind(kind.Parameters(num_classes=2, **given)), labels)
    printed = capsys.readouterr()
    assert told in printed.out + printed.err
    assert bool(told) == bool(printed.out + printed.err)
