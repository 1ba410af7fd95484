"""Averages of the weights along the way of a training: exponential (EMA) or even (SWA)."""

from __future__ import annotations

import torch
from torch import nn

from xdpx.engines.pytorch.options import EngineOptions


def share_of_new(options: EngineOptions, num_update: int) -> float | None:
    """Tell by which share the averaged weights move towards those of update `num_update`; None: they stay.

    EMA moves by 1 - ema_decay at each update. SWA follows the weights until its start, and from then on keeps the even
    mean of those at the start and after every `swa_interval` further updates: a function of the number alone, so that
    a resumed run needs no count.

    Source: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018, algorithm 1.
    """
    if options.swa_start is None:
        return 1.0 - options.ema_decay
    since = num_update - options.swa_start
    if since <= 0:
        return 1.0
    points, between = divmod(since, options.swa_interval)
    return None if between else 1.0 / (points + 1)


@torch.no_grad()
def average(averaged: nn.Module, model: nn.Module, share: float) -> None:
    """Move the averaged weights by `share` of the way towards the new ones; take buffers over."""
    # Those that are frozen for a while stand where they stood, but must be there when SWA begins to follow.
    pairs = list(zip(averaged.parameters(), model.parameters(), strict=True))
    torch._foreach_lerp_([mean for mean, _ in pairs], [new for _, new in pairs], share)
    for mine, theirs in zip(averaged.buffers(), model.buffers(), strict=True):
        mine.copy_(theirs)
