"""Convert weights and optimizer states between whole tensors and what each process holds, whole or as shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.collectives import TensorSlot
from xdpx.utils.host_memory import copy_to_host

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


class OtherWeights(RuntimeError):
    """Raised if weights belong to another model.

    Attributes:
        missing: names that were not given.
        unexpected: names that the model does not have.
        sizes: (given, own) size by name, where they differ.
    """

    def __init__(
        self, missing: list[str], unexpected: list[str], sizes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    ) -> None:
        self.missing, self.unexpected, self.sizes = missing, unexpected, sizes
        faults = [f"{name} is not in the file" for name in missing]
        faults += [f"{name} is not in the model" for name in unexpected]
        faults += [f"{name} is {given} in the file and {own} in the model" for name, (given, own) in sizes.items()]
        listed = "\n  ".join(faults[:8]) + (f"\n  and {len(faults) - 8} more" if len(faults) > 8 else "")
        super().__init__(
            f"weights: these are from another model:\n  {listed}\nUse the model that they were saved with, or take "
            "out of the file what the model should learn from scratch."
        )


def whole_weights(model: nn.Module, *, wanted: bool, copied: bool = False) -> dict[str, Tensor]:
    """Return the whole tensors of a model by name, on the host; {} where they are not wanted. On all processes."""
    return whole_tensors(model.state_dict(keep_vars=True), wanted=wanted, copied=copied)


def whole_tensors(tensors: Mapping[str, Tensor], *, wanted: bool, copied: bool = False) -> dict[str, Tensor]:
    """Return tensors, possibly sharded over processes, in the same way as `whole_weights`."""
    whole: dict[int, Tensor] = {}
    named: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if id(value) not in whole:  # tied weights are one tensor, and are gathered once
            whole[id(value)] = _whole(value, wanted=wanted, copied=copied)
        if wanted:
            named[name] = whole[id(value)]
    return named


def fill_weights(
    model: nn.Module, weights: Mapping[str, Tensor], *, strict: bool, alone: bool = False
) -> tuple[list[str], list[str]]:
    """Load weights into a model; see `Strategy.load_weights`. On all processes, or with `alone` on this one only."""
    own = model.state_dict(keep_vars=True)
    travel = not alone and not collectives.all_have(weights)
    shapes = {name: tuple(value.shape) for name, value in weights.items() if isinstance(value, Tensor)}
    shapes = collectives.broadcast_object(shapes) if travel else shapes
    missing, unexpected = _differences(own, shapes)
    _refuse_differences(own, shapes, (missing, unexpected) if strict else ([], []))
    if not travel and not any(is_shard(value) for value in own.values()):
        model.load_state_dict(weights, strict=False)  # a model may have hooks of its own
        return missing, unexpected
    filled: set[int] = set()
    with torch.no_grad():
        for name, target in own.items():
            if name in shapes and isinstance(target, Tensor) and id(target) not in filled:
                _fill(target, weights.get(name), travel=travel)
                filled.add(id(target))
    return missing, unexpected


def whole_optimizer_state(optimizer: Optimizer, *, wanted: bool, copied: bool = False) -> dict[str, Any]:
    """Return `optimizer.state_dict()` with whole tensors on the host; {} where not wanted. On all processes."""
    whole = collectives.map_tensors(lambda value: _whole(value, wanted=wanted, copied=copied), optimizer.state_dict())
    return dict(whole) if wanted else {}


def fill_optimizer(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """Load a whole state into an optimizer; see `Strategy.load_optimizer_state`. On all processes."""
    outline, tensors = collectives.flatten(dict(saved))
    travel = not collectives.all_have(saved)
    outline = collectives.broadcast_object(outline) if travel else outline
    refuse_other_groups(optimizer, outline)
    state = {}
    for index, parameter in enumerate(parameters_of(optimizer)):
        if index in outline["state"]:
            # One whole tensor at a time, of which only this process's shard is kept.
            state[index] = collectives.unflatten(
                outline["state"][index],
                lambda place, parameter=parameter: like(  # type: ignore[misc]
                    parameter, collectives.receive(place, tensors) if travel else tensors[place.index]
                ),
            )
    _refuse_other_shapes(optimizer, state)
    groups = collectives.unflatten(outline["param_groups"], lambda place: _plain(place, tensors, travel=travel))
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def is_shard(value: object) -> TypeGuard[DTensor]:
    """Return whether a value is a DTensor, of which a process holds a shard. Avoids the slow import of its module."""
    return isinstance(value, Tensor) and hasattr(value, "device_mesh")


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of an optimizer in the order of their indices in its `state_dict`."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def any_trained(weights: Iterable[Tensor]) -> bool:
    """Return whether any of some weights requires gradients; it is asked at every update."""
    return any(map(attrgetter("requires_grad"), weights))


def like(parameter: Tensor, whole: Tensor) -> Tensor:
    """Return a whole tensor sharded like a parameter of the same shape.

    Anything else, such as a step count, is returned as it is.
    """
    if is_shard(parameter) and whole.shape == parameter.shape and whole.dim() > 0:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return whole


def refuse_other_groups(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """Compare the parameter groups of a saved state with those of an optimizer.

    Raises:
        ValueError: they differ in number or size.
    """
    if not {"state", "param_groups"} <= saved.keys():
        raise ValueError(
            f"optimizer state: has {sorted(saved) or 'nothing'} in it; it must have 'state' and 'param_groups', as "
            "optimizer.state_dict() gives. Resume from another checkpoint, or with the optimizer left out."
        )
    have = [len(group["params"]) for group in optimizer.param_groups]
    given = [len(group["params"]) for group in saved["param_groups"]]
    if have != given:
        raise ValueError(
            f"optimizer state: its groups have {given} parameters, those of this optimizer {have}. It was saved with "
            "another model, other frozen weights, or other parameter groups: use the ones it was saved with."
        )


OF_A_WEIGHTS_SHAPE = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg", "sum"}
"""Names of states that optimizers of torch keep in the shape of the weight."""


def _refuse_other_shapes(optimizer: Optimizer, state: Mapping[int, Mapping[str, Any]]) -> None:
    """Raise ValueError if states fit no weight in their place; fused steps of torch would write beyond their memory."""
    if not type(optimizer).__module__.startswith("torch.optim."):  # others may keep them in fewer numbers
        return
    for index, parameter in enumerate(parameters_of(optimizer)):
        for name in sorted(OF_A_WEIGHTS_SHAPE & state.get(index, {}).keys()):
            value = state[index][name]
            if isinstance(value, Tensor) and value.shape != parameter.shape:
                raise ValueError(
                    f"optimizer state: {name} of weight {index} is {tuple(value.shape)}, and the weight "
                    f"{tuple(parameter.shape)}. It was saved with another model, or with its weights in another order: "
                    "use the one it was saved with."
                )


def _whole(value: object, *, wanted: bool, copied: bool) -> Any:
    if not isinstance(value, Tensor):
        return value
    gathered = value.full_tensor().detach() if is_shard(value) else value.detach()
    if not wanted:
        return gathered.new_empty(0)  # a placeholder: the caller drops it
    # A tensor gathered from several processes is already a copy.
    if copied and (not is_shard(value) or value.device_mesh.size() == 1):
        return copy_to_host(gathered)
    return gathered.to("cpu")


def _fill(target: Tensor, source: Tensor | None, *, travel: bool) -> None:
    """Copy a whole tensor (with `travel`, that of the first process) into a weight or this process's shard of it."""
    if is_shard(target):
        from torch.distributed.tensor import distribute_tensor

        device = torch.device(target.device_mesh.device_type)
        value = torch.empty(target.shape, dtype=target.dtype, device=device)
        if source is not None:
            value.copy_(source)
        origin = 0 if travel else None
        shard = distribute_tensor(value, target.device_mesh, target.placements, src_data_rank=origin)
        target.to_local().copy_(shard.to_local())
    else:
        if source is not None:
            target.copy_(source)
        if travel:
            collectives.broadcast_tensor_(target)


def _plain(place: TensorSlot, tensors: list[Tensor], *, travel: bool) -> Tensor:
    return collectives.receive(place, tensors) if travel else tensors[place.index]


def _differences(own: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return (missing, unexpected) names. A name is not missing if a weight tied to it is given."""
    there = {id(value) for name, value in own.items() if name in given}
    absent = [name for name, value in own.items() if name not in given and isinstance(value, Tensor)]
    missing = [name for name in absent if id(own[name]) not in there]
    return missing, [name for name in given if name not in own]


def _refuse_differences(
    own: Mapping[str, Any], given: Mapping[str, tuple[int, ...]], names: tuple[list[str], list[str]]
) -> None:
    sizes = {
        name: (shape, tuple(own[name].shape))
        for name, shape in given.items()
        if name in own and tuple(own[name].shape) != shape
    }
    if any(names) or sizes:
        raise OtherWeights(*names, sizes)
