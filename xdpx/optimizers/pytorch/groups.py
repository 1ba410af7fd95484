"""Which weights decay: the two groups of parameters that a Trainer hands to its optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from xdpx.utils.weight_decay import decays


def decay_names(model: nn.Module) -> list[str]:
    """Return the names of the parameters that weight decay pulls on, frozen ones included, innermost modules first.

    Left out are those inside an `nn.LayerNorm` and those whose name says bias or normalisation. A weight that stands
    in several places appears under each of its names.
    """
    return [name for name, num_dims in _named(model) if decays("trainer", name, num_dims)]


def _named(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the name and the number of dimensions of each parameter outside of layer norms; 0 for one that is None."""
    for name, child in module.named_children():
        if not isinstance(child, nn.LayerNorm):
            yield from _named(child, f"{prefix}{name}.")
    yield from ((prefix + name, 0 if weight is None else weight.ndim) for name, weight in module._parameters.items())


def decay_groups(model: nn.Module, weight_decay: float, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Split the trainable parameters into those that decay and those that do not, in the order of the model.

    Args:
        model: Whose parameters are asked for by `named_parameters`, so a shared weight counts once.
        weight_decay: Of the first group; the second has 0.
        names: Which parameters decay; `decay_names(model)` when not given.

    Returns:
        Two groups, also where one is empty, so that the state of an optimizer has one shape for every model; more
        only where the parameters lie on several device meshes, which no fused kernel can span.
    """
    decayed = frozenset(decay_names(model) if names is None else names)
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [weight for name, weight in trained if name in decayed], "weight_decay": weight_decay},
        {"params": [weight for name, weight in trained if name not in decayed], "weight_decay": 0.0},
    ]
    return by_mesh(groups)


def by_mesh(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Split the groups further where parameters lie on several device meshes; return them as they are otherwise."""
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
