"""The toy task of the trainer's tests, for the tests of x-train's callbacks."""

from __future__ import annotations

from tests.trainer.conftest import engine, groups, held_out, loss

__all__ = ["engine", "groups", "held_out", "loss"]
