"""The tiny run of the commands' tests."""

from __future__ import annotations

from tests.commands.conftest import finished_run

__all__ = ["finished_run"]
