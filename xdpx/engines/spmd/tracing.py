"""Information about the current update for functions that are traced as part of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_step: ContextVar[Any] = ContextVar("step", default=0)


def step_being_traced() -> Any:
    """Return the number of updates before the one being traced, an int32; 0 outside of updates."""
    return _step.get()


@contextmanager
def tracing_step(step: Any) -> Generator[None]:
    """Make `step_being_traced` return `step` inside the block."""
    token = _step.set(step)
    try:
        yield
    finally:
        _step.reset(token)
