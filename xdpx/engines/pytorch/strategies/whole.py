"""Strategies in which every process holds the whole model: one process, one with threads for GPUs, or several."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from xdpx.engines.pytorch import collectives, transfer
from xdpx.engines.pytorch.buffers import Buffers
from xdpx.engines.pytorch.precision import hand_over
from xdpx.engines.pytorch.strategies.base import DdpOptions
from xdpx.engines.pytorch.strategies.state_dicts import HandsOver, unwrapped
from xdpx.engines.pytorch.strategies.states import any_trained
from xdpx.engines.pytorch.world import World
from xdpx.logger import log

NOTHING: AbstractContextManager[None] = nullcontext()
"""One empty context suffices: it can be entered any number of times."""


class Single(HandsOver):
    """Implements `strategies.base.Strategy` for one process and one device; base class of the others here.

    Args:
        world: the place of this process.
        place: whether `prepare` moves the model to the device; a model already on several devices is never moved.
    """

    shards: bool = False
    passes_alone: bool = True

    def __init__(self, world: World, *, place: bool = True) -> None:
        self.world = world
        self._place = place

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model itself, on the device."""
        return self._placed(model)

    def unwrap(self, model: nn.Module) -> nn.Module:
        """Return the model that the user made, without any wrappers."""
        return unwrapped(model)

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Return an empty context: there are no processes to exchange gradients with."""
        del model, last
        return NOTHING

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the norm of gradients, which every process has whole; see `Strategy.norm`."""
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        return norm

    @torch.no_grad()
    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Scale gradients down to a norm; see `Strategy.clip`."""
        parameters = [each for each in parameters if each.grad is not None]
        gradients = [each.grad for each in parameters if each.grad is not None]
        if len({(each.device, each.dtype) for each in gradients}) != 1:
            norm = nn.utils.get_total_norm(gradients)
            if max_norm > 0:
                nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
            return norm
        # The same computation as these two functions, without grouping gradients by device and type: on a small model
        # the grouping takes twice as long as everything else.
        norm = self.norm(gradients)
        reads = max_norm > 0 and norm.dtype is torch.float32 and transfer.is_free_to_read(norm.device)
        if reads and isfinite(size := norm.item()):
            factor = _clip_factor(size, max_norm)
            if factor != 1.0:
                torch._foreach_mul_(gradients, factor)
        elif max_norm > 0:
            torch._foreach_mul_(gradients, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        return norm

    def _placed(self, model: nn.Module) -> nn.Module:
        return model.to(self.world.device) if self._place and not _spread(model) else model


def _clip_factor(norm: float, max_norm: float) -> float:
    """Return min(1, max_norm / (norm + 1e-6)) as torch computes it in float32, without its four small kernels.

    The norm is finite: NumPy would warn of others.
    """
    if max_norm > 1.001 * (norm + 1e-6):
        return 1.0
    single = np.float32
    return min(float(single(1) / (single(norm) + single(1e-6)) * single(max_norm)), 1.0)


class DataParallel(Single):
    """One process and several GPUs: each GPU takes a part of every batch, in its own thread."""

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model with its copies on the other GPUs."""
        model = self._placed(model)
        if self.world.num_gpus < 2 or _spread(model):
            return model
        log.warning(
            f"this one process drives {self.world.num_gpus} GPUs by nn.DataParallel: a batch is that many times as "
            f"large, and slow. Start `torchrun --nproc_per_node {self.world.num_gpus}` with the same script instead, "
            "or name one GPU in CUDA_VISIBLE_DEVICES."
        )
        spread = nn.DataParallel(model)
        hand_over(model, spread)
        return spread


