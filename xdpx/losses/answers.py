"""Answers found in the windows of a question, put together. W windows of all questions, N answers of a window.

Plain numpy: knows no model. Scores are sums of the logits of both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Texts = Callable[[Sequence[int]], str]
"""Tokens as text."""


class Answer(NamedTuple):
    """A stretch of text, '' for none, and its score."""

    text: str
    score: float


class QuestionAnswers(NamedTuple):
    """What was found for one question.

    Attributes:
        answers: the best first, no text twice; empty where the context leaves no room for one.
        nothing: score of there being no answer.
    """

    answers: list[Answer]
    nothing: float

    @property
    def doubt(self) -> float:
        """How much more there being no answer scores than the best one."""
        return self.nothing - self.answers[0].score if self.answers else float("inf")

    def text(self, threshold: float | None) -> str:
        """Return the best answer, or '' where the doubt is above the threshold; None never doubts."""
        silent = not self.answers or (threshold is not None and self.doubt > threshold)
        return "" if silent else self.answers[0].text

    def shares(self, threshold: float | None) -> list[tuple[str, float]]:
        """Return the answers, and '' unless the threshold is None, with their softmax, the likeliest first."""
        every = self.answers if threshold is None else [*self.answers, Answer("", self.nothing)]
        every = sorted(every, key=lambda answer: -answer.score)
        weights = np.exp([answer.score - every[0].score for answer in every]) if every else np.zeros(0)
        shares = (weights / weights.sum()).round(6).tolist() if every else []
        return [(answer.text, share) for answer, share in zip(every, shares, strict=True)]


def by_text(sample_W: NDArray[Any], window_W: NDArray[Any]) -> list[NDArray[np.int64]]:
    """Return the windows of each text (or question), in the order of the data.

    Args:
        sample_W: places of the windows in the data, where those of a text are neighbours.
        window_W: number of each among those of its text, from 0.
    """
    order = np.argsort(sample_W, kind="stable")
    begins = np.flatnonzero(window_W[order] == 0)
    return np.split(order, begins[1:]) if len(order) else []


def merged(pred_WNA: NDArray[Any], score_WN: NDArray[Any], nothing_W: NDArray[Any], texts: Texts) -> QuestionAnswers:
    """Put together what was found in the windows of one question.

    The best N answers of all windows are kept, each with its best score. That there is none is as likely as in the
    window where it is least so: the one that may hold the answer.

    Args:
        pred_WNA: tokens, -1 behind them.
        score_WN: of the answers, -inf where there is none.
        nothing_W: scores of there being no answer.
        texts: how tokens are written.

    Source: the published code of Devlin et al., "BERT", NAACL 2019 (SQuAD 1.1 and 2.0).
    """
    most = score_WN.shape[1]
    best: dict[str, float] = {}
    for place in np.argsort(-score_WN, axis=None, kind="stable").tolist():
        window, number = divmod(place, most)
        score = float(score_WN[window, number])
        if len(best) == most or score == -np.inf:
            break
        row = pred_WNA[window, number]
        best.setdefault(texts(row[row >= 0].tolist()), score)
    return QuestionAnswers([Answer(text, score) for text, score in best.items()], float(nothing_W.min()))


def right_answers(row_A: NDArray[Any], texts: Texts) -> list[str]:
    """Read the answers of one question, which -1 stands between and behind; one that may have been cut off is left out.

    The first stays in any case.
    """
    used = row_A[: np.flatnonzero(row_A >= 0).max(initial=-1) + 1]
    pieces = np.split(used, np.flatnonzero(used < 0))
    if len(pieces) > 1 and len(used) == len(row_A):
        pieces.pop()
    found = [texts(piece[piece >= 0].tolist()) for piece in pieces]
    return [text for text in found if text]


def best_threshold(doubts: Sequence[float], spoken: Sequence[float], silent: Sequence[float]) -> tuple[float, float]:
    """Find the threshold of doubt with the best mean score. Returns (that score, the threshold).

    Args:
        doubts: of each question, inf where nothing can be said.
        spoken: what each scores with its answer.
        silent: what each scores with ''.

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
