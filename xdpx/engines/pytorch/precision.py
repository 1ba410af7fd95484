"""The precision a model computes in: autocast around its forward pass, and the loss scale of fp16."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch.collectives import map_tensors
from xdpx.engines.pytorch.loss_scale import refuse_scale
from xdpx.engines.pytorch.options import AUTOCAST, MIN_LOSS_SCALE

Mode = Literal["no", "bf16", "fp16"]


class Precision:
    """Sets the precision a model computes in; its weights keep their own type unless `full`.

    Args:
        mode: "no" changes nothing.
        device: where the model computes.
        full: `attach` casts the weights themselves; for evaluation only.

    Attributes:
        scaler: a `torch.amp.GradScaler` under fp16, else None.
        skipped: whether the last step was left out.
    """

    def __init__(self, mode: Mode, device: torch.device, *, full: bool = False) -> None:
        if mode not in {"no", *AUTOCAST}:
            raise ValueError(f"precision: is '{mode}'. Use no, bf16 or fp16.")
        self.mode = mode
        self.device = device
        self.full = full
        self.dtype = AUTOCAST.get(mode)
        self.skipped = False
        self._nothing: AbstractContextManager[None] = nullcontext()
        scales = mode == "fp16" and not full
        self.scaler = torch.amp.GradScaler(device.type) if scales else None

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the autocast context; an empty one with "no" or `full`."""
        if self.dtype is None or self.full:
            return self._nothing
        return torch.autocast(self.device.type, dtype=self.dtype)

    def attach(self, model: nn.Module) -> Callable[[], None]:
        """Make every forward pass of a model run under autocast and return float32; return a function to undo it.

        This covers only the forward pass: a loss that a user computes from the outputs is computed in float32.
        Attach before a strategy prepares the model. With `full` the weights are cast instead, and stay cast.
        """
        if self.dtype is None:
            return _nothing_to_do
        if self.full:
            model.to(self.dtype)
            return _nothing_to_do
        if isinstance(model.__dict__.get("forward"), _InPrecision):
            return _nothing_to_do
        attached = _InPrecision(model.forward, self, replaces=model.__dict__.get("forward"))
        model.forward = attached
        return functools.partial(attached.detach, model)

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Add the gradients of a loss, under fp16 of the scaled loss; `options` are those of torch."""
        torch.autograd.backward(loss if self.scaler is None else self.scaler.scale(loss), **options)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the loss scale, once per step and before they are clipped."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, number: int) -> bool:
        """Take the step of update `number`; return whether it was skipped because gradients overflowed (fp16 only).

        Waits for the device only under fp16, where the schedule depends on the result.

        Raises:
            FloatingPointError: gradients overflow at any loss scale.
        """
        if self.scaler is None:
            optimizer.step()
            self.skipped = False
        else:
            before = self.scaler.get_scale()
            self.scaler.step(optimizer)
            self.scaler.update()
            after = self.scaler.get_scale()
            self.skipped = after < before
            if self.skipped:
                refuse_scale(after, MIN_LOSS_SCALE, number)
        return self.skipped

    def leave_out(self) -> None:
        """Skip the step, after `unscale`."""
        self.skipped = True
        if self.scaler is not None:
            self.scaler.update()


def hand_over(model: nn.Module, wrapper: nn.Module) -> None:
    """Move the precision attached to a model to a wrapper around it.

    For wrappers that call copies of the model: a copied attachment would call the original model.
    """
    attached = model.__dict__.get("forward")
    if isinstance(attached, _InPrecision):
        attached.detach(model)
        attached.precision.attach(wrapper)


class _InPrecision:
    """Replaces the `forward` of a model. A class, not a closure, so that the model can still be copied."""

    def __init__(
        self, forward: Callable[..., Any], precision: Precision, *, replaces: Callable[..., Any] | None
    ) -> None:
        functools.update_wrapper(self, forward)  # so that its signature is that of the model
        self._forward = forward
        self._replaces = replaces
        self.precision = precision

    def detach(self, model: nn.Module) -> None:
        """Restore the model's own `forward`."""
        model.__dict__.pop("forward", None)
        if self._replaces is not None:
            model.forward = self._replaces

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.precision.autocast():
            outputs = self._forward(*args, **kwargs)
        return in_float32(outputs)


def in_float32(tree: object) -> Any:
    """Return the same tree with its half precision tensors as float32; without any, the very same object."""
    halves = {torch.float16, torch.bfloat16}
    if isinstance(tree, Tensor):
        return tree.float() if tree.dtype in halves else tree
    if not isinstance(tree, Mapping | list | tuple) or not _any_of(tree, halves):
        return tree
    return map_tensors(lambda each: each.float() if each.dtype in halves else each, tree)


def in_type(tree: object, dtype: torch.dtype | None) -> Any:
    """Return the same tree with its floating point tensors in another type; None changes nothing."""
    if dtype is None:
        return tree
    return map_tensors(lambda each: each.to(dtype) if each.is_floating_point() else each, tree)


def _any_of(tree: object, types: set[torch.dtype]) -> bool:
    if isinstance(tree, Tensor):
        return tree.dtype in types
    parts: Iterable[Any] = ()
    if isinstance(tree, Mapping):
        parts = tree.values()
    elif isinstance(tree, list | tuple):
        parts = tree
    return any(_any_of(part, types) for part in parts)


def _nothing_to_do() -> None:
    """Do nothing."""
