"""The slots that a memory reads are the nearest of all, whatever the distance, and begin where tokens are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from xdpx.models.pytorch import memory_start
from xdpx.models.pytorch.modules.product_keys import (
    LocalMemory,
    LocalMemoryParameters,
    MemoryParameters,
    ProductKeyMemory,
)

SIZES: dict[str, Any] = {"mem_k_dim": 4, "mem_heads": 2, "mem_knn": 3, "mem_keys": 5}


def memory_of(**keys: Any) -> ProductKeyMemory:
    torch.manual_seed(2)
    return ProductKeyMemory(MemoryParameters(**SIZES, **keys), 6, 0.5)


@pytest.mark.parametrize("distance", ["dot", "euc", "mah", "mah_fast"])
def test_what_is_read_is_the_softmax_over_the_nearest_of_all_slots(distance: str) -> None:
    memory, states = memory_of(distance_fn=distance, kernel_alpha=0.7), torch.randn(7, 6)
    if distance.startswith("mah"):
        torch.nn.init.normal_(memory.stretch)
    query = memory.query(states).view(7, 2, 4)
    keys = torch.stack([
        torch.cat([memory.keys[:, 0, slot // 5], memory.keys[:, 1, slot % 5]], dim=-1) for slot in range(25)
    ])  # fmt: skip
    stretch = memory.stretch.exp().flatten(1) if distance.startswith("mah") else torch.ones(2, 4)
    gap = query[:, None] - keys[None]
    wanted = torch.einsum("nad,kad->nka", query, keys) if distance == "dot" else -0.7 * (gap**2 * stretch).sum(-1)
    best, slot = wanted.topk(3, dim=1)
    expected = (best.softmax(dim=1)[..., None] * memory.values.weight[slot]).sum(dim=(1, 2))
    torch.testing.assert_close(memory(states), expected)


def test_each_cell_has_slots_of_its_own() -> None:
    torch.manual_seed(3)
    known = LocalMemoryParameters(**{**SIZES, "mem_heads": 1, "mem_knn": 1}, mem_cells=2)
    memory, states = LocalMemory(known, 6, 0.5), torch.randn(20, 6)
    query = memory.query(states)
    cell = torch.cdist(query, memory.centres[0]).argmin(dim=1)
    rest = query - memory.centres[0, cell]
    first, second = (
        torch.cdist(part, keys).argmin(1) for part, keys in zip(rest.chunk(2, 1), memory.keys[0], strict=True)
    )
    assert set(cell.tolist()) == {0, 1}
    torch.testing.assert_close(memory(states), memory.values.weight[cell * 25 + first * 5 + second])


@pytest.mark.parametrize("cells", [None, 2])
def test_a_memory_that_begins_with_a_feed_forward_part_does_what_it_does(cells: int | None) -> None:
    torch.manual_seed(4)
    spots = torch.randn(12, 6)
    states = spots[torch.randint(12, (300,))] + 0.01 * torch.randn(300, 6)
    added = torch.tanh(states @ torch.randn(6, 6))
    memory: Any = memory_of(distance_fn="euc")
    if cells is not None:
        memory = LocalMemory(LocalMemoryParameters(**SIZES, mem_cells=cells), 6, 0.5)
    how = memory_start.Clustering(iterations=50, restarts=2, seed=1)
    memory_start.place_keys(memory, states, how, how)
    alpha = memory_start.common_sharpness({0: memory}, {0: states})
    assert (alpha is None) == (cells is not None)
    before, after = memory_start.learn_values(memory, states, added, updates=200, rate=0.05, seed=1)
    assert after < 0.2 * before


def test_only_the_values_that_were_read_have_a_gradient_where_they_are_sparse() -> None:
    memory = memory_of(mem_sparse=True)
    memory(torch.randn(1, 6)).sum().backward()
    gradient = memory.values.weight.grad
    assert gradient is not None
    assert gradient.is_sparse
    assert len(gradient.coalesce().values()) <= 2 * 3
