"""What a function that is being traced may ask about the update it is part of."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_step: ContextVar[Any] = ContextVar("step", default=0)


def step_being_traced() -> Any:
    """Return how many updates were taken before the one that is being traced, an int32; 0 outside of updates."""
    return _step.get()


@contextmanager
def tracing_step(step: Any) -> Generator[None]:
    """Let `step_being_traced` give `step` inside."""
    token = _step.set(step)
    try:
        yield
    finally:
        _step.reset(token)
