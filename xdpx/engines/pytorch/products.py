"""Linear layers by oneDNN while a model only scores, where torch itself would use MKL.

On AMD processors, MKL does not use AVX-512: oneDNN computes the same products in half the time (measured on one core of
Zen 5, 384 x 1536, single precision: 100 GFLOPS with MKL, 220 with oneDNN, 235 with weights in its own layout). Besides,
its result for a row does not depend on the number of rows, if there are at least two.
"""

from __future__ import annotations

import platform
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized

AT_LEAST = 2
"""Minimum number of rows of a product: a single row is computed by another kernel, with different bits."""


class _Copy(NamedTuple):
    """Weights in oneDNN's layout, and the tensor they were copied from, with its version at that time."""

    source: Tensor
    version: int
    reordered: Tensor


class Products:
    """The linear layers of a model on a CPU.

    Args:
        model: whose weights are float32.
        keeps: whether to cache a copy of each weight in oneDNN's layout, until torch reports that the weight changed.
            It does not notice in-place writes through `.data`: use False where these occur.
    """

    def __init__(self, model: nn.Module, *, keeps: bool) -> None:
        self._layers = [each for each in model.modules() if _computes_as_torch(each)]
        self._keeps = keeps
        self._kept: dict[nn.Linear, _Copy] = {}

    @contextmanager
    def inside(self) -> Generator[None]:
        """Compute the layers with oneDNN inside the block, without gradients."""
        for layer in self._layers:
            vars(layer)["forward"] = partial(self._product, layer)
        try:
            yield
        finally:
            for layer in self._layers:
                del vars(layer)["forward"]

    def _product(self, layer: nn.Linear, given: Tensor) -> Tensor:
        weight = layer.weight  # read once: a parametrized weight is computed at each access
        if given.dtype != torch.float32 or weight.dtype != torch.float32 or not given.numel():
            return functional.linear(given, weight, layer.bias)
        rows = given.reshape(-1, layer.in_features)
        enough = rows if len(rows) >= AT_LEAST else rows.expand(AT_LEAST, -1).contiguous()
        weight = self._in_layout(layer, weight.detach())
        # torch.compile calls this too; there is no public function.
        found: Tensor = torch.ops.mkldnn._linear_pointwise(enough, weight, layer.bias, "none", [], "")
        return found[: len(rows)].view(*given.shape[:-1], layer.out_features)

    def _in_layout(self, layer: nn.Linear, weight: Tensor) -> Tensor:
        if not self._keeps or is_parametrized(layer):
            return weight
        version, kept = weight._version, self._kept.get(layer)
        # The source is kept too: otherwise new weights could get the address of freed ones, with the same version.
        if kept is None or kept.version != version or kept.source.data_ptr() != weight.data_ptr():
            found = torch.ops.mkldnn._reorder_linear_weight(weight)
            kept = self._kept[layer] = _Copy(weight, version, found)
        return kept.reordered


def _computes_as_torch(part: nn.Module) -> TypeGuard[nn.Linear]:
    return isinstance(part, nn.Linear) and type(part).forward is nn.Linear.forward and "forward" not in vars(part)


def is_there() -> bool:
    """Return whether torch was built with oneDNN for this kind of processor."""
    on_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    built = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return on_x86 and built and hasattr(torch.ops.mkldnn, "_linear_pointwise")
