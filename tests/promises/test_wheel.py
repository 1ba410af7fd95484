"""What pip installs: every family of configs and every command, from a wheel as it is built for others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the files that it is made of."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
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
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"xdpx"}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "xdpx").rglob("*.py")}
    assert modules <= names
    assert {"x-run", "x-init", "x-train"} <= {line.split(" =")[0] for line in points.splitlines()}


def test_an_installed_package_finds_its_families_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    (tmp_path / "empty").mkdir()
    code = "from xdpx.config.families import family_path; print(family_path('families/cls_cnn'))"
    words = [sys.executable, "-c", code]
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(words, cwd=tmp_path / "empty", env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "site/xdpx/families/cls_cnn.hjson")
