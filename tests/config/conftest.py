from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write files in a new working directory: `write("a.hjson", "text", "b/c.json", "text")`."""
    monkeypatch.chdir(tmp_path)

    def write_files(*names_and_texts: str) -> Path:
        for name, text in zip(names_and_texts[::2], names_and_texts[1::2], strict=True):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return tmp_path

    return write_files


@pytest.fixture(scope="session")
def rooms() -> ModuleType:
    """Register the command and modules of fake_rooms.py: `x-draw` with shapes and colours."""
    path = Path(__file__).with_name("fake_rooms.py")
    spec = importlib.util.spec_from_file_location("fake_rooms", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["fake_rooms"] = module  # so that its classes can be imported by name
    spec.loader.exec_module(module)
    return module
