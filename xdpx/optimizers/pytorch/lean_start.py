"""Start without the compiler of torch, which takes a second or two to import, where nothing is compiled."""

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
"""Of every optimizer: torch imports its compiler when one of them, or `step`, is first called, to tell it what not to
trace."""


def defer_compiler() -> None:
    """Let optimizers of torch work without the compiler until something else imports it: before, nothing is traced.

    It is to be called before the first optimizer is built: torch then puts its hooks around `step`.
    """
    for name in METHODS:
        _replace(Optimizer, name, "inner", _as_it_is)
    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and issubclass(kind, Optimizer):
            _replace(kind, "step", "_use_grad", _with_its_gradients)


def _replace(kind: type[Optimizer], name: str, wrapper: str, call: Callable[..., Any]) -> None:
    """Replace a method by one that does `call(plain, ...)` where there is no compiler.

    Args:
        kind: of optimizer.
        name: of the method; left alone where it is inherited, or is wrapped by another function of torch.
        wrapper: what torch calls the function that imports the compiler.
        call: does as that function does, without it.
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
    """Take a step as torch's wrapper does: with gradients only for an optimizer that is differentiated through."""
    with torch.set_grad_enabled(optimizer.defaults["differentiable"]):
        return plain(optimizer, *args, **kwargs)
