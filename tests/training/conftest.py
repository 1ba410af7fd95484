"""The toy task of the trainer's tests, which those of x-train's own callbacks use too."""

from __future__ import annotations

from tests.trainer.conftest import engine, groups, held_out, loss

__all__ = ["engine", "groups", "held_out", "loss"]
