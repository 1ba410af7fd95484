"""Averages of the weights along the way of a training: exponential (EMA) or even (SWA)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch.options import EngineOptions


def share_of_new(options: EngineOptions, num_update: int) -> float | None:
    """Tell by which share the averaged weights move towards those of update `num_update`; None: they stay.

    EMA moves by 1 - ema_decay at each update. SWA takes the weights over at its start, and from then on keeps the even
    mean of those and of those after every `swa_interval` further updates: a function of the number alone, so that a
    resumed run needs no count.

    Source: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018, algorithm 1.
    """
    if options.swa_start is None:
        return 1.0 - options.ema_decay
    since = num_update - options.swa_start
    if since < 0:
        return None
    points, between = divmod(since, options.swa_interval)
    return None if between else 1.0 / (points + 1)


class Average:
    """The averaged weights of a model beside those that an optimizer moves.

    Args:
        averaged: a copy of the model. What no optimizer moves is equal in both for ever, and is left alone.
        model: that is trained.
        moved: the weights that its optimizer has, frozen for a while or not.
    """

    def __init__(self, averaged: nn.Module, model: nn.Module, moved: Iterable[Tensor]) -> None:
        ours = {id(weight) for weight in moved}
        pairs = zip(averaged.parameters(), model.parameters(), strict=True)
        found = [(mean, new) for mean, new in pairs if id(new) in ours]
        self._averaged, self._model = averaged, model
        self._means: list[Tensor] = [mean for mean, _ in found]
        self._news: list[Tensor] = [new for _, new in found]

    @torch.no_grad()
    def move(self, share: float) -> None:
        """Move the averaged weights by `share` of the way towards the new ones; take buffers over."""
        torch._foreach_lerp_(self._means, self._news, share)
        for mine, theirs in zip(self._averaged.buffers(), self._model.buffers(), strict=True):
            mine.copy_(theirs)
