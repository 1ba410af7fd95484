"""Merge the answers found in the windows of each question. W windows of all questions, N answers of a window.

Plain numpy: knows no model. Scores are sums of the logits of both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class SpanAnswer(NamedTuple):
    """A span of text, '' for no answer, and its score."""

    text: str
    score: float


class QuestionAnswers(NamedTuple):
    """The candidate answers to one question.

    Attributes:
        answers: the best first, without duplicate texts; empty if the context is too short for one.
        nothing: score of "no answer".
    """

    answers: list[SpanAnswer]
    nothing: float

    @property
    def doubt(self) -> float:
        """The score of "no answer" minus that of the best answer; infinite if there are none."""
        return self.nothing - self.answers[0].score if self.answers else float("inf")

    def text(self, threshold: float | None) -> str:
        """Return the best answer, or '' if the doubt exceeds the threshold; with None always the best answer."""
        silent = not self.answers or (threshold is not None and self.doubt > threshold)
        return "" if silent else self.answers[0].text

    def shares(self, threshold: float | None) -> list[tuple[str, float]]:
        """Return (text, softmax probability) of the answers, and of '' unless the threshold is None, best first."""
        every = self.answers if threshold is None else [*self.answers, SpanAnswer("", self.nothing)]
        every = sorted(every, key=lambda answer: -answer.score)
        weights = np.exp([answer.score - every[0].score for answer in every]) if every else np.zeros(0)
        shares = (weights / weights.sum()).round(6).tolist() if every else []
        return [(answer.text, share) for answer, share in zip(every, shares, strict=True)]


def by_text(sample_W: NDArray[Any], window_W: NDArray[Any]) -> list[NDArray[np.int64]]:
    """Return the indices of the windows of each text (or question), in the order of the data.

    Args:
        sample_W: positions of the windows in the data, where windows of a text are adjacent.
        window_W: index of each window within its text, from 0.
    """
    order = np.argsort(sample_W, kind="stable")
    begins = np.flatnonzero(window_W[order] == 0)
    return np.split(order, begins[1:]) if len(order) else []


def merged(pred_WN: NDArray[Any], score_WN: NDArray[Any], nothing_W: NDArray[Any]) -> QuestionAnswers:
    """Merge the answers found in the windows of one question.

    The best N answers of all windows are kept, each with its best score. The score of "no answer" is the lowest of all
    windows: that of the window most likely to contain the answer.

    Args:
        pred_WN: the texts of the answers.
        score_WN: of the answers, -inf where there is none.
        nothing_W: scores of "no answer".

    Source: the published code of Devlin et al., "BERT", NAACL 2019 (SQuAD 1.1 and 2.0).
    """
    most = score_WN.shape[1]
    best: dict[str, float] = {}
    for place in np.argsort(-score_WN, axis=None, kind="stable").tolist():
        window, number = divmod(place, most)
        score = float(score_WN[window, number])
        if len(best) == most or score == -np.inf:
            break
        best.setdefault(str(pred_WN[window, number]), score)
    return QuestionAnswers([SpanAnswer(text, score) for text, score in best.items()], float(nothing_W.min()))


def best_threshold(doubts: Sequence[float], spoken: Sequence[float], silent: Sequence[float]) -> tuple[float, float]:
    """Find the threshold of doubt with the best mean score. Returns (that score, the threshold).

    Args:
        doubts: of each question, inf if it has no candidate answer.
        spoken: score of each question if its answer is given.
        silent: score of each question if no answer ('') is given.

    Source: Rajpurkar et al., "Know What You Don't Know", ACL 2018, and its published script.
    """
    order = np.argsort(doubts, kind="stable")
    doubt = np.asarray(doubts, np.float64)[order]
    gains = np.where(np.isfinite(doubt), np.asarray(spoken)[order] - np.asarray(silent)[order], 0.0)
    totals = np.sum(silent) + np.concatenate([[0.0], np.cumsum(gains)])  # with the first k questions answered
    finite = doubt[np.isfinite(doubt)]
    edges = np.concatenate([finite[:1] - 1.0, (finite[:-1] + finite[1:]) / 2.0, finite[-1:]])
    apart = np.concatenate([[True], finite[1:] > finite[:-1], [True]]) if len(finite) else np.ones(1, bool)
    edges = edges if len(finite) else np.zeros(1)
    best = int(np.argmax(np.where(apart, totals[: len(edges)], -np.inf)))
    return float(totals[best] / max(len(doubt), 1)), float(edges[best])
