"""Averages of the weights along the way of a training: exponential (EMA) or even (SWA)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch.options import AveragingOptions
from xdpx.engines.pytorch.strategies.states import is_shard, whole_tensors


class Average:
    """The averaged weights beside those that an optimizer moves.

    Args:
        means: averaged so far.
        weights: that are trained, in the same order; shards of them are averaged each by its own process.
        options: which average.
    """

    def __init__(self, means: list[Tensor], weights: list[Tensor], options: AveragingOptions) -> None:
        self._means, self._weights, self._options = means, weights, options
        self._sharded = any(is_shard(each) for each in weights)

    @torch.no_grad()
    def follow(self, num_update: int) -> None:
        """Move the averaged weights as far as they are to move after update `num_update`."""
        share = self._options.share_of_new(num_update)
        if share is not None:
            self._move(share)

    def _move(self, share: float) -> None:
        torch._foreach_lerp_(self._means, self._own(), share)

    def _own(self) -> list[Tensor]:
        """Return what this process has of the weights."""
        return (
            [each.to_local() if is_shard(each) else each for each in self._weights] if self._sharded else self._weights
        )


class AveragedModel(Average):
    """The averaged weights of a model in a copy of it.

    Args:
        averaged: the copy. What no optimizer moves is equal in both for ever, and is left alone.
        model: that is trained.
        moved: the weights that its optimizer has, frozen for a while or not.
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
        self._buffers = list(zip(averaged.buffers(), model.buffers(), strict=True))

    def _move(self, share: float) -> None:
        super()._move(share)
        for mine, theirs in self._buffers:
            mine.copy_(theirs)


class AverageInPlace(Average):
    """An average that takes the place of the weights of the model itself for a while, or for good.

    Args:
        weights: those that are trained, by their names in the model; the average begins with them as they are.
        options: which average.

    Raises:
        ValueError: weights are in half precision, in which an average would stand still.
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
        """Let the model have the averaged weights, if the average has begun after so many updates."""
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
        """Let the model keep the averaged weights, if the average has begun after so many updates."""
        if self._options.has_begun(num_updates):
            self._fill(self._means)

    def trained(self, *, wanted: bool) -> dict[str, Tensor]:
        """Return a copy of the weights that go on to be trained, by name, whole and on the host; on all processes.

        Args:
            wanted: whether this process is given them; {} otherwise.
        """
        return whole_tensors(dict(zip(self._names, self._weights, strict=True)), wanted=wanted, copied=True)

    @torch.no_grad()
    def _fill(self, values: list[Tensor]) -> None:
        torch._foreach_copy_(self._own(), values)


def keeps_average(optimizer: Any) -> bool:
    """Tell whether an optimizer declares that it keeps an average of the weights by itself.

    It does so by two methods: `eval` puts the average into the model, `train` goes back to the weights that are
    trained; each does nothing the second time. The classes of schedulefree have both.
    """
    return all(callable(getattr(optimizer, name, None)) for name in ("train", "eval"))


class OptimizersAverage:
    """The average that an optimizer keeps by itself (schedule-free), in the place of the trained weights for a while.

    The trained weights come back as the very bits that they were, so that scoring and saving change nothing of the
    training, whenever they happen.

    Args:
        optimizer: see `keeps_average`.
        names: of its weights, for what is saved of them; needed by `trained` alone.

    Source: Defazio et al., "The Road Less Scheduled", NeurIPS 2024.
    """

    def __init__(self, optimizer: Any, names: Mapping[str, Tensor] | None = None) -> None:
        self._optimizer, self._named = optimizer, dict(names or {})
        self._kept: list[Tensor] | None = None

    def show(self) -> None:
        """Let the model have the average."""
        if self._kept is None:
            self._kept = [each.detach().clone() for each in self._own()]
            self._optimizer.eval()

    @torch.no_grad()
    def hide(self) -> None:
        """Let the model have the weights that are trained."""
        self._optimizer.train()
        if self._kept is not None:
            torch._foreach_copy_(self._own(), self._kept)
            self._kept = None

    def _own(self) -> list[Tensor]:
        weights = [weight.detach() for group in self._optimizer.param_groups for weight in group["params"]]
        return [each.to_local() if is_shard(each) else each for each in weights]

    def follow(self, num_update: int) -> None:
        """Do nothing: the step has moved the average."""

    @contextmanager
    def in_place(self, num_updates: int) -> Generator[None]:
        """Let the model have the average inside."""
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
        """Let the model keep the average."""
        del num_updates
        self.show()
        self._kept = None

    def trained(self, *, wanted: bool) -> dict[str, Tensor]:
        """Return a copy of the weights that go on to be trained, by name, whole and on the host; on all processes."""
        return whole_tensors(self._named, wanted=wanted, copied=True)
