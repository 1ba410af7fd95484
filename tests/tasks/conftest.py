"""The toy task of the trainer's tests, which scoring is tried with."""

from __future__ import annotations

from tests.trainer.conftest import engine, loss

__all__ = ["engine", "loss"]
