"""Collect garbage rarely while a command starts."""

from __future__ import annotations

import gc

RARELY = (50_000, 10, 10)
_usual: list[tuple[int, int, int]] = []


def rarely() -> None:
    """Collect garbage rarely in this process, from its start on.

    Importing Transformers, or tracing a model for JAX, creates a million objects that stay. Python would search them
    again and again: a sixth of the CPU seconds of the imports.
    """
    if not _usual:
        _usual.append(gc.get_threshold())
        gc.set_threshold(*RARELY)


def as_usual() -> None:
    """Collect garbage as often as before `rarely`: a cycle that is left alone may keep memory of a device."""
    if _usual:
        gc.set_threshold(*_usual.pop())
