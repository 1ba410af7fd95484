"""Scores of subsets of rows, and the intervals that they give."""

from __future__ import annotations

import numpy as np

from xdpx.inference.row_scores import intervals, row_scores
from xdpx.losses import losses


def test_a_split_of_one_row_has_scores_and_no_intervals() -> None:
    kind = losses["cross_entropy"]
    loss = kind(kind.Parameters())
    one = {"prob": np.array([[0.8, 0.2]], np.float32), "pred": np.array([0]), "target": np.array([0])}
    gathered = {**one, "loss_sum": -np.log(0.8), "count": 1.0}
    scores = loss.scores(gathered)
    rows = row_scores(loss, gathered, loss.judged(gathered, None))
    assert rows is not None
    assert rows.score(np.array([0, 0]), np.array([0, 0]))["acc"] == 1.0
    assert intervals(rows, scores) == {}  # of one row nothing is known about the others
