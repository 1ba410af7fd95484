"""Product-key memories: very many slots, of which each token reads a few.

Letters: N tokens, H width, A heads, D width of a query, K keys of each half, S slots that a head reads, C cells.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.dropout import Dropout
from xdpx.models.pytorch.parameters import MEMORY_GROUP, MemorySizeParameters


class MemoryParameters(MemorySizeParameters):
    """Keys of a product-key memory."""

    query_norm: Literal["layer"] | None = declare.param(None, doc="Norm of each half of a query.", group=MEMORY_GROUP)
    distance_fn: Literal["dot", "euc", "mah", "mah_fast"] = declare.param(
        "dot",
        doc="Similarity of keys: dot product; Euclidean; with a learned weight per feature (mah, mah_fast: the same).",
        group=MEMORY_GROUP,
    )
    kernel_alpha: float = declare.param(
        0.5, gt=0, doc="Factor on squared distances: the larger, the sharper.", when=("distance_fn", "is not", "dot"),
        group=MEMORY_GROUP,
    )  # fmt: skip
    query_dropout: float = declare.param(
        0.0, ge=0, lt=1, doc="Share of the queries' features set to 0.", group=MEMORY_GROUP
    )


class LocalMemoryParameters(MemorySizeParameters):
    """Keys of a memory with cells."""

    mem_k_dim: int = declare.param(ge=2, doc="Width of a query; halves are compared separately.", group=MEMORY_GROUP)
    mem_heads: int = declare.param(gt=0, doc="Number of queries per token, each with its own keys.", group=MEMORY_GROUP)
    mem_knn: int = declare.param(gt=0, doc="Slots that each query reads.", group=MEMORY_GROUP)
    mem_keys: int = declare.param(gt=0, doc="Keys of each half; a cell has its square as slots.", group=MEMORY_GROUP)
    mem_cells: int = declare.param(4, gt=0, doc="Cells of each head, each with its own slots.", group=MEMORY_GROUP)


class ProductKeyMemory(nn.Module):
    """A table of K * K values; a query is split into halves, and the score of a slot is the sum over its half keys.

    So the S best of K * K slots are found among the S best of each half: with K comparisons instead of K * K.

    Source: Lample et al., "Large Memory Layers with Product Keys", NeurIPS 2019, section 3, equations 1 to 5.
    """

    alpha: Any
    """Factor on squared distances."""

    def __init__(self, known: MemoryParameters, width: int, spread: float) -> None:
        super().__init__()
        heads, half = known.mem_heads, known.mem_k_dim // 2
        self.num_keys, self.num_read = known.mem_keys, min(known.mem_knn, known.mem_keys)
        self.shape = (heads, 2, half)
        self.distance, self.alpha = known.distance_fn, known.kernel_alpha
        learned = getattr(known, "init_kernel_alpha", None)
        if learned is not None and known.distance_fn != "dot":
            self.alpha = nn.Parameter(torch.tensor(float(learned)))
        wide = heads * known.mem_k_dim
        if getattr(known, "query_net", "linear") == "mlp":
            self.query: nn.Module = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, wide))
        else:
            self.query = nn.Linear(width, wide)
        self.norm = nn.LayerNorm(half) if known.query_norm == "layer" else nn.Identity()
        self.keys = nn.Parameter(torch.empty(heads, 2, known.mem_keys, half).uniform_(-1.0, 1.0) / half**0.5)
        if known.distance_fn.startswith("mah"):
            self.stretch = nn.Parameter(torch.zeros(heads, 2, half))
        self.values = nn.EmbeddingBag(known.mem_keys**2, width, mode="sum", sparse=known.mem_sparse)
        nn.init.normal_(self.values.weight, std=spread)
        self.input_dropout, self.query_dropout = Dropout(known.input_dropout), Dropout(known.query_dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the output of the memory for states (..., H), of the same shape."""
        tokens_NH = self.input_dropout(hidden).flatten(0, -2)
        query = self.query_dropout(self.norm(self.query(tokens_NH).view(-1, *self.shape)))
        nearness_NAS, slot_NAS = self.nearest(query)
        share = nearness_NAS.softmax(dim=-1).to(self.values.weight.dtype)
        read: Tensor = self.values(slot_NAS.flatten(1), per_sample_weights=share.flatten(1))
        return read.view_as(hidden)

    def nearest(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Return score and index of the S best slots for queries (N, A, 2, D / 2), both (N, A, S)."""
        return self.best_pairs(self.nearness(query))

    def nearness(self, query: Tensor) -> Tensor:
        """Return the scores (N, A, 2, K) of half keys for halves of queries (N, A, 2, D / 2)."""
        products = torch.einsum("nahd,ahkd->nahk", query, self.keys)
        if self.distance == "dot":
            return products
        if self.distance == "euc":
            squares = query.square().sum(-1, keepdim=True) + self.keys.square().sum(-1)
            return self.alpha * (2.0 * products - squares)  # type: ignore[no-any-return]
        scale = self.stretch.exp()
        scaled = self.keys * scale[:, :, None]
        products = torch.einsum("nahd,ahkd->nahk", query, scaled)
        squares = (query.square() * scale).sum(-1, keepdim=True) + (self.keys * scaled).sum(-1)
        return self.alpha * (2.0 * products - squares)  # type: ignore[no-any-return]

    def best_pairs(self, nearness: Tensor) -> tuple[Tensor, Tensor]:
        """Return the S best sums of two halves of (N, A, 2, K), and the index of the slot of each, both (N, A, S)."""
        best, key = nearness.topk(self.num_read, dim=-1)
        sums = (best[:, :, 0, :, None] + best[:, :, 1, None, :]).flatten(2)
        slots = (key[:, :, 0, :, None] * self.num_keys + key[:, :, 1, None, :]).flatten(2)
        nearness, place = sums.topk(self.num_read, dim=-1)
        return nearness, slots.gather(-1, place)


class LocalMemory(nn.Module):
    """A product-key memory within cells: keys are compared with the residual of a query to its cell's centre.

    Each cell has its own rotation of residuals, and its own values: C * K * K slots.

    Source: Lample et al., NeurIPS 2019, section 3, with the cells of Kalantidis and Avrithis, "Locally Optimized
    Product Quantization for Approximate Nearest Neighbor Search", CVPR 2014, section 3.
    """

    alpha: Any = 1.0

    def __init__(self, known: LocalMemoryParameters, width: int, spread: float) -> None:
        super().__init__()
        heads, size = known.mem_heads, known.mem_k_dim
        self.num_keys, self.num_read = known.mem_keys, min(known.mem_knn, known.mem_keys)
        self.shape = (heads, size)
        self.query = nn.Linear(width, heads * size)
        self.centres = nn.Parameter(torch.empty(heads, known.mem_cells, size).uniform_(-1.0, 1.0) / size**0.5)
        self.turns = nn.Parameter(torch.eye(size).repeat(heads, known.mem_cells, 1, 1))
        self.keys = nn.Parameter(torch.empty(heads, 2, known.mem_keys, size // 2).uniform_(-1.0, 1.0) / size**0.5)
        self.values = nn.EmbeddingBag(known.mem_cells * known.mem_keys**2, width, mode="sum", sparse=known.mem_sparse)
        nn.init.normal_(self.values.weight, std=spread)
        self.input_dropout = Dropout(known.input_dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the output of the memory for states (..., H), of the same shape."""
        query_NAD = self.query(self.input_dropout(hidden).flatten(0, -2)).view(-1, *self.shape)
        away_NAC = torch.cdist(query_NAD.transpose(0, 1).float(), self.centres.float()).transpose(0, 1)
        cell_NA = away_NAC.argmin(dim=-1)
        head_A = torch.arange(self.shape[0], device=cell_NA.device)
        rest = query_NAD - self.centres[head_A, cell_NA]
        turned = torch.einsum("nad,naed->nae", rest, self.turns[head_A, cell_NA])
        halves = turned.view(*turned.shape[:2], 2, -1)
        products = torch.einsum("nahd,ahkd->nahk", halves, self.keys)
        nearness = 2.0 * products - halves.square().sum(-1, keepdim=True) - self.keys.square().sum(-1)
        nearness_NAS, slot_NAS = ProductKeyMemory.best_pairs(self, nearness)  # type: ignore[arg-type]
        slot_NAS = slot_NAS + cell_NA[..., None] * self.num_keys**2
        share = nearness_NAS.softmax(dim=-1).to(self.values.weight.dtype)
        read: Tensor = functional.embedding_bag(
            slot_NAS.flatten(1), self.values.weight, mode="sum", sparse=self.values.sparse,
            per_sample_weights=share.flatten(1),
        )  # fmt: skip
        return read.view_as(hidden)


class MemoryOutput(nn.Module):
    """The end of a layer with a memory as feed-forward part: residual connection and normalisation."""

    def __init__(self, replaced: Any) -> None:
        super().__init__()
        self.dropout, self.LayerNorm = replaced.dropout, replaced.LayerNorm

    def forward(self, read: Tensor, attended: Tensor) -> Tensor:
        """Return (B, T, H)."""
        states: Tensor = self.LayerNorm(self.dropout(read) + attended)
        return states
