"""Learning to rank: put the candidates of a query in order. B rows of a batch, each a candidate of some query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config.faults import refusal
from xdpx.losses.base import Batch, Gathered, output_of
from xdpx.losses.graded import Graded
from xdpx.metrics import discounted_gain, reciprocal_rank
from xdpx.metrics.judging import NUMBER_COLUMNS
from xdpx.metrics.named import OF_QUERIES

Summed = tuple[Tensor, Tensor]
"""Loss sum, and the count to divide it by."""


class RankingLoss(Graded):
    """Base of ranking losses: only the order of the scores within each query matters.

    For a model with one number per pair (bert_regression, dssm with prediction: cosine) that is the score; for one with
    logits of classes, the logit of the last class minus that of the first.
    """

    learns_labels: ClassVar[bool] = True

    class Parameters(Graded.Parameters):
        """Keys of ranking losses."""

    parameters: Parameters

    metric_names = {**dict.fromkeys(("loss", "mrr", "ndcg")), **OF_QUERIES}
    header: ClassVar[tuple[str, ...]] = NUMBER_COLUMNS
    compares_rows = True
    spans_processes = True

    def objective(self, score: Tensor, grade: Tensor, rival: Tensor) -> Summed:
        """Return the loss sum and its count. To be overridden.

        Args:
            score: of the model, (B,).
            grade: relevance of each candidate, (B,).
            rival: whether two rows are candidates of the same query, (B, B), also true on the diagonal; false in the
                rows and columns of duplicates of a candidate.
        """
        raise NotImplementedError

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the loss sum over the queries of the batch, its count, and no facts."""
        score = score_of(output_of(model, batch))
        return *self.objective(score, self.grades(batch["target"], score), rivals(_queries_of(batch), batch["id"])), {}

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return score (B,), query_id (B,), and for labelled batches target (B,), the grade."""
        found = {"score": score_of(output_of(model, batch))}
        if "query_id" in batch:
            found["query_id"] = batch["query_id"]
        return found | ({"target": self.grades(batch["target"], found["score"])} if "target" in batch else {})

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss over all candidates of each query, mrr and ndcg."""
        score, grade = (np.asarray(gathered[name]) for name in ("score", "target"))
        query = np.asarray(_queries_of(gathered))
        return {
            "loss": self.mean_loss(self._summed(query, grade, score)),
            "mrr": reciprocal_rank(query, grade, score),
            "ndcg": discounted_gain(query, grade, score),
        }

    def refuse_grades(self, names: Iterable[str], labels: Sequence[str]) -> None:
        """Warn of grades with which metrics of queries mean little, including those that are always computed."""
        super().refuse_grades([*names, "mrr", "ndcg"], labels)

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None) -> Iterator[list[str]]:
        """Return the score of each row, as text."""
        del labels
        return ([f"{score:.6g}"] for score in np.asarray(predictions["score"]).tolist())

    def _summed(self, query: NDArray[Any], grade: NDArray[Any], score: NDArray[Any]) -> dict[str, float]:
        order = np.argsort(query, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(query[order])) + 1)
        sums = np.zeros(2)
        for rows in parts:
            score_B, grade_B = (torch.from_numpy(np.asarray(each[rows], np.float64)) for each in (score, grade))
            everyone = torch.ones(len(rows), len(rows), dtype=torch.bool)
            sums += [float(each) for each in self.objective(score_B, grade_B, everyone)]
        return {"loss_sum": sums[0], "count": sums[1]}


class ListNet(RankingLoss):
    """For each query, the cross-entropy of the predicted distribution over which candidate is the best.

    The probability of being first is a softmax over the grades, and over the scores. The unit is nats per query.

    Source: Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007, section 4.3,
    equation 4, with top one probabilities (theorem 6).
    """

    class Parameters(RankingLoss.Parameters):
        """Keys of `listnet`."""

    def objective(self, score: Tensor, grade: Tensor, rival: Tensor) -> Summed:
        """Return the sum over queries, and their number."""
        first = rival.any(dim=1) & ~rival.tril(-1).any(dim=1)  # the first row of each query speaks for all
        wanted = _row_of_each(grade, rival).softmax(dim=1)
        believed = _row_of_each(score, rival).log_softmax(dim=1)
        surprise = -(wanted * believed).masked_fill(~rival, 0.0).sum(dim=1)
        return surprise.masked_fill(~first, 0.0).sum(), first.sum()


class RankNet(RankingLoss):
    """For each pair of candidates of a query with different grades, -log P(the better one is ranked higher).

    The unit is nats per pair; lists without such a pair count for nothing.

    Source: Burges et al., "Learning to Rank using Gradient Descent", ICML 2005, section 3, equation 3.
    """

    class Parameters(RankingLoss.Parameters):
        """Keys of `ranknet`."""

    def objective(self, score: Tensor, grade: Tensor, rival: Tensor) -> Summed:
        """Return the sum over pairs, and their number."""
        better = (grade[:, None] > grade) & rival
        surprise = functional.softplus(score - score[:, None])  # -log sigmoid(s_i - s_j)
        return surprise.masked_fill(~better, 0.0).sum(), better.sum()


def score_of(output: Tensor) -> Tensor:
    """Return the score of each row, (B,): the output (B,) or (B, 1), or of logits (B, C) the last minus the first."""
    if output.dim() == 1 or output.shape[1] == 1:
        return output.flatten()
    return output[:, -1] - output[:, 0]


def rivals(query: Tensor, ids: Tensor) -> Tensor:
    """Return which rows of a batch are candidates of the same query, (B, B); only the first of duplicates is."""
    again = (ids[:, None] == ids).tril(-1).any(dim=1)
    return (query[:, None] == query) & ~again & ~again[:, None]


def _row_of_each(values: Tensor, rival: Tensor) -> Tensor:
    """Return (B, B): in row i the values of the rivals of i. A row without rivals is never read, and stays finite."""
    lowest = torch.finfo(values.dtype).min
    return values.expand(len(values), -1).masked_fill(~rival, lowest)


def _queries_of(found: Mapping[str, Any]) -> Any:
    if "query_id" not in found:
        problem = "ranks the candidates of queries, but the data contain no query ids."
        raise refusal("loss", problem, "Preprocess with loader: rank.")
    return found["query_id"]
