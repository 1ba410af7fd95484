"""Averages of the weights over the course of training: exponential (EMA) or uniform (SWA)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch.buffers import Buffers
from xdpx.engines.pytorch.options import AveragingOptions
from xdpx.engines.pytorch.strategies.states import is_shard, whole_tensors


class Average:
    """An average of the trained weights, kept in separate tensors.

    Args:
        means: the averaged weights.
        weights: the trained ones, in the same order; each process averages its own shards.
        options: which average.
    """

    def __init__(self, means: list[Tensor], weights: list[Tensor], options: AveragingOptions) -> None:
        self._means, self._weights, self._options = means, weights, options
        self._sharded = any(is_shard(each) for each in weights)

    @torch.no_grad()
    def follow(self, num_update: int, *, skipped: bool = False) -> None:
        """Add the weights after update `num_update` to the average, with the share that the options give them."""
        share = self._options.share_of_new(num_update, skipped=skipped)
        if share is not None:
            self._move(share)

    def _move(self, share: float) -> None:
        torch._foreach_lerp_(self._means, self._own(), share)

    def _own(self) -> list[Tensor]:
        """Return this process's shards of the weights, or the whole weights if they are not sharded."""
        return (
            [each.to_local() if is_shard(each) else each for each in self._weights] if self._sharded else self._weights
        )


class AveragedModel(Average):
    """The averaged weights of a model, in a copy of the model.

    Args:
        averaged: the copy. Weights that the optimizer does not have stay equal in both, and are not averaged.
        model: the trained one.
        moved: the weights of its optimizer, including temporarily frozen ones.
        options: which average.
    """

    def __init__(
        self, averaged: nn.Module, model: nn.Module, moved: Iterable[Tensor], options: AveragingOptions
    ) -> None:
        ours = {id(weight) for weight in moved}
        pairs = zip(averaged.parameters(), model.parameters(), strict=True)
        found = [(mean, new) for mean, new in pairs if id(new) in ours]
        means = [mean.to_local() if is_shard(mean) else mean for mean, _ in found]
        super().__init__(means, [new for _, new in found], options)
        self._buffers, self._trained_buffers = Buffers(averaged), Buffers(model)

    def _move(self, share: float) -> None:
        super()._move(share)
        self._buffers.take_from(self._trained_buffers)


class AverageInPlace(Average):
    """An average that can replace the weights in the model itself, temporarily or for good.

    Args:
        weights: the trained ones, by their names in the model; the average starts from their current values.
        options: which average.

    Raises:
        ValueError: weights are in half precision, in which an average would not move.
    """

    def __init__(self, weights: Mapping[str, Tensor], options: AveragingOptions) -> None:
        coarse = [name for name, each in weights.items() if each.dtype in {torch.float16, torch.bfloat16}]
        if coarse:
            raise ValueError(
                f"ema_decay, swa_start: {len(coarse)} trained weights are in half precision, such as {coarse[0]}, in "
                "which an average would stand still. Load the model in float32, and set bf16=True to compute in it."
            )
        super().__init__([], list(weights.values()), options)
        self._names = list(weights)
        self._means = [each.detach().clone() for each in self._own()]
        self._there = False

    @contextmanager
    def in_place(self, num_updates: int) -> Generator[None]:
        """Put the averaged weights into the model inside the block, if the average has begun by `num_updates`."""
        if self._there or not self._options.has_begun(num_updates):
            yield
            return
        trained = [each.detach().clone() for each in self._own()]
        self._fill(self._means)
        self._there = True
        try:
            yield
        finally:
            self._fill(trained)
            self._there = False

    def settle(self, num_updates: int) -> None:
        """Put the averaged weights into the model for good, if the average has begun by `num_updates`."""
        if self._options.has_begun(num_updates):
            self._fill(self._means)

    def trained(self, *, wanted: bool) -> dict[str, Tensor]:
        """Return a copy of the trained, not averaged, weights by name, unsharded, on the host; on all processes.

        Args:
            wanted: whether this process gets them; otherwise it gets {}.
        """
        return whole_tensors(dict(zip(self._names, self._weights, strict=True)), wanted=wanted, copied=True)

    @torch.no_grad()
    def _fill(self, values: list[Tensor]) -> None:
        torch._foreach_copy_(self._own(), values)


def keeps_average(optimizer: Any) -> bool:
    """Return whether an optimizer keeps an average of the weights itself.

    It does if it has two methods: `eval` puts the average into the model, `train` puts the trained weights back; each
    does nothing if called twice in a row. The classes of schedulefree have both.
    """
    return callable(getattr(optimizer, "train", None)) and callable(getattr(optimizer, "eval", None))


class OptimizersAverage:
    """The average that an optimizer keeps itself (schedule-free), put into the model in place of the trained weights.

    The trained weights are restored bit for bit, so scoring and saving never change the training.

    Args:
        optimizer: see `keeps_average`.
        names: its weights by name; needed only by `trained`.

    Source: Defazio et al., "The Road Less Scheduled", NeurIPS 2024.
    """

    def __init__(self, optimizer: Any, names: Mapping[str, Tensor] | None = None) -> None:
        self._optimizer, self._named = optimizer, dict(names or {})
        self._kept: list[Tensor] | None = None

    def show(self) -> None:
        """Put the average into the model."""
        if self._kept is None:
            self._kept = [each.detach().clone() for each in self._own()]
            self._optimizer.eval()

    @torch.no_grad()
    def hide(self) -> None:
        """Put the trained weights back into the model."""
        self._optimizer.train()
        if self._kept is not None:
            torch._foreach_copy_(self._own(), self._kept)
            self._kept = None

    def _own(self) -> list[Tensor]:
        weights = [weight.detach() for group in self._optimizer.param_groups for weight in group["params"]]
        return [each.to_local() if is_shard(each) else each for each in weights]

    def follow(self, num_update: int, *, skipped: bool = False) -> None:
        """Do nothing: the optimizer's step has updated the average."""

    @contextmanager
    def in_place(self, num_updates: int) -> Generator[None]:
        """Put the average into the model inside the block."""
        del num_updates
        if self._kept is not None:
            yield
            return
        self.show()
        try:
            yield
        finally:
            self.hide()

    def settle(self, num_updates: int) -> None:
        """Put the average into the model for good."""
        del num_updates
        self.show()
        self._kept = None

    def trained(self, *, wanted: bool) -> dict[str, Tensor]:
        """Return a copy of the trained, not averaged, weights by name, unsharded, on the host; on all processes."""
        return whole_tensors(self._named, wanted=wanted, copied=True)
