"""The walk through the doors is true: its files and names exist, and a training through each door calls them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import some

ROOT = Path(__file__).parents[2]
WALK = (ROOT / "docs/how-it-works.md").read_text(encoding="utf-8")
DOORS = {"x_train": "Door 1", "trainer": "Door 2", "x_exp": "Door 3"}


def steps(heading: str) -> list[tuple[str, list[str]]]:
    """Return (file, the names to look for) of each row below a heading of the page."""
    [part] = [part for part in re.split("^## ", WALK, flags=re.MULTILINE) if part.startswith(heading)]
    rows = re.findall(r"^\| `(xdpx/[\w/]+\.py)` \| (.+?) \|", part, re.MULTILINE)
    return [(path, re.findall(r"`([\w.]+)`", names)) for path, names in rows]


def test_every_file_that_the_walk_names_exists() -> None:
    named = set(re.findall(r"`(xdpx/[\w/]+(?:\.py|/))`", WALK))
    assert len(named) >= 40
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize("door", some(DOORS, ["x_train", "trainer"]))
def test_a_training_calls_what_the_walk_names_for_its_door(door: str, tmp_path: Path, figures: None) -> None:
    walk = steps(DOORS[door])
    assert 8 <= len(walk) <= 12
    code, words = started(door, tmp_path)
    assert code == 0, words[-3000:]
    called = {line.removeprefix("* ") for line in (tmp_path / "called.txt").read_text().splitlines()}
    missed = [path for path, _ in walk if not any(name.startswith(f"{path}:") for name in called)]
    missed += [f"{path}:{name}" for path, names in walk for name in names if not _was_called(f"{path}:{name}", called)]
    assert missed == []


def started(door: str, folder: Path) -> tuple[int, str]:
    """Train through a door in a new process: code, as a file that names JAX would not fork off the preloaded one."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    if door == "x_exp":
        settings["JAX_NUM_CPU_DEVICES"] = "1"
    code = f"from tests.promises import door_walk; door_walk.walk({door!r}, 'called.txt')"
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def _was_called(name: str, called: set[str]) -> bool:
    """Tell whether a function, or something of a class, was called."""
    return any(each == name or each.startswith(f"{name}.") for each in called)


def test_the_picture_of_the_rooms_is_that_of_the_house() -> None:
    spec = importlib.util.spec_from_file_location("draw_rooms", ROOT / "docs/draw_rooms.py")
    assert spec is not None
    assert spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    shown = drawing.drawn(drawing.floors_of_the_house())
    assert shown == drawing.PICTURE.read_text(encoding="utf-8"), "Run: python docs/draw_rooms.py"
