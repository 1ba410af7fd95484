"""Ranking metrics: how well scores put the relevant rows first, over all rows or within each query.

Letters: N rows, Q queries. Among equal scores within a query, relevant rows rank last, so that a model which
scores everything alike gains nothing from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def area_under_curve(target_N: NDArray[Any], score_N: NDArray[Any]) -> float:
    """Return the probability that a positive row (target 1) scores above a negative one, ties counting half.

    Returns:
        A value in [0, 1]; nan when one of the two classes is absent or a score is nan.

    Source: Mann and Whitney (1947): the area is the rank sum of the positives, shifted and scaled.
    """
    positive = target_N == 1
    num_positive = int(positive.sum())
    num_negative = len(target_N) - num_positive
    if not num_positive or not num_negative or np.isnan(score_N).any():
        return float("nan")
    rank_sum = float(middle_ranks(score_N)[positive].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2.0) / (num_positive * num_negative)


def average_precision(target_N: NDArray[Any], score_N: NDArray[Any]) -> float:
    """Return the mean precision at the recall levels of the positive rows (target 1), equal scores taken together.

    Returns:
        A value in [0, 1]; nan when no row is positive or a score is nan.
    """
    positive = target_N == 1
    if not positive.any() or np.isnan(score_N).any():
        return float("nan")
    hits, above = counts_above(positive, score_N)
    steps = np.diff(hits, prepend=0) / hits[-1]
    return float(np.sum(steps * hits / above))


def counts_above(positive_N: NDArray[np.bool_], score_N: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Count, for each distinct score from the highest down, the positive rows and all rows that reach it."""
    order = np.argsort(-score_N, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score_N[order])), len(order) - 1)
    return np.cumsum(positive_N[order])[ends], ends + 1


def middle_ranks(value_N: NDArray[Any]) -> NDArray[np.float64]:
    """Return the 1-based rank of each value, the mean of the ranks where values are equal; none may be nan."""
    order = value_N.argsort()
    sorted_N = value_N[order]
    ends = np.concatenate([(sorted_N[1:] != sorted_N[:-1]).nonzero()[0] + 1, [len(value_N)]])
    count = ends.copy()
    count[1:] -= ends[:-1]
    ranks = np.empty(len(value_N))
    ranks[order] = (ends - (count - 1) / 2.0).repeat(count)
    return ranks


def best_row_per_query(query_N: NDArray[Any], gain_N: NDArray[Any], score_N: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index of the highest scoring row of each query, in the order of the queries' names or numbers."""
    order, _, rank = _ranked(query_N, gain_N, score_N)
    best: NDArray[np.int64] = order[rank == 1]
    return best


def reciprocal_rank(query_N: NDArray[Any], gain_N: NDArray[Any], score_N: NDArray[Any]) -> float:
    """Return 1 / (rank of the first relevant row), mean over the queries that have one; nan when none has.

    Args:
        query_N: which query each row belongs to.
        gain_N: how relevant each row is; above 0 is relevant.
        score_N: what the model says.
    """
    ranks = _first_ranks(query_N, gain_N, score_N)
    return float(np.mean(1.0 / ranks)) if len(ranks) else float("nan")


def hit_rate(query_N: NDArray[Any], gain_N: NDArray[Any], score_N: NDArray[Any], most: int) -> float:
    """Return the share of queries with a relevant row among the first `most`, of those with one at all; else nan."""
    ranks = _first_ranks(query_N, gain_N, score_N)
    return float(np.mean(ranks <= most)) if len(ranks) else float("nan")


def discounted_gain(
    query_N: NDArray[Any], gain_N: NDArray[Any], score_N: NDArray[Any], most: int | None = None
) -> float:
    """Return the normalised discounted cumulative gain of the first `most` rows, mean over queries with a relevant row.

    Returns:
        A value in [0, 1]; nan when no row is relevant.

    Source: Jarvelin and Kekalainen, "Cumulated gain-based evaluation of IR techniques", 2002, with gains as they are
    (not powers of 2) and the discount log2(1 + rank).
    """
    found, index = _gain_per_query(query_N, gain_N, score_N, most)
    ideal, _ = _gain_per_query(query_N, gain_N, gain_N.astype(np.float64), most)
    kept = ideal > 0
    return float(np.mean(found[kept] / ideal[kept])) if len(index) and kept.any() else float("nan")


def _gain_per_query(
    query_N: NDArray[Any], gain_N: NDArray[Any], score_N: NDArray[Any], most: int | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    order, index, rank = _ranked(query_N, gain_N, score_N)
    share = gain_N[order] / np.log2(1.0 + rank)
    if most is not None:
        share = np.where(rank <= most, share, 0.0)
    return np.bincount(index, weights=share).astype(np.float64), index


def _first_ranks(query_N: NDArray[Any], gain_N: NDArray[Any], score_N: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rank of the first relevant row of each query that has one."""
    order, index, rank = _ranked(query_N, gain_N, score_N)
    relevant = gain_N[order] > 0
    _, first = np.unique(index[relevant], return_index=True)
    return rank[relevant][first]


def _ranked(
    query_N: NDArray[Any], gain_N: NDArray[Any], score_N: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Sort rows by query, then from the best down. Returns (order, query number and 1-based rank in that order)."""
    order = np.lexsort((gain_N, -score_N, query_N))
    _, first, index = np.unique(query_N[order], return_index=True, return_inverse=True)
    return order, index, np.arange(len(order)) - first[index] + 1
