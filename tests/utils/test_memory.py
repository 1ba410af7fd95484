"""The memory of a container is what its control group allows, where that is less than the machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.utils import memory


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = (str(tmp_path / "memory.max"), str(tmp_path / "memory.current"))
    monkeypatch.setattr(memory._limits, "__defaults__", ((files,),))
    return tmp_path


def test_a_limit_below_the_machine_counts(group: Path) -> None:
    (group / "memory.max").write_text("1000000\n")
    (group / "memory.current").write_text("400000\n")
    assert (memory.total_memory(), memory.available_memory()) == (1_000_000, 600_000)


@pytest.mark.parametrize("limit", ["max\n", f"{2**63 - 4096}\n"])
def test_no_limit_leaves_the_machine(group: Path, limit: str) -> None:
    (group / "memory.max").write_text(limit)
    (group / "memory.current").write_text("400000\n")
    assert memory.total_memory() == memory._machine_memory() > memory.available_memory() > 0
