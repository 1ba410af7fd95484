"""Warn of updates that change nothing, or that rounding undoes: no error says so, and the loss is logged as always."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

import torch
from torch import Tensor, nn

from xdpx.engines import rounding
from xdpx.engines.pytorch.strategies.base import Strategy
from xdpx.engines.pytorch.strategies.states import is_shard
from xdpx.logger import log

FIRST_UPDATES = 10
"""Number of updates, with a learning rate above 0, after which some weight must have changed."""

HALF = frozenset({torch.float16, torch.bfloat16})
PLAIN = frozenset({Tensor, nn.Parameter})


class Unmoved:
    """Compares the weights before the first update with those after some of them; later it does nothing.

    Weights are compared by the sums of their rows, so that no copy is needed; of some 16-bit weights, numbers are kept.
    The sum of all of a weight would not do: in a head of two classes that begins with zeros, it stays 0.

    Args:
        parameters: those of the model.
        optimizer: its name, for the message.

    Attributes:
        is_done: whether nothing is left to compare.
    """

    def __init__(self, parameters: Iterable[Tensor], optimizer: str) -> None:
        trained = [weight for weight in parameters if weight.requires_grad]
        # Tensors of other kinds, such as quantized ones, need not have sums, and may be all that changes.
        plain = all(type(weight) in PLAIN or is_shard(weight) for weight in trained)
        self._weights = [weight for weight in trained if weight.numel()] if plain else []
        self._optimizer = optimizer
        self._sums: list[Tensor] = []
        self._numbers: list[Tensor] = []
        self.is_done = not self._weights
        self._updates = 0
        self._highest_rate = 0.0

    @classmethod
    def of(cls, strategy: Strategy, parameters: Iterable[Tensor], optimizer: object) -> Unmoved | None:
        """Return what watches a training; None where the weights that the optimizer changes are the strategy's own."""
        return None if strategy.writes_own_state else cls(parameters, type(optimizer).__name__)

    def begin(self) -> None:
        """Look at the weights before the first update; nothing waits for the device."""
        if not self._sums and not self.is_done:
            self._sums, self._numbers = _sums(self._weights), _numbers(self._weights)

    def follow(self, learning_rate: float, norm: Tensor, *, skipped: bool) -> None:
        """Count an update, and after some of them warn if the weights are the same.

        Args:
            learning_rate: of the update.
            norm: of its gradient; 0 if it is not known.
            skipped: whether its step was left out.
        """
        if self.is_done or skipped or not learning_rate > 0:
            return
        self._updates += 1
        self._highest_rate = max(self._highest_rate, learning_rate)
        if self._updates == FIRST_UPDATES:
            is_same = all(map(torch.equal, self._sums, _sums(self._weights)))
            if is_same:
                self._warn_of_none(float(norm))
            self.is_done = is_same or not self._numbers
        elif self._updates == rounding.UPDATES:
            self._warn_of_rounding()
            self.is_done = True

    def _warn_of_none(self, norm: float) -> None:
        if norm > 0:
            cause = f"though the norm of the gradient is {norm:.3g}. Does step() of {self._optimizer} change them?"
        else:
            cause = "and no gradient is known. Does the loss depend on the weights that are trained?"
        log.warning(
            f"training changes nothing: after {self._updates} updates with learning rates of up to "
            f"{self._highest_rate:.3g}, all {len(self._sums)} weights are as before, {cause}",
            once=True,
        )

    def _warn_of_rounding(self) -> None:
        pairs = zip(self._numbers, _numbers(self._weights), strict=True)
        said = rounding.said_of(
            [float((before == now).float().mean()) for before, now in pairs],
            rates=f"learning rates of up to {self._highest_rate:.3g}",
            kind=self._numbers[0].dtype,
            remedy="Load the model in float32 and set bf16 for the computation",
        )
        if said:
            log.warning(said, once=True)


def _own(weights: Iterable[Tensor]) -> list[Tensor]:
    """Return weights, of sharded ones the part on this process."""
    return [(weight.to_local() if is_shard(weight) else weight).detach() for weight in weights]


def _sums(weights: Iterable[Tensor]) -> list[Tensor]:
    """Return the sums of the rows of each weight, on its device; a copy of those with a single dimension or none."""
    return [_sum(each) if each.ndim > 1 else each.clone() for each in _own(weights)]


def _sum(weight: Tensor) -> Tensor:
    # In another type than this, torch would copy the weight first.
    kind = torch.float32 if weight.dtype in HALF else weight.dtype
    return weight.sum(tuple(range(1, weight.ndim)), dtype=kind)


def _numbers(weights: Iterable[Tensor]) -> list[Tensor]:
    """Return some numbers of the largest 16-bit weights, evenly spaced."""
    half = (each.reshape(-1) for each in _own(weights) if each.dtype in HALF and each.numel())
    return [each[:: rounding.stride_of(len(each))].clone() for each in nlargest(rounding.WEIGHTS, half, key=len)]
