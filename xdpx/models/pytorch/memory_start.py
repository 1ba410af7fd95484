"""Initialise memories to imitate a feed-forward layer: keys from clusters of its inputs, values from its outputs.

Letters: N tokens, H width, A heads, D width of a query, K keys of each half, C cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor
from torch.nn import functional

from xdpx.models.pytorch.modules.product_keys import LocalMemory, ProductKeyMemory

KMEANS_BATCH = 1024
VALUES_BATCH = 256
SAMPLE = 4096
"""Tokens per batch of a computation, and for measuring distances."""
SHARPEST = 1e3
"""Upper bound of the factor, for keys that coincide with tokens."""

Memory = ProductKeyMemory | LocalMemory


@dataclass(frozen=True)
class Clustering:
    """Options of k-means: iterations, restarts, random seed, tolerance, and ratio for reassigning small clusters."""

    iterations: int
    restarts: int
    seed: int
    tolerance: float = 0.0
    reassignment_ratio: float = 0.01

    def centres(self, rows_ND: Tensor, count: int) -> Tensor:
        """Return `count` centres (count, D); with fewer rows than that, rows are repeated."""
        if len(rows_ND) <= count:
            return rows_ND[torch.arange(count) % len(rows_ND)]
        kmeans = MiniBatchKMeans(
            count, max_iter=self.iterations, n_init=self.restarts, random_state=self.seed, batch_size=KMEANS_BATCH,
            tol=self.tolerance, reassignment_ratio=self.reassignment_ratio,
        )  # fmt: skip
        return torch.from_numpy(kmeans.fit(rows_ND.double().numpy()).cluster_centers_).float()


@torch.no_grad()
def place_keys(memory: Memory, states_NH: Tensor, fine: Clustering, coarse: Clustering) -> None:
    """Set queries to whitened principal components of states, rotated per head, and keys to centres of their halves.

    Source: Kalantidis and Avrithis, CVPR 2014, section 3.2: axes, cells, and centres of the residuals within them.
    """
    mean_H = states_NH.mean(dim=0)
    _, sizes, axes = torch.linalg.svd(states_NH - mean_H, full_matrices=False)
    heads, width = memory.shape[0], memory.keys.shape[-1] * 2
    whitened_DH = axes[:width] * (len(states_NH) ** 0.5 / sizes[:width].clamp(min=sizes[0] * 1e-6))[:, None]
    dice = torch.Generator().manual_seed(fine.seed)
    turns_ADD = torch.stack([torch.linalg.qr(torch.randn(width, width, generator=dice))[0] for _ in range(heads)])
    used = turns_ADD[:, :, : len(whitened_DH)]  # with fewer tokens than features there are fewer axes
    weight = torch.einsum("aed,dh->aeh", used, whitened_DH).flatten(0, 1)
    memory.query.load_state_dict({"weight": weight, "bias": -(weight @ mean_H)})
    query_NAD = memory.query(states_NH).view(len(states_NH), heads, width)
    for head in range(heads):
        rest_ND = query_NAD[:, head]
        if isinstance(memory, LocalMemory):
            rest_ND = _place_cells(memory, head, rest_ND, coarse)
        for half, part in enumerate(rest_ND.unflatten(-1, (2, -1)).unbind(dim=1)):
            memory.keys[head, half] = fine.centres(part, memory.num_keys)


def _place_cells(memory: LocalMemory, head: int, query_ND: Tensor, coarse: Clustering) -> Tensor:
    """Set the cells of a head to centres of its queries, and rotations to the axes within; return the residuals."""
    centres_CD = coarse.centres(query_ND, memory.centres.shape[1])
    memory.centres[head] = centres_CD
    cell_N = torch.cdist(query_ND, centres_CD).argmin(dim=-1)
    rest_ND = query_ND - centres_CD[cell_N]
    for cell in range(len(centres_CD)):
        inside = rest_ND[cell_N == cell]
        if len(inside) > inside.shape[1]:
            memory.turns[head, cell] = torch.linalg.svd(inside - inside.mean(dim=0), full_matrices=False)[2]
    turned: Tensor = torch.einsum("nd,ned->ne", rest_ND, memory.turns[head, cell_N])
    return turned


@torch.no_grad()
def common_sharpness(memories: Mapping[int, Memory], states: Mapping[int, Tensor]) -> float | None:
    """Set the factor on squared distances of all memories, so that the mean scaled distance of the nearest slot is 1.

    Return the factor; None if no memory has one.
    """
    found = []
    for number, memory in memories.items():
        if isinstance(memory, ProductKeyMemory):
            nearness, _ = memory.nearest(memory.query(states[number][:SAMPLE]).view(-1, *memory.shape))
            found.append(float(nearness[..., 0].mean().neg().clamp(min=1.0 / SHARPEST)))
    if not found:
        return None
    alpha = len(found) / sum(found)
    for memory in memories.values():
        memory.alpha = alpha
    return alpha


def learn_values(
    memory: Memory, states_NH: Tensor, added_NH: Tensor, *, updates: int, rate: float, seed: int
) -> tuple[float, float]:
    """Train only the values until the memory returns the outputs; return the mean squared error before and after."""
    values, dice = memory.values.weight, torch.Generator().manual_seed(seed)
    with torch.no_grad():
        values.copy_((added_NH.mean(dim=0) / memory.shape[0]).expand_as(values))
    optimizer = torch.optim.Adam([values], lr=rate)
    before = error(memory.eval(), states_NH, added_NH)
    for _ in range(updates):
        rows = torch.randint(len(states_NH), (min(VALUES_BATCH, len(states_NH)),), generator=dice)
        optimizer.zero_grad()
        torch.autograd.backward(functional.mse_loss(memory(states_NH[rows]), added_NH[rows]))
        optimizer.step()
    return before, error(memory, states_NH, added_NH)


@torch.no_grad()
def error(memory: Memory, states_NH: Tensor, added_NH: Tensor) -> float:
    """Return the mean squared error of a memory's output for states."""
    parts = zip(torch.split(states_NH, SAMPLE), torch.split(added_NH, SAMPLE), strict=True)
    return sum(float((memory(states) - added).square().sum()) for states, added in parts) / added_NH.numel()


def weights_of(memories: Mapping[int, Memory]) -> dict[str, Tensor]:
    """Return the weights of memories with the names expected by `pretrained_memories`."""
    return {
        f"memories.{number}.{name}": value.detach()
        for number, memory in memories.items()
        for name, value in memory.state_dict().items()
    }
