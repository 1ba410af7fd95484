"""Losses over lists, held to closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.losses.ranking import score_of

QUERY = np.array([7, 3, 7, 3, 7, 9])
GRADE = np.array([2, 0, 0, 1, 1, 2])
SCORE = np.array([0.3, -1.0, 0.5, 0.25, 2.0, 0.1])
ALL = np.arange(6)


class Given(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        return scores


def make(name: str, **values: Any) -> Any:
    return losses[name](losses[name].Parameters(**values))


def batch(rows: Any = ALL, scores: Any = SCORE) -> dict[str, Any]:
    arrays = {"id": rows, "query_id": QUERY[rows], "target": GRADE[rows]}
    given = {name: torch.from_numpy(np.asarray(value)) for name, value in arrays.items()}
    return {**given, "net_input": {"scores": torch.from_numpy(np.asarray(scores)[rows])}}


def softmax(values: Any) -> Any:
    return np.exp(values) / np.exp(values).sum()


def scored_lists() -> list[tuple[Any, Any]]:
    return [(GRADE[rows], SCORE[rows]) for rows in ([0, 2, 4], [1, 3], [5])]


def listnet() -> tuple[float, int]:
    return sum(float(-softmax(grade) @ np.log(softmax(score))) for grade, score in scored_lists()), 3


def ranknet() -> tuple[float, int]:
    pairs = [
        np.log1p(np.exp(score[worse] - score[better]))
        for grade, score in scored_lists()
        for better in range(len(grade))
        for worse in range(len(grade))
        if grade[better] > grade[worse]
    ]
    return float(sum(pairs)), len(pairs)


@pytest.mark.parametrize(("name", "by_hand"), [("listnet", listnet), ("ranknet", ranknet)])
def test_the_loss_is_that_of_the_paper_in_training_and_over_a_whole_split(name: str, by_hand: Any) -> None:
    expected, expected_count = by_hand()
    loss_sum, count, _ = make(name)(Given(), batch())
    assert (float(loss_sum), int(count)) == (pytest.approx(expected, rel=1e-5), expected_count)
    found = make(name).metrics({"score": SCORE, "target": GRADE, "query_id": QUERY})
    assert found["loss"] == pytest.approx(expected / expected_count)


@pytest.mark.parametrize("name", ["listnet", "ranknet"])
def test_a_candidate_that_stands_in_a_batch_twice_counts_once(name: str) -> None:
    once, again = make(name)(Given(), batch()), make(name)(Given(), batch(np.array([0, 1, 0, 2, 3, 4, 5, 1])))
    assert float(once[0]) == pytest.approx(float(again[0]), rel=1e-6)
    assert int(once[1]) == int(again[1])


@pytest.mark.parametrize("name", ["listnet", "ranknet"])
def test_training_brings_the_candidates_into_order(name: str) -> None:
    score = nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.SGD([score], lr=0.5)
    for _ in range(60):
        optimizer.zero_grad()
        loss_sum, count, _ = make(name)(Given(), {**batch(), "net_input": {"scores": score}})
        (loss_sum / count).backward()
        optimizer.step()
    found = make(name).metrics({"score": score.detach().numpy(), "target": GRADE, "query_id": QUERY})
    assert found["ndcg"] == found["mrr"] == 1.0
    assert torch.isfinite(score).all()


def test_logits_of_classes_are_scored_from_end_to_end_and_labels_may_be_grades_of_their_own() -> None:
    logits = torch.tensor([[0.0, 5.0, 1.5], [1.0, 0.0, 0.5]])
    given = {"net_input": {"scores": logits}, "target": torch.tensor([1, 0])}
    found = make("ranknet", label_values=[0.5, 3.0]).predictions(Given(), given)
    assert found["score"].tolist() == [1.5, -0.5]
    assert found["target"].tolist() == [3.0, 0.5]
    assert list(make("ranknet").rows({"score": found["score"].numpy()}, None)) == [["1.5"], ["-0.5"]]


def test_one_number_per_row_is_the_score_with_a_column_of_its_own_too() -> None:
    score = torch.tensor([0.5, -1.0])
    assert torch.equal(score_of(score), score)
    assert torch.equal(score_of(score[:, None]), score)


def test_metrics_of_queries_can_be_asked_for_by_name() -> None:
    found = make("listnet", metrics=["hit@1", "ndcg@2"]).scores({"score": SCORE, "target": GRADE, "query_id": QUERY})
    assert found["hit@1"] == 1.0
    assert 0 < found["ndcg@2"] < 1


def test_data_without_queries_are_refused() -> None:
    given = {"net_input": {"scores": torch.zeros(2)}, "target": torch.zeros(2, dtype=torch.long), "id": torch.arange(2)}
    with pytest.raises(ConfigError, match="contain no query ids. Preprocess with loader: rank"):
        make("listnet")(Given(), given)


def test_numbers_in_another_order_than_their_classes_are_refused_as_grades(capsys: Any) -> None:
    with pytest.raises(ConfigError, match=r"Set label_values: \[1.0, 0.0\]"):
        make("listnet").refuse_labels(["1", "0"])
    make("listnet", label_values=[1.0, 0.0]).refuse_labels(["1", "0"])
    make("listnet").refuse_labels(["0", "1"])
    printed = capsys.readouterr()
    assert "counts as" not in printed.out + printed.err
    make("listnet").refuse_labels(["poor", "good"])
    printed = capsys.readouterr()
    assert "'poor' counts as 0, 'good' counts as 1" in printed.out + printed.err


@pytest.mark.parametrize(("name", "most"), [("ranknet", 3), ("cross_entropy", 4)])
def test_grades_that_are_all_relevant_or_negative_are_told(name: str, most: int, capsys: Any) -> None:
    make(name, label_values=[1.0, 5.0]).refuse_grades(["mrr", f"hit@{most}", "acc"], ["1", "5"])
    assert f"hit@{most}, mrr: labels are grades from 1 on" in "".join(capsys.readouterr())
    make(name, label_values=[0.0, -1.0]).refuse_grades([f"ndcg@{most}"], ["0", "-1"])
    assert f"ndcg@{most}: some labels are grades below 0 (down to -1)" in "".join(capsys.readouterr())
    make(name, label_values=[2.0, 0.0]).refuse_grades(["mrr", "ndcg"], ["2", "0"])
    make(name).refuse_grades(["mrr", "ndcg"], ["0", "1"])
    assert "grades" not in "".join(capsys.readouterr())
