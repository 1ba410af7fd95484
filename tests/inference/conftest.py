"""The tiny run of the commands' tests, and its data."""

from __future__ import annotations

from tests.commands.conftest import data, finished_run

__all__ = ["data", "finished_run"]
