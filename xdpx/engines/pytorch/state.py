"""The state of the PyTorch engine between updates."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from xdpx.config.faults import ConfigError, Fault, first_few
from xdpx.engines.base import Task
from xdpx.engines.pytorch.averaging import OptimizersAverage
from xdpx.engines.pytorch.loss_scale import LossScale
from xdpx.engines.pytorch.products import Products
from xdpx.engines.pytorch.strategies.base import Strategy
from xdpx.engines.pytorch.strategies.states import OtherWeights, fill_weights
from xdpx.engines.pytorch.update import UpdateTaker
from xdpx.utils.host_memory import copy_to_host


@dataclass
class PyTorchState:
    """Weights, optimizer and everything else an update changes. Only the engine looks inside.

    Attributes:
        task: holds the model that is trained.
        optimizer: None in a state that can only score.
        settings: of the optimizer's groups when it was made, to detect changes when resuming.
        own_average: swaps trained and averaged weights if the optimizer averages them itself; otherwise None.
        averaged: a second task whose model holds the averaged (EMA, SWA) weights; None without averaging.
        taker: takes the updates; None in a state that can only score.
        loss_scale: of fp16; its factor is 1 otherwise.
        num_updates: updates taken, skipped ones included.
        products: computes the linear layers of a state that can only score; None before the first use, and elsewhere.
        update_parts, score_parts: number of parts a batch is split into since memory ran out; 1 leaves it whole.
    """

    task: Task
    optimizer: Any = None
    settings: list[dict[str, Any]] = field(default_factory=list)
    averaged: Task | None = None
    own_average: OptimizersAverage | None = None
    taker: UpdateTaker | None = None
    loss_scale: LossScale = field(default_factory=LossScale)
    num_updates: int = 0
    products: Products | None = None
    update_parts: int = 1
    score_parts: int = 1


def averaging_copy(task: Task) -> Task:
    """Return a copy of a task whose weights need no gradient."""
    twin = copy.deepcopy(task)
    twin.model.requires_grad_(requires_grad=False)
    twin.model.eval()
    return twin


def copied(tree: object) -> Any:
    """Copy nested dicts and lists of tensors to the host; a tensor that occurs twice is copied once."""
    return _copied(tree, {})


def _copied(tree: object, seen: dict[int, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        if id(tree) not in seen:
            seen[id(tree)] = copy_to_host(tree)
        return seen[id(tree)]
    if isinstance(tree, Mapping):
        return {name: _copied(value, seen) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_copied(value, seen) for value in tree)
    return tree


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model by name; a tied tensor is one object under all of its names."""
    return dict(model.state_dict(keep_vars=True))


def fill_model(model: nn.Module, weights: Mapping[str, Any], *, source: str, strategy: Strategy | None = None) -> None:
    """Copy weights into a model, all of them and nothing else.

    Args:
        model: prepared by the strategy, if there is one.
        weights: by name.
        source: where they come from, for errors.
        strategy: fills the models of all processes, which must all call this; None fills this process's model alone.

    Raises:
        ConfigError: they belong to another model.
    """
    try:
        if strategy is None:
            fill_weights(model, weights, strict=True, alone=True)
        else:
            strategy.load_weights(model, weights, strict=True)
    except OtherWeights as error:
        remedy = "Use the config and the data that these weights were trained with."
        raise ConfigError(source, [Fault("model", _difference(error), remedy)]) from error


def _difference(found: OtherWeights) -> str:
    if found.missing or found.unexpected:
        missing, surplus = (first_few(sorted(names), 4) or "nothing" for names in (found.missing, found.unexpected))
        return f"is another one: {missing} not in the checkpoint, {surplus} only there."
    name, (given, own) = next(iter(found.sizes.items()))
    return f"has other sizes in {len(found.sizes)} weights: {name} is {given} in the checkpoint, {own} here."
