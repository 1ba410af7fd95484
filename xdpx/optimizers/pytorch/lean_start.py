"""Avoid the import of torch's compiler, which takes a second or two, if nothing is compiled."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.optim import Optimizer

COMPILER = "torch._dynamo"
METHODS = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
"""Methods of every optimizer at whose first call, like that of `step`, torch imports its compiler to exclude them from
tracing."""


def defer_compiler() -> None:
    """Make torch's optimizers work without the compiler until something else imports it; nothing is traced before.

    Call it before the first optimizer is built, as torch then wraps `step` in its hooks.
    """
    for name in METHODS:
        _replace(Optimizer, name, "inner", _as_it_is)
    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and issubclass(kind, Optimizer):
            _replace(kind, "step", "_use_grad", _with_its_gradients)


def _replace(kind: type[Optimizer], name: str, wrapper: str, call: Callable[..., Any]) -> None:
    """Replace a method by one that runs `call(plain, ...)` while the compiler is not imported.

    Args:
        kind: class of the optimizer.
        name: of the method; unchanged if it is inherited, or has another wrapper.
        wrapper: name of torch's wrapper that imports the compiler.
        call: does the same as that wrapper, without the compiler.
    """
    wrapped = vars(kind).get(name)
    if not isinstance(wrapped, FunctionType) or wrapped.__code__.co_name != wrapper:
        return
    plain = inspect.unwrap(wrapped)

    @functools.wraps(plain)
    def method(*args: Any, **kwargs: Any) -> Any:
        return wrapped(*args, **kwargs) if COMPILER in sys.modules else call(plain, *args, **kwargs)

    setattr(kind, name, method)


def _as_it_is(plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return plain(*args, **kwargs)


def _with_its_gradients(plain: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
    """Take a step like torch's wrapper: with gradients enabled only for a differentiable optimizer."""
    with torch.set_grad_enabled(optimizer.defaults["differentiable"]):
        return plain(optimizer, *args, **kwargs)
