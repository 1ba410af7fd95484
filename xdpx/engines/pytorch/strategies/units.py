"""Which parts of a sharded model are gathered and freed together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from torch import nn

from xdpx.engines.pytorch.strategies.base import FsdpLike
from xdpx.logger import log

CONTAINERS = (nn.ModuleList, nn.ModuleDict)
"""Modules without a forward pass of their own, so nothing would gather them as units."""


def units_of(model: nn.Module, options: FsdpLike) -> list[nn.Module]:
    """Return the modules below a model that become units of their own, inner ones first. The rest is one more unit.

    Raises:
        ValueError: the model has no layer of a requested class.
    """
    if options.wrap == "transformer":
        found = _by_class(model, options.layer_classes)
    elif options.wrap == "size" and options.min_num_params > 0:
        found = _by_size(model, options.min_num_params)
    else:
        found = []
    return without_tied(model, found)


def without_tied(model: nn.Module, modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the modules that share no weight with the rest of the model: tied weights in shards would be untied."""
    everywhere, alone = _uses(model), []
    for module in modules:
        inside = _uses(module)
        if not any(count > inside[key] > 0 for key, count in everywhere.items()):
            alone.append(module)
    return alone


def unsharded_parameters(model: nn.Module, options: FsdpLike) -> set[nn.Parameter]:
    """Return the parameters that are not sharded: scalars, and those of the ignored modules."""
    kept = {each for each in model.parameters() if each.dim() == 0}
    if options.ignored_modules:
        for name, module in model.named_modules():
            if name and re.fullmatch(options.ignored_modules, name):
                kept.update(module.parameters())
    return kept


def _by_class(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    wanted = set(names) or set(getattr(model, "_no_split_modules", None) or ())
    if not wanted:
        log.warning(
            f"fsdp: {type(model).__name__} does not say what its layers are, so each pass gathers it as a whole. "
            "Name the class of its layers in fsdp_config: transformer_layer_cls_to_wrap to need less memory."
        )
        return []
    below = list(model.modules())[1:]
    found = [module for module in below if type(module).__name__ in wanted]
    absent = set(names) - {type(module).__name__ for module in found}
    if absent:
        classes = sorted({type(module).__name__ for module in below})
        raise ValueError(
            f"fsdp_config: transformer_layer_cls_to_wrap names {', '.join(sorted(absent))}, but there is no such layer "
            f"in {type(model).__name__}. It has: {', '.join(classes)}."
        )
    return found[::-1]


def _by_size(model: nn.Module, minimum: int) -> list[nn.Module]:
    """Return units from the bottom up: a module becomes one if enough of its parameters are in no unit yet."""
    units: list[nn.Module] = []

    def visit(module: nn.Module) -> int:
        """Return the number of parameters of a module that are in no unit yet."""
        total = _count(module.parameters())
        if total < minimum:
            return total
        if not isinstance(module, nn.MultiheadAttention):  # it uses its parts without calling them
            total = _count(module.parameters(recurse=False)) + sum(visit(child) for child in module.children())
        if total < minimum or isinstance(module, CONTAINERS) or module is model:
            return total
        units.append(module)
        return 0

    visit(model)
    return units


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _uses(module: nn.Module) -> Counter[int]:
    return Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))
