"""The toy task of the trainer's tests, for the tests of scoring."""

from __future__ import annotations

from tests.trainer.conftest import engine, loss

__all__ = ["engine", "loss"]
