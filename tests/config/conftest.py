from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write files below a fresh working directory: `write("a.hjson", "text", "b/c.json", "text")`."""
    monkeypatch.chdir(tmp_path)

    def write_files(*names_and_texts: str) -> Path:
        for name, text in zip(names_and_texts[::2], names_and_texts[1::2], strict=True):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return tmp_path

    return write_files
