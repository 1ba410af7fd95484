"""What pip installs: every family of configs and every command, from a wheel as it is built for others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tiers import nightly

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the files that it is made of."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for name in ("xdpx", "examples/families"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    words = ["pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(made), str(source)]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return next(made.glob("*.whl"))


def test_the_wheel_holds_every_family_and_command_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        points = next(file.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert {f"xdpx/families/{path.name}" for path in (ROOT / "examples/families").iterdir()} <= names
    assert {"xdpx/config/catalogue.json", "xdpx/py.typed"} <= names
    page = (ROOT / "xdpx/board/page").rglob("*.*")
    assert {str(path.relative_to(ROOT)) for path in page} <= names, "the board fetches nothing from elsewhere"
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"xdpx"}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "xdpx").rglob("*.py")}
    assert modules <= names
    assert {"x-run", "x-init", "x-train"} <= {line.split(" =")[0] for line in points.splitlines()}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder of its own, with its commands in bin/."""
    site = tmp_path_factory.mktemp("site")
    words = ["pip", "install", "-q", "--no-deps", "--no-index", "--no-compile", "--target", str(site), str(wheel)]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return site


def run(installed: Path, folder: Path, *words: str) -> str:
    """Run a command of the installed package in a folder, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, str(installed / "bin" / words[0]), *words[1:]]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_an_installed_package_lists_its_families_and_scripts_from_an_empty_folder(
    installed: Path, tmp_path: Path
) -> None:
    assert "families/cls_cnn " in run(installed, tmp_path, "x-init", "--list")
    assert "aggregate_results" in run(installed, tmp_path, "x-script", "--help")


def test_the_demo_writes_its_text_and_configs_into_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    assert "x-train out/demo/train.hjson" in run(installed, tmp_path, "x-init", "--demo")
    rows = [len(path.read_text(encoding="utf-8").splitlines()) for path in (tmp_path / "out/demo/raw").iterdir()]
    assert len(rows) == 3
    assert sum(rows) > 4000


@nightly("test_the_demo_writes_its_text_and_configs_into_an_empty_folder")
def test_the_demo_goes_from_an_empty_folder_to_predictions(installed: Path, tmp_path: Path) -> None:
    small = ["max_update=20", "embedding_dim=8", "hidden_size=8", "eval_interval=1000"]
    told = json.loads(run(installed, tmp_path, "x-run", "--demo", "--json", *small))
    assert told["task"] == "class"
    predicted = (tmp_path / "out/demo/predictions.tsv").read_text(encoding="utf-8").splitlines()
    assert len(predicted) == told["rows"]["test"] + 1 > 400
