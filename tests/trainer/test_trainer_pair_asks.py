"""Callbacks of one process of two ask for something: both do it, at the same step, and none waits for ever."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import environment, run_together, told

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of a training in which one process or the other asks, and what each of them tells."""
    folder, script = tmp_path_factory.mktemp("asking"), str(Path(__file__).with_name("asking_pair.py"))
    (ended,) = run_together([[sys.executable, script, str(folder)]], [environment(CUDA_VISIBLE_DEVICES="")])
    assert ended.code == 0, told([ended]) + "".join(path.read_text() for path in folder.glob("told-*.txt"))
    return folder, [json.loads((folder / f"rank-{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]


def test_what_one_process_asks_for_all_do_at_that_step(both: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, (first, second) = both
    assert first == second
    assert first["step"] == 15  # stopped by on_log of the second
    assert first["evaluated"] == [3, 5]
    assert sorted(path.name for path in (folder / "out").glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-3"]
    assert first["epoch"] == 1 + 4 / 16  # after 11 of 16 steps both left the first


def test_all_decide_by_the_metrics_of_the_first(both: tuple[Path, list[dict[str, Any]]]) -> None:
    assert [each["best"] for each in both[1]] == [0.0, 0.0]


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="optuna is not installed")
def test_what_optuna_ends_in_the_first_process_ends_in_all(both: tuple[Path, list[dict[str, Any]]]) -> None:
    assert [each["searched"] for each in both[1]] == [[2, 1, 2], [2, 1, 2]]
