"""What is asked of the paths in a config before anything starts."""

from __future__ import annotations

import pytest

from xdpx.config.path_checks import _look
from xdpx.utils import io


def test_a_remote_output_that_cannot_be_written_to_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "why_not_writable", lambda path: "There is no such bucket")
    monkeypatch.setattr(io, "isfile", lambda path: False)
    problem, _ = _look("new_directory", "s3://bucket/run")
    assert problem == "'s3://bucket/run' cannot be written to: There is no such bucket."
