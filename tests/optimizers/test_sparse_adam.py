"""Rows that were read are moved as torch's SparseAdam does, dense gradients as Adam does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from xdpx.optimizers import optimizers


@pytest.mark.parametrize(("sparse", "kind"), [(True, torch.optim.SparseAdam), (False, torch.optim.Adam)])
def test_steps_are_those_of_torch(sparse: bool, kind: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(1)
    ours, theirs = (nn.Embedding(6, 3, sparse=sparse) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    own = optimizers["sparse_adam"]
    groups = [{"params": list(ours.parameters()), "lr": 0.1}]
    pair = own(own.Parameters(adam_eps=1e-8), groups=groups), kind(theirs.parameters(), lr=0.1)
    for ids in ([0, 1, 1], [1, 4], [0], [5, 5, 5]):
        for table, optimizer in zip((ours, theirs), pair, strict=True):
            optimizer.zero_grad()
            (table(torch.tensor(ids)).square().sum() * 3).backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_a_row_that_was_not_read_stands_still() -> None:
    table, own = nn.Embedding(4, 2, sparse=True), optimizers["sparse_adam"]
    before = table.weight.detach().clone()
    optimizer = own(own.Parameters(), groups=[{"params": list(table.parameters()), "lr": 0.1}])
    for ids in ([1], [2]):
        optimizer.zero_grad()
        table(torch.tensor(ids)).sum().backward()
        optimizer.step()
    moved = (table.weight != before).any(dim=1)
    assert moved.tolist() == [False, True, True, False]
    assert optimizer.state[table.weight]["exp_avg"][1, 0] == pytest.approx(0.1)  # only of its own step
