from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from xdpx.losses import losses
from xdpx.tasks import tasks
from xdpx.tasks.bert_cl import rows_of_each


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(()))

    def forward(self, views: Tensor) -> Tensor:
        return views + self.nothing


def task(vectors: Tensor, **keys: Any) -> Any:
    kind, loss = tasks["bert_cl"], losses["bert_cl"](losses["bert_cl"].Parameters())
    known = kind.Parameters(loss="bert_cl", model="simcse", min_points_per_centroid=1, **keys)
    batch = {"net_input": {"views": vectors[:, None].expand(-1, 2, -1)}}
    return kind(known, Views(), loss, read_rows=lambda number: iter([batch]))


def test_prototypes_of_fewer_rows_are_those_of_all_parts_of_the_data() -> None:
    pytest.importorskip("sklearn")
    one, other = torch.eye(2)
    sorted_rows = torch.stack([one] * 8 + [other] * 8)
    made = task(sorted_rows, num_cluster=[1], max_points_per_centroid=4)
    made.begin_update(1)
    ((centres, _),) = made.loss.prototypes
    assert centres[0].tolist() == pytest.approx([0.5**0.5] * 2)


def test_rows_are_drawn_from_all_splits_alike() -> None:
    first, second = rows_of_each([6000, 3000], 900, np.random.default_rng(0))
    assert len(first) + len(second) == 900
    assert 540 < len(first) < 660
    assert (second.min() >= 0, second.max() < 3000, len(np.unique(second))) == (True, True, len(second))


def test_all_rows_are_taken_where_there_are_few() -> None:
    assert [each.tolist() for each in rows_of_each([2, 0, 3], 9, np.random.default_rng(0))] == [[0, 1], [], [0, 1, 2]]


class Turned(Views):
    """Has a layer that is used in training only, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, views: Tensor) -> Tensor:
        return super().forward(self.dropout(views.flip(-1) if self.training else views))


def test_prototypes_are_found_among_the_vectors_of_training_without_dropout() -> None:
    pytest.importorskip("sklearn")
    made = task(torch.eye(2)[:1].expand(8, 2), num_cluster=[1])
    made.model = Turned()
    made.begin_update(1)
    ((centres, _),) = made.loss.prototypes
    assert centres[0].tolist() == pytest.approx([0.0, 1.0])
    assert made.model.dropout.training
