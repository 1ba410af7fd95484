"""The strategy in which every process holds a shard of the weights, gradients and optimizer state (FSDP2)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.buffers import Buffers
from xdpx.engines.pytorch.options import AUTOCAST
from xdpx.engines.pytorch.strategies.base import FsdpLike, Result
from xdpx.engines.pytorch.strategies.state_dicts import HandsOver, unwrapped
from xdpx.engines.pytorch.strategies.units import units_of, unsharded_parameters, without_tied
from xdpx.engines.pytorch.strategies.whole import NOTHING, where_gradients_are
from xdpx.engines.pytorch.world import World, join_alone

REPLICATE, SHARD = "replicate", "shard"
PASS = "xdpx_pass"
"""Name of a method added to a model, because FSDP gathers weights only around the model's own methods."""


class Sharded(HandsOver):
    """Implements `strategies.base.Strategy` with `fully_shard`, on GPUs and, over gloo, on CPUs.

    Args:
        world: the place of this process.
        options: what is sharded, and how.
        precision: "no", "bf16" or "fp16": the type in which weights are gathered and used; shards keep their own.
        layers: returns the units of a model (parts that are gathered separately), instead of the options.
        every_pass: whether gradients are exchanged after each micro-batch instead of once per update.
    """

    shards: bool = True

    def __init__(
        self,
        world: World,
        options: FsdpLike,
        precision: str = "no",
        *,
        layers: Callable[[nn.Module], Sequence[nn.Module]] | None = None,
        every_pass: bool = False,
    ) -> None:
        self.world = world
        self.options = options
        self._precision = precision
        self._layers, self._every_pass = layers, every_pass
        self._exchanges = True
        self._inside = False  # whether `through` is running
        self._buffers: Buffers | None = None  # of the model that is trained
        if not dist.is_initialized():
            join_alone(world.device)
        self.mesh = self._new_mesh()

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the same model, its parameters replaced by shards. Make the optimizer from these."""
        if isinstance(model, FSDPModule):
            return model
        _refuse_empty_weights(model)
        self._take_first_weights(model)
        units = units_of(model, self.options) if self._layers is None else without_tied(model, self._layers(model))
        if self.options.activation_checkpointing:
            for unit in units or [model]:
                recompute(unit)
        settings = self._settings() | {"ignored_params": self._kept_whole(model)}
        for unit in [*units, model]:
            fully_shard(unit, **settings)
        if not self.options.reshard_after_forward:
            model.register_forward_hook(self._after_forward)
        if hasattr(model, "generate"):  # it calls the model's parts, whose weights must be gathered
            register_fsdp_forward_method(model, "generate")
        return model

    def through(self, model: nn.Module, work: Callable[[], Result]) -> Result:
        """Return the result of `work`, as one pass of the whole model; see `Strategy.through`.

        Weights outside of units are gathered before, and stay gathered while `work` calls the model or its parts, or
        reads its weights, any number of times; gradients flowing back from its result are exchanged.
        """
        inner: Any = unwrapped(model)
        if PASS not in vars(inner):
            setattr(inner, PASS, _call)
            register_fsdp_forward_method(inner, PASS)
            inner.set_reshard_after_forward(False, recurse=False)  # `work` may go on after it has called the model
        self._inside = True
        try:
            if torch.is_inference_mode_enabled():  # tensors gathered in inference mode cannot be used in training
                with torch.inference_mode(mode=False), torch.no_grad():
                    given: Result = vars(inner)[PASS](work)
            else:
                given = vars(inner)[PASS](work)
        finally:
            self._inside = False
        if given is None or not torch.is_grad_enabled():
            _share_out(inner)
        return given

    def begin(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Note the buffers of the model, which every process has whole; see `Strategy.begin`."""
        del optimizer
        self._buffers = Buffers(model)

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Check that the same weights have gradients on all processes; the backward pass has exchanged them already.

        Raises:
            RuntimeError: they differ, so the exchanged gradients are wrong.
        """
        odd = [each for each in where_gradients_are(parameters, self._buffers) if each not in {0, self.world.size}]
        if odd:
            raise RuntimeError(
                f"fsdp: {len(odd)} weights received a gradient on some processes and none on others, because the model "
                "uses parts of itself for some samples only. Sharing weights out cannot do that: use strategy: ddp."
            )

    def unwrap(self, model: nn.Module) -> nn.Module:
        """Return the model that the user made: `prepare` changes it in place."""
        return unwrapped(model)

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Make processes exchange gradients in the last micro-batch only, unless `every_pass`."""
        inner, exchanges = unwrapped(model), last or self._every_pass
        if exchanges != self._exchanges and isinstance(inner, FSDPModule):
            inner.set_requires_gradient_sync(exchanges)
            self._exchanges = exchanges
        return NOTHING

    @torch.no_grad()
    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the norm over all shards; see `Strategy.norm`."""
        return self._norm(*_locally(gradients))

    @torch.no_grad()
    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Scale gradients down to a norm over all shards; see `Strategy.clip`."""
        gradients = [each.grad for each in parameters if each.grad is not None]
        own, common = _locally(gradients)
        norm = self._norm(own, common)
        if max_norm > 0 and gradients:
            share = torch.clamp(max_norm / (norm + 1e-6), max=1.0)  # 1e-6 as in torch, so that norms agree
            torch._foreach_mul_(own + common, share.to(gradients[0].device))
        return norm

    def _after_forward(self, model: nn.Module, *_: object) -> None:
        if not self._inside and not torch.is_grad_enabled():
            _share_out(model)

    def _norm(self, own: list[Tensor], common: list[Tensor]) -> Tensor:
        squares = _sum_of_squares(own, self.world.device)
        dist.all_reduce(squares, group=self.mesh.get_group(SHARD))
        return (squares + _sum_of_squares(common, self.world.device)).sqrt()

    def _take_first_weights(self, model: nn.Module) -> None:
        """Copy the first process's weights to all processes, one tensor at a time by way of the device."""
        for tensor in {id(each): each.detach() for each in (*model.parameters(), *model.buffers())}.values():
            carried = collectives.broadcast_tensor_(tensor.to(self.world.device))
            if carried is not tensor:
                tensor.copy_(carried)

    def _kept_whole(self, model: nn.Module) -> set[nn.Parameter]:
        """Return the parameters that are not sharded, moved to the device, with hooks that average their gradients."""
        kept = unsharded_parameters(model, self.options)
        for parameter in kept:
            parameter.data = parameter.data.to(self.world.device)
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._average_gradient)  # type: ignore[no-untyped-call]
        return kept

    def _average_gradient(self, parameter: Tensor) -> None:
        if self._exchanges and parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= self.world.size

    def _new_mesh(self) -> DeviceMesh:
        """Return the mesh of processes: each row shares one copy of the model, and rows are replicas."""
        kind, size, local = self.options.strategy, self.world.size, self.world.local_size
        columns = 1 if kind == "no_shard" else local if kind.startswith("hybrid") else size
        if size % columns:
            raise ValueError(
                f"fsdp: {kind} needs equally many processes on each machine, but {size} in all do not go into {local} "
                "on this one. Start as many on each, or use full_shard."
            )
        return init_device_mesh(self.world.device.type, (size // columns, columns), mesh_dim_names=(REPLICATE, SHARD))

    def _settings(self) -> dict[str, Any]:
        """Return the arguments for `fully_shard`."""
        dtype = AUTOCAST.get(self._precision)
        offload = OffloadPolicy()
        if self.options.offload:
            offload = CPUOffloadPolicy(pin_memory=self.world.device.type == "cuda")
        rows = self.mesh.size(0)
        return {
            "mesh": self.mesh if rows > 1 else self.mesh[SHARD],
            "reshard_after_forward": self.options.reshard_after_forward,
            # Gradients are summed in float32: in half precision the sum would depend on the number of processes.
            "mp_policy": MixedPrecisionPolicy(dtype, torch.float32) if dtype else MixedPrecisionPolicy(),
            "offload_policy": offload,
        }


def _call(work: Callable[[], Result]) -> Result:
    return work()


def _share_out(model: nn.Module) -> None:
    """Free gathered weights after a pass without a backward pass; otherwise the model would keep them.

    The next pass would then use them with their values from before the update, and an optimizer made meanwhile would
    get the gathered weights instead of the shards.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _locally(gradients: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return this process's shards of sharded gradients, and the gradients that every process has whole."""
    own = [each.to_local() for each in gradients if isinstance(each, DTensor)]
    return own, [each for each in gradients if not isinstance(each, DTensor)]


def _sum_of_squares(gradients: list[Tensor], device: torch.device) -> Tensor:
    if not gradients:
        return torch.zeros((), device=device)
    return torch.stack(torch._foreach_norm(gradients)).float().to(device).square().sum()


def _refuse_empty_weights(model: nn.Module) -> None:
    empty = [name for name, each in model.named_parameters() if each.is_meta]
    if empty:
        raise ValueError(
            f"fsdp: {len(empty)} weights of {type(model).__name__} have no values yet (device 'meta'), such as "
            f"{empty[0]}. Load the model without device_map, or set fsdp_config: cpu_ram_efficient_loading to false."
        )


def recompute(module: nn.Module) -> None:
    """Make a module keep only its inputs for the backward pass, and run its forward pass again there.

    The module keeps its class and the names of its weights: a wrapper would change both.
    """
    if not isinstance(module.__dict__.get("forward"), _Recomputed):
        module.forward = _Recomputed(module.forward)


class _Recomputed:
    """Replaces the `forward` of a module."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        functools.update_wrapper(self, forward)
        self._forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._forward(*args, **kwargs)
        return checkpoint(self._forward, *args, use_reentrant=False, **kwargs)
