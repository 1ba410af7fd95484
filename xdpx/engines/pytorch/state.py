"""What the PyTorch engine carries from update to update."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError, Fault
from xdpx.engines.base import Task
from xdpx.engines.pytorch.loss_scale import LossScale
from xdpx.engines.pytorch.update import UpdateTaker


@dataclass
class PyTorchState:
    """Weights, optimizer and what else an update changes. Only the engine looks inside.

    Attributes:
        task: holds the model that is trained.
        optimizer: None in a state that only scores.
        settings: how the groups of the optimizer were made, to tell later what was changed since.
        averaged: a second task whose model holds the averaged (EMA, SWA) weights; None when no average is kept.
        taker: takes its updates; None in a state that only scores.
        loss_scale: of fp16; its factor is 1 otherwise.
        num_updates: updates taken, skipped ones included.
        update_parts, score_parts: into how many parts a batch is cut since memory ran out; 1 leaves it whole.
    """

    task: Task
    optimizer: Any = None
    settings: list[dict[str, Any]] = field(default_factory=list)
    averaged: Task | None = None
    taker: UpdateTaker | None = None
    loss_scale: LossScale = field(default_factory=LossScale)
    num_updates: int = 0
    update_parts: int = 1
    score_parts: int = 1


def averaging_copy(task: Task) -> Task:
    """Return a copy of a task whose weights need no gradient."""
    twin = copy.deepcopy(task)
    twin.model.requires_grad_(requires_grad=False)
    twin.model.eval()
    return twin


def copied(tree: Any) -> Any:
    """Copy nested dicts and lists of tensors to the host; a tensor that stands twice is copied once."""
    return _copied(tree, {})


def _copied(tree: Any, seen: dict[int, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        if id(tree) not in seen:
            seen[id(tree)] = tree.detach().to("cpu", copy=True)
        return seen[id(tree)]
    if isinstance(tree, Mapping):
        return {name: _copied(value, seen) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_copied(value, seen) for value in tree)
    return tree


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model by name; a tied tensor is one object under all of its names."""
    return dict(model.state_dict(keep_vars=True))


def fill_model(model: nn.Module, weights: Mapping[str, Any], *, source: str) -> None:
    """Copy weights into a model, all of them and nothing else.

    Raises:
        ConfigError: they are those of another model.
    """
    own = model_weights(model)
    faults = _differences(own, weights)
    if faults:
        raise ConfigError(source, faults)
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(weights[name])


def _differences(own: Mapping[str, Tensor], given: Mapping[str, Any]) -> list[Fault]:
    remedy = "Use the config and the data that these weights were trained with."
    missing = sorted(own.keys() - given.keys())
    surplus = sorted(given.keys() - own.keys())
    if missing or surplus:
        problem = f"is another one: {_some(missing)} not in the checkpoint, {_some(surplus)} only there."
        return [Fault("model", problem, remedy)]
    other = [name for name, value in own.items() if value.shape != given[name].shape]
    if other:
        name = other[0]
        sizes = f"{tuple(given[name].shape)} in the checkpoint, {tuple(own[name].shape)} here"
        return [Fault("model", f"has other sizes in {len(other)} weights: {name} is {sizes}.", remedy)]
    return []


def _some(names: list[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
