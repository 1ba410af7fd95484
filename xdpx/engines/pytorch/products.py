"""Products with weights while a model only scores: by oneDNN, where torch itself would ask MKL.

On a processor of AMD, MKL leaves AVX-512 alone: oneDNN computes the same products in half the time (measured on a core
of Zen 5, 384 x 1536, single precision: 100 GFLOPS by MKL, 220 by oneDNN, 235 with weights in its own layout). Besides,
what it gives for a row does not depend on how many rows there are, from two on.
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
"""Rows of a product: one alone is computed by another kernel, with other bits."""


class _Copy(NamedTuple):
    """Weights in oneDNN's layout, and what they were copied from, as it was then."""

    source: Tensor
    version: int
    reordered: Tensor


class Products:
    """The linear layers of a model on a CPU.

    Args:
        model: whose weights are float32.
        keeps: whether a copy of each weight in oneDNN's layout is kept, until torch knows that the weight changed. It
            does not know what is written in place through `.data`: then keep none.
    """

    def __init__(self, model: nn.Module, *, keeps: bool) -> None:
        self._layers = [each for each in model.modules() if _computes_as_torch(each)]
        self._keeps = keeps
        self._kept: dict[nn.Linear, _Copy] = {}

    @contextmanager
    def inside(self) -> Generator[None]:
        """Let oneDNN compute the layers within the block, in which no gradient is wanted."""
        for layer in self._layers:
            vars(layer)["forward"] = partial(self._product, layer)
        try:
            yield
        finally:
            for layer in self._layers:
                del vars(layer)["forward"]

    def _product(self, layer: nn.Linear, given: Tensor) -> Tensor:
        weight = layer.weight  # once: a parametrized one is computed each time it is asked for
        if given.dtype != torch.float32 or weight.dtype != torch.float32 or not given.numel():
            return functional.linear(given, weight, layer.bias)
        rows = given.reshape(-1, layer.in_features)
        enough = rows if len(rows) >= AT_LEAST else rows.expand(AT_LEAST, -1).contiguous()
        weight = self._in_layout(layer, weight.detach())
        # What torch.compile calls, too; there is no public function.
        found: Tensor = torch.ops.mkldnn._linear_pointwise(enough, weight, layer.bias, "none", [], "")
        return found[: len(rows)].view(*given.shape[:-1], layer.out_features)

    def _in_layout(self, layer: nn.Linear, weight: Tensor) -> Tensor:
        if not self._keeps or is_parametrized(layer):
            return weight
        version, kept = weight._version, self._kept.get(layer)
        # What it was copied from is held, too: else new weights may lie where freed ones lay, with the same version.
        if kept is None or kept.version != version or kept.source.data_ptr() != weight.data_ptr():
            found = torch.ops.mkldnn._reorder_linear_weight(weight)
            kept = self._kept[layer] = _Copy(weight, version, found)
        return kept.reordered


def _computes_as_torch(part: nn.Module) -> TypeGuard[nn.Linear]:
    return isinstance(part, nn.Linear) and type(part).forward is nn.Linear.forward and "forward" not in vars(part)


def is_there() -> bool:
    """Tell whether torch was built with oneDNN for this kind of processor."""
    on_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    built = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return on_x86 and built and hasattr(torch.ops.mkldnn, "_linear_pointwise")
