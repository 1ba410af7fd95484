"""Warn of state of users' classes, such as counters and generators, that training changes but no checkpoint holds."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from xdpx.logger import log

LIBRARIES = frozenset({"xdpx", "torch", "transformers", "builtins"})
"""Packages whose classes save all state that training changes, or have none."""


def unsaved_values(task: Any) -> dict[str, Any]:
    """Return by name the numbers and generator states in attributes of users' classes, which no checkpoint holds."""
    found = {}
    for part in _own_parts(task):
        for name, value in vars(part).items():
            kept = _comparable(value)
            if kept is not None and not name.startswith("_"):
                found[f"{type(part).__name__}.{name}"] = kept
    return found


def warn_of_unsaved(before: Mapping[str, Any], task: Any) -> None:
    """Warn of values from `unsaved_values` that have changed since training began."""
    now = unsaved_values(task)
    changed = [name for name, value in before.items() if name in now and now[name] != value]
    if changed:
        log.warning(
            f"{', '.join(changed[:4])} changed during training, but no checkpoint keeps it: a resumed run, and x-eval, "
            "begin with its first value. In a model use register_buffer, in a loss or task state_dict and "
            "load_state_dict; random numbers: from the global generators, which are seeded for every update.",
            once=True,
        )


def warn_of_unsaved_tensors(optimizer: torch.optim.Optimizer | None) -> None:
    """Warn of a user's optimizer that keeps tensors, such as momentum, outside of its `state`."""
    if optimizer is None or type(optimizer).__module__.partition(".")[0] in LIBRARIES:
        return
    kind = type(optimizer)
    if kind.state_dict is not torch.optim.Optimizer.state_dict:
        return
    trained = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    names = [
        name
        for name, value in vars(optimizer).items()
        if name not in {"state", "param_groups", "defaults"} and _has_tensors(value, trained)
    ]
    if names:
        log.warning(
            f"optimizer: {kind.__name__} keeps tensors in {', '.join(names)}, which no checkpoint has: a resumed run "
            "would not continue as before. Keep them in self.state[weight], as the optimizers of torch do.",
            once=True,
        )


def _has_tensors(value: object, known: Collection[int]) -> bool:
    """Return whether a value is or holds tensors, other than known ones."""
    if isinstance(value, torch.Tensor):
        return id(value) not in known
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(_has_tensors(part, known) for part in parts)


def _own_parts(task: Any) -> Iterator[Any]:
    """Yield the task, its loss and the modules of its model whose class is a user's and saves no state of its own."""
    loss = vars(task).get("loss")
    shipped = type(task).__module__.partition(".")[0] in LIBRARIES  # a task of a user may save the loss in its own way
    saved = bool((loss if shipped and loss is not None else task).state_dict())
    for part in (task, loss, *task.model.modules()):
        is_module = isinstance(part, nn.Module)
        saves = type(part).get_extra_state is not nn.Module.get_extra_state if is_module else saved
        if not saves and type(part).__module__.partition(".")[0] not in LIBRARIES:
            yield part


def _comparable(value: object) -> Any:
    """Return a number unchanged, the state of a generator, and None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state())
    return value.get_state().tolist() if isinstance(value, torch.Generator) else None
