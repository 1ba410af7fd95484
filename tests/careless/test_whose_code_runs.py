"""Code that lies in a folder runs where a run needs it, is named in a line, and is never that of a stranger."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from xdpx import run as door
from xdpx.config import packages, user_modules
from xdpx.utils.places import Storages

ROOT = Path(__file__).parents[2]
MODULE = "import pathlib\npathlib.Path('was-run').touch()\nclass Own:\n    def on_step_end(self, *a, **k): ...\n"


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module in it that leaves a trace when it is run."""
    (tmp_path / "user/modules").mkdir(parents=True)
    (tmp_path / "user/modules/found_here.py").write_text(MODULE)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/train.log.tsv").write_text("epoch\tstep\tloss\n1\t1\t0.5\n")
    (tmp_path / "a.hjson").write_text("{save_dir: out}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDPX_USER_MODULES", raising=False)
    yield tmp_path
    sys.modules.pop("xdpx_user_modules.found_here", None)


def was_run() -> bool:
    trace = Path("was-run")
    found = trace.exists()
    trace.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize(
    "line",
    ["--help", "x-train --help", "x-train --help learning_rate", "x-script", "x-script verify run", "x-io listdir run"],
)
def test_looking_on_runs_nothing_that_lies_in_the_folder(line: str) -> None:
    door.main(line.split())
    assert not was_run()


def test_drawing_runs_nothing_that_lies_in_the_folder(desk: Path) -> None:
    (desk / "viz.hjson").write_text("{save_dirs: {one: run}\n save_dir: figures}")
    door.main(["x-viz", "viz.hjson"])
    assert not was_run()


def test_a_run_says_in_a_line_whose_code_it_uses(capsys: pytest.CaptureFixture[str]) -> None:
    door.main(["x-train", "a.hjson", "--dry"])
    assert was_run()
    told = [line for line in capsys.readouterr().err.splitlines() if "your own code" in line]
    assert told == ["| using your own code: found_here.py of user/modules"]


def test_credentials_are_there_for_whoever_reads_a_remote_path(desk: Path) -> None:
    places = Storages()
    places.when_remote(user_modules.load_user_modules)
    assert not places.exists("elsewhere")
    assert not was_run()
    assert not places.exists("memory://nowhere/at/all")
    assert was_run()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("place", ["user/modules", "user/modules/found_here.py", "user/modules/_shared.py"])
def test_what_belongs_to_another_user_is_not_run(
    place: str, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / place).touch()
    os.chown(desk / place, 4321, -1)
    assert door.main(["x-train", "a.hjson", "--dry"]) == 2
    told = capsys.readouterr().err
    assert not was_run()
    assert f"{place}: belongs to user 4321, not to you" in told
    assert "export XDPX_USER_MODULES=user/modules" in told
    monkeypatch.setenv("XDPX_USER_MODULES", "user/modules")
    door.main(["x-train", "a.hjson", "--dry"])
    assert was_run()


def test_a_config_imports_no_module_but_those_of_the_user(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = desk / "installed"
    installed.mkdir()
    (installed / "some_package.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(installed))
    for name in ("some_package:Own", "os:system", "subprocess:run"):
        with pytest.raises(ValueError, match="is not one of your modules in user/modules"):
            user_modules.named(name)
    assert not was_run()
    points = {"own": (EntryPoint("own", "some_package:Own", "xdpx.callback"),)}
    monkeypatch.setattr(packages, "offered", lambda kind: points if kind == "callback" else {})
    assert user_modules.named("some_package:Own").__name__ == "Own"
    with pytest.raises(ValueError, match=r"that packages offer \(some_package:Own\)"):
        user_modules.named("os:system")


# ---- code that comes with a model


def calls_of(text: str) -> Iterator[tuple[int, bool]]:
    """Yield the line of each call that may load a model's own code, and whether it forbids that."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if name.startswith("Auto") and node.func.attr in {"from_pretrained", "from_config"}:
                yield (
                    node.lineno,
                    any(
                        word.arg == "trust_remote_code"
                        and isinstance(word.value, ast.Constant)
                        and word.value.value is False
                        for word in node.keywords
                    ),
                )


def test_no_model_brings_code_of_its_own() -> None:
    found = {
        f"{file.relative_to(ROOT)}:{line}": forbids
        for file in sorted((ROOT / "xdpx").rglob("*.py"))
        for line, forbids in calls_of(file.read_text())
    }
    assert len(found) >= 3
    assert [place for place, forbids in found.items() if not forbids] == []


def test_a_model_with_code_of_its_own_is_refused_and_nobody_is_asked(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from xdpx.config.faults import ConfigError
    from xdpx.models.pytorch.bert import _named_config

    folder = desk / "model"
    folder.mkdir()
    text = '{"model_type": "nobody_knows", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}'
    (folder / "config.json").write_text(text)
    (folder / "own.py").write_text(MODULE)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    with pytest.raises(ConfigError, match="auto_model"):
        _named_config(str(folder))
    assert not was_run()
