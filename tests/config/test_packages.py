"""Packages that are really installed, and what they offer to configs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from xdpx.config import catalogue, packages
from xdpx.config.faults import ConfigError
from xdpx.config.registry import REGISTRIES, Registry, registry_of
from xdpx.config.selection import select
from xdpx.config.user_modules import named
from xdpx.experiments import names, resolve
from xdpx.reports.trackers.choosing import tracker_for

MODULES = {
    "first": """
        from xdpx.experiments import BaseExperiment
        class Mine(BaseExperiment): ...
        class Net: ...
        class Watch:
            def on_log(self, args, state, control, **kwargs): ...
        """,
    "second": "import no_such_library",
}
POINTS = {
    "first": {
        "xdpx.tool": ["mine = first:Net", "both = first:Net", "path = first:Net", "gone = first:Nothing"],
        "xdpx.experiment": ["Mine = first:Mine"],
        "xdpx.model": ["cls_cnn = first:Net"],
        "xdpx.tracker": ["watch = first:Watch", "tensorboard = first:Watch"],
        "xdpx.callbacks": ["older = first:Watch"],
    },
    "second": {"xdpx.tool": ["both = second:Net", "broken = second:Net"]},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install both packages into a folder."""
    folder = tmp_path_factory.mktemp("packages")
    for name, groups in POINTS.items():
        (folder / name).mkdir()
        lines = [line.removeprefix("        ") for line in MODULES[name].splitlines()]
        (folder / name / f"{name}.py").write_text("\n".join(lines))
        project = ["[project]", f'name = "{name}"', 'version = "1.0"', "[tool.setuptools]", f'py-modules = ["{name}"]']
        for group, points in groups.items():
            project += [f'[project.entry-points."{group}"]', *(point.replace("= ", "= '") + "'" for point in points)]
        (folder / name / "pyproject.toml").write_text("\n".join(project))
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*install, "--target", "installed", "./first", "./second"], cwd=folder, check=True)
    return folder / "installed"


@pytest.fixture
def tools(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[object]]:
    """Give a registry of a kind that both packages know."""
    monkeypatch.syspath_prepend(str(place))
    _forget()
    yield Registry("tool", {"path": "pathlib:Path"})
    del REGISTRIES["tool"]
    _forget()


def _forget() -> None:
    packages.offered.cache_clear()
    packages._entry_points.cache_clear()
    for name in POINTS:
        sys.modules.pop(name, None)


def test_a_name_of_a_package_is_known_at_once_and_imported_when_it_is_asked_for(tools: Registry[object]) -> None:
    assert {"mine", "path"} <= set(tools)
    assert "first" not in sys.modules
    assert tools["mine"] is sys.modules["first"].Net
    assert tools.own() == {"mine": tools["mine"]}


def test_a_name_that_ships_is_not_taken_over(tools: Registry[object]) -> None:
    with pytest.raises(ConfigError, match="'path', which first 1.0 and XDPX define, so it is ambiguous"):
        tools["path"]


def test_a_name_that_two_packages_offer_is_refused(tools: Registry[object]) -> None:
    with pytest.raises(ConfigError, match="'both', which first 1.0 and second 1.0 define"):
        tools["both"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("broken", "second 1.0: 1 fault\n.*ModuleNotFoundError: No module named 'no_such"), ("gone", "has no attribute")],
)
def test_what_cannot_be_imported_is_told_with_its_package(tools: Registry[object], name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        tools[name]


def test_a_user_does_not_register_what_a_package_offers_but_the_package_may(tools: Registry[object]) -> None:
    with pytest.raises(ValueError, match=r"tool 'mine' already exists \(first 1.0 offers it\)"):
        tools.register("mine")(dict)
    tools.register("mine")(type("Net", (), {"__module__": "first.networks"}))


def test_a_config_that_could_mean_either_is_refused_and_others_are_not(tools: Registry[object]) -> None:
    [fault] = [fault for fault in select("x-train", {"model": "cls_cnn"}, {}).faults if fault.key == "model"]
    assert "which first 1.0 and XDPX define" in fault.problem
    assert not [fault for fault in select("x-train", {"model": "re2"}, {}).faults if fault.key == "model"]
    assert "first" not in sys.modules


def test_help_lists_names_of_packages_and_imports_none(tools: Registry[object]) -> None:
    assert "older" in catalogue.names("callback")
    assert "older" in registry_of("callback")
    list(catalogue.entries("callback"))
    assert "first" not in sys.modules


def test_a_callback_may_be_named_by_its_class(tools: Registry[object]) -> None:
    assert named("first:Watch") is sys.modules["first"].Watch


def test_report_to_takes_a_tracker_of_a_package_by_name(tools: Registry[object]) -> None:
    assert type(tracker_for("watch")).__name__ == "Watch"
    with pytest.raises(ValueError, match="report_to: is 'tensorboard', which first 1.0 and XDPX define"):
        tracker_for("tensorboard")
    with pytest.raises(ValueError, match="Did you mean 'watch'"):
        tracker_for("wacth")


def test_an_experiment_of_a_package_is_found_by_its_name(tools: Registry[object]) -> None:
    assert "first.Mine" in names()
    assert "first" not in sys.modules
    assert resolve("first.Mine") is sys.modules["first"].Mine
