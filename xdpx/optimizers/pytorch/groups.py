"""The parameter groups of a Trainer's optimizer: with and without weight decay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from xdpx.utils.weight_decay import decays


def decay_names(model: nn.Module) -> list[str]:
    """Return the names of the parameters with weight decay, including frozen ones, innermost modules first.

    Excluded are parameters of an `nn.LayerNorm` and those named as bias or normalisation. A shared parameter is listed
    under each of its names.
    """
    return [name for name, num_dims in _named(model) if decays("trainer", name, num_dims)]


def _named(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield (name, number of dimensions) of each parameter outside of layer norms; 0 for a parameter that is None."""
    for name, child in module.named_children():
        if not isinstance(child, nn.LayerNorm):
            yield from _named(child, f"{prefix}{name}.")
    yield from ((prefix + name, 0 if weight is None else weight.ndim) for name, weight in module._parameters.items())


def decay_groups(model: nn.Module, weight_decay: float, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Return the trainable parameters in two groups, with and without weight decay, in the order of the model.

    Args:
        model: The model; shared parameters are included once.
        weight_decay: Of the first group; the second has 0.
        names: Parameters with weight decay; by default `decay_names(model)`.

    Returns:
        Two groups, even if one is empty, so that the state of an optimizer has the same structure for every model.
        More only if the parameters are on several device meshes, as a fused kernel needs a single one.
    """
    decayed = frozenset(decay_names(model) if names is None else names)
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [weight for name, weight in trained if name in decayed], "weight_decay": weight_decay},
        {"params": [weight for name, weight in trained if name not in decayed], "weight_decay": 0.0},
    ]
    return by_mesh(groups)


def by_mesh(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups, split further by device mesh if their parameters are on several."""
    meshes = {_mesh_of(weight) for weight in chain.from_iterable(group["params"] for group in groups)}
    if len(meshes) < 2:
        return groups
    return [piece for group in groups for piece in _split(group)]


def _split(group: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pieces: dict[DeviceMesh | None, list[nn.Parameter]] = {}
    for weight in group["params"]:
        pieces.setdefault(_mesh_of(weight), []).append(weight)
    return ({**group, "params": weights} for weights in pieces.values())


def _mesh_of(weight: nn.Parameter) -> DeviceMesh | None:
    return getattr(weight, "device_mesh", None)
