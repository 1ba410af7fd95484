"""Strategies in which every process holds the whole model: alone, on several GPUs by threads, or as DDP."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.precision import hand_over
from xdpx.engines.pytorch.strategies.base import DdpOptions
from xdpx.engines.pytorch.strategies.state_dicts import HandsOver, unwrapped
from xdpx.engines.pytorch.world import World
from xdpx.logger import log

NOTHING: AbstractContextManager[None] = nullcontext()
"""An empty context may be entered any number of times: there need be only one."""


class Single(HandsOver):
    """Implements `strategies.base.Strategy` for one process and one device; the others here build on it.

    Args:
        world: where this process stands.
        place: whether `prepare` moves the model to the device; a model that is spread over devices already stays.
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
        """Return the model that the user made, whatever is around it."""
        return unwrapped(model)

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Return an empty context: there is nobody to exchange gradients with."""
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
        # What these two do, number by number, without sorting the gradients by device and type: on a small model
        # that takes twice as long as all the rest.
        norm = self.norm(gradients)
        if max_norm > 0:
            torch._foreach_mul_(gradients, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        return norm

    def _placed(self, model: nn.Module) -> nn.Module:
        return model.to(self.world.device) if self._place and not _spread(model) else model


class DataParallel(Single):
    """One process and several GPUs: each takes a part of every batch in a thread of its own."""

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

    The model stays what it is, so that a task may call any of its parts, as often as it likes, and one process may take
    its micro-batches in smaller parts than the others (where memory ran out): no exchange is bound to a pass.
    """

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

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum gradients over processes. A weight that has none on some of them gets that of the others."""
        sum_over_processes(parameters)


def sum_over_processes(parameters: Sequence[Tensor]) -> None:
    """Sum gradients over processes, in few exchanges. Which weights have none is exchanged on the host.

    So nothing waits for the device.
    """
    there = collectives.sum_over_ranks(torch.tensor([each.grad is not None for each in parameters]).int()).tolist()
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


BUCKET = 1 << 25
"""Numbers that are exchanged together."""


def _buckets(gradients: list[Tensor]) -> Generator[list[Tensor]]:
    """Yield the gradients in groups of about `BUCKET` numbers, in their order, which is the same on all processes."""
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
        self._buffers: list[Tensor] = []

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model as DDP; one without anything to train is left as it is."""
        model = self._placed(model)
        self._buffers = list(model.buffers())
        if isinstance(model, DistributedDataParallel) or not any(each.requires_grad for each in model.parameters()):
            return model
        on_one_gpu = self.world.device.type == "cuda" and not _spread(model)
        return DistributedDataParallel(
            model, device_ids=[self.world.device.index] if on_one_gpu else None, **self._chosen(model)
        )

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Return a context that keeps gradients to this process until the last micro-batch."""
        if (last and not self.options.after_passes) or not isinstance(model, DistributedDataParallel):
            return NOTHING
        context: AbstractContextManager[Any] = model.no_sync()
        return context

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Bring gradients to their mean, and buffers to those of the first process, where no pass has done so."""
        if not self.options.after_passes:
            return
        sum_over_processes(parameters)
        torch._foreach_div_([each.grad for each in parameters if each.grad is not None], self.world.size)
        if self.options.broadcast_buffers is not False:
            for buffer in self._buffers:
                collectives.broadcast_tensor_(buffer)

    def _chosen(self, model: nn.Module) -> dict[str, Any]:
        options = self.options
        chosen: dict[str, Any] = {"bucket_cap_mb": options.bucket_cap_mb, "static_graph": options.static_graph}
        chosen["forward_sync_buffers"] = options.broadcast_buffers  # which torch calls so since 2.13
        chosen["find_unused_parameters"] = options.find_unused_parameters
        if options.find_unused_parameters is None:
            # As the original decides: looking for unused weights and computing activations anew do not go together.
            flags = ("is_activation_checkpointing", "is_gradient_checkpointing")
            chosen["find_unused_parameters"] = not any(getattr(model, flag, False) for flag in flags)
        return {name: value for name, value in chosen.items() if value is not None}


def _spread(model: nn.Module) -> bool:
    """Tell whether parts of the model were put on several devices, or quantised for one, when it was loaded."""
    places = getattr(model, "hf_device_map", None) or {}
    return len(set(places.values())) > 1 or bool(getattr(model, "is_quantized", False))