class Replicated(Single):
    """Every process has the model and a part of each batch; gradients are summed once per update, in few exchanges.

    The model is not wrapped, so a task may call any of its parts any number of times, and a process may split its
    micro-batches further than the others (if memory ran out): no exchange depends on a pass.
    """

    _buffers: Buffers | None = None  # of the model that is trained

    @property
    def mean_over(self) -> int:
        """1: gradients are sums over processes."""
        return 1

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model itself, on the device, with the weights of the first process."""
        model = self._placed(model)
        for tensor in {id(each): each for each in (*model.parameters(), *model.buffers())}.values():
            collectives.broadcast_tensor_(tensor.detach())
        return model

    def begin(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Note the buffers of the model; see `Strategy.begin`."""
        del optimizer
        self._buffers = Buffers(model)

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum gradients over processes. A weight without a gradient on some processes gets the sum of the others.

        Buffers that the passes have changed become those of the first process, as DDP has it.
        """
        sum_over_processes(parameters, self._buffers)


def sum_over_processes(parameters: Sequence[Tensor], buffers: Buffers | None = None) -> None:
    """Sum gradients over processes, and copy changed buffers of the first one to all, in few exchanges.

    Which weights have a gradient is exchanged on the host, so that nothing waits for the device.
    """
    there = where_gradients_are(parameters, buffers)
    by_kind: dict[torch.dtype, list[Tensor]] = {}
    for parameter, number in zip(parameters, there, strict=True):
        if number:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = gradient.to_dense() if gradient.is_sparse else gradient
            by_kind.setdefault(gradient.dtype, []).append(parameter.grad)
    for bucket in (each for gradients in by_kind.values() for each in _buckets(gradients)):
        flat = torch.cat([each.reshape(-1) for each in bucket])
        dist.all_reduce(flat)
        pieces = torch.split(flat, [each.numel() for each in bucket])
        torch._foreach_copy_(bucket, [piece.view_as(each) for piece, each in zip(pieces, bucket, strict=True)])


def where_gradients_are(parameters: Sequence[Tensor], buffers: Buffers | None) -> list[int]:
    """Return how many processes have a gradient of each weight; copy changed buffers of the first process to all."""
    changed = [] if buffers is None else buffers.changed()
    flags = torch.tensor([*(each.grad is not None for each in parameters), *changed]).int()
    counts: list[int] = collectives.sum_over_ranks(flags).tolist()
    if buffers is not None:
        buffers.share(counts[len(parameters) :])
    return counts[: len(parameters)]


BUCKET = 1 << 25
"""Number of gradient elements that are exchanged together."""


def _buckets(gradients: list[Tensor]) -> Generator[list[Tensor]]:
    """Yield the gradients in groups of at least `BUCKET` elements (the last may have fewer), in order."""
    bucket: list[Tensor] = []
    size = 0
    for gradient in gradients:
        bucket.append(gradient)
        size += gradient.numel()
        if size >= BUCKET:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


class Distributed(Single):
    """Every process has the model and a part of each batch; gradients are averaged (DDP)."""

    def __init__(self, world: World, options: DdpOptions | None = None, *, place: bool = True) -> None:
        super().__init__(world, place=place)
        self.options = options or DdpOptions()
        self.passes_alone = self.options.after_passes
        self._buffers: Buffers | None = None
        self._averaged: dict[int, Tensor] = {}  # by id: weights that were trained when DDP wrapped the model
        self._frozen: list[Tensor] = []  # the others
        self._has_passed = True  # whether the last micro-batch called what DDP wrapped, so that it averages gradients

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model wrapped in DDP, or as it is if it has nothing to train."""
        model = self._placed(model)
        self._averaged = {id(each): each for each in model.parameters() if each.requires_grad}
        self._frozen = [each for each in model.parameters() if not each.requires_grad]
        if self.options.broadcast_buffers is not False:
            self._buffers = Buffers(model)
        if isinstance(model, DistributedDataParallel) or not any(each.requires_grad for each in model.parameters()):
            return model
        on_one_gpu = self.world.device.type == "cuda" and not _spread(model)
        wrapped = DistributedDataParallel(
            model, device_ids=[self.world.device.index] if on_one_gpu else None, **self._chosen(model)
        )
        wrapped.register_forward_pre_hook(self._note_pass)
        return wrapped

    def _note_pass(self, wrapped: DistributedDataParallel, _: object) -> None:
        if wrapped.require_backward_grad_sync and torch.is_grad_enabled():
            self._has_passed = True

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Return a context that keeps gradients to this process until the last micro-batch."""
        if not isinstance(model, DistributedDataParallel):
            return NOTHING
        if last and not self.options.after_passes:
            self._has_passed = not model._forward_pre_hooks  # a user's own DDP is not listened to
            return NOTHING
        context: AbstractContextManager[Any] = model.no_sync()
        return context

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Average gradients that DDP has not: those of weights that were frozen or absent when it wrapped the model.

        With `after_passes`, or if the loss called the model without DDP around it (`self.model`, `model.module`),
        average those of all weights, and copy the first process's buffers to all.
        """
        if self.options.after_passes or not self._has_passed:
            self._average(parameters, self._buffers)
        elif any_trained(self._frozen) or len(parameters) > len(self._averaged) + len(self._frozen):
            self._average([each for each in parameters if each.requires_grad and id(each) not in self._averaged])

    def _average(self, parameters: Sequence[Tensor], buffers: Buffers | None = None) -> None:
        sum_over_processes(parameters, buffers)
        torch._foreach_div_([each.grad for each in parameters if each.grad is not None], self.world.size)

    def _chosen(self, model: nn.Module) -> dict[str, Any]:
        options = self.options
        chosen: dict[str, Any] = {"bucket_cap_mb": options.bucket_cap_mb, "static_graph": options.static_graph}
        chosen["forward_sync_buffers"] = options.broadcast_buffers  # torch's name for it since 2.13
        chosen["find_unused_parameters"] = options.find_unused_parameters
        if options.find_unused_parameters is None:
            # As in the original (Transformers): searching for unused weights conflicts with recomputing activations.
            recomputes = getattr(model, "is_activation_checkpointing", None)  # since transformers 5.2
            if recomputes is None:
                recomputes = getattr(model, "is_gradient_checkpointing", False)
            chosen["find_unused_parameters"] = not recomputes
        return {name: value for name, value in chosen.items() if value is not None}


def spans_devices(model: nn.Module) -> bool:
    """Return whether the model was loaded onto several devices (`device_map`)."""
    return len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1


def _spread(model: nn.Module) -> bool:
    """Return whether the model was loaded onto several devices, or quantised: then it must not be moved."""
    return spans_devices(model) or bool(getattr(model, "is_quantized", False))
