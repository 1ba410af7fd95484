"""Activations that are computed again in the backward pass instead of being kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute(module: nn.Module) -> None:
    """Let a module keep its inputs alone for the backward pass, and run its forward pass a second time there.

    The module stays what it is, with the same names of weights: a wrapper around it would change both.
    """
    if not isinstance(module.__dict__.get("forward"), _Recomputed):
        module.forward = _Recomputed(module.forward)


class _Recomputed:
    """Stands in for the `forward` of a module."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        functools.update_wrapper(self, forward)
        self._forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._forward(*args, **kwargs)
        return checkpoint(self._forward, *args, use_reentrant=False, **kwargs)
