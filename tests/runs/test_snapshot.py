import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xdpx.inference.own_code import warn_of_changes
from xdpx.losses import losses
from xdpx.runs import snapshot
from xdpx.runs.snapshot import write_changed_snapshot, write_snapshot


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    modules = tmp_path / "user" / "modules"
    (modules / "venv").mkdir(parents=True)
    (modules / "venv" / "big.py").touch()
    (modules / "mine.py").write_text("x = 1\n")
    (modules / "weights.bin").write_bytes(b"\0" * 10)
    (modules / "huge.txt").write_bytes(b"a" * 1_000_001)
    (tmp_path / "train.hjson").write_text("{a: 1}")
    return tmp_path


def test_it_holds_the_package_the_users_modules_and_the_config(desk: Path) -> None:
    write_snapshot("run/snapshot.zip", config="train")
    names = zipfile.ZipFile("run/snapshot.zip").namelist()
    assert {"xdpx/runs/snapshot.py", "xdpx/__init__.py", "user/modules/mine.py", "config/train.hjson"} <= set(names)
    assert not [
        name for name in names if "venv" in name or "__pycache__" in name or name.endswith((".bin", "huge.txt"))
    ]


def test_own_code_that_is_not_that_of_the_run_is_told_to_who_predicts_with_it(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Mine:
        __module__ = "xdpx_user_modules.mine"

    module = SimpleNamespace(__file__=str(desk / "user/modules/mine.py"))
    monkeypatch.setitem(sys.modules, Mine.__module__, module)
    monkeypatch.setitem(losses._loaded, "mine", Mine)
    run: Any = SimpleNamespace(picks={("", "loss"): "mine", ("", "model"): "cls_cnn"})
    shipped: Any = SimpleNamespace(picks={("", "loss"): "bce"})
    write_snapshot("run/snapshot.zip")
    warn_of_changes("run", (run, None))
    (desk / "user/modules/other.py").write_text("new = 1")
    (desk / "user/modules/mine.py").write_text("x = 2\n")
    warn_of_changes("run", (shipped, None))
    assert "changed since" not in capsys.readouterr().err
    warn_of_changes("run", (run, None))
    assert "run: mine.py of user/modules changed since this run was trained (snapshot.zip" in capsys.readouterr().err


def test_files_are_told_apart_by_their_names_in_whatever_order_they_come(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(snapshot._files("train"))
    monkeypatch.setattr(snapshot, "_files", lambda config: iter(found[::-1]))
    write_snapshot("run/snapshot.zip", config="train")
    names = zipfile.ZipFile("run/snapshot.zip").namelist()
    assert len(names) == len(set(names))
    assert {"xdpx/runs/snapshot.py", "user/modules/mine.py", "config/train.hjson"} <= set(names)


def test_a_resumed_run_of_the_same_code_needs_no_room_for_it(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_snapshot("run/snapshot.zip", config="train")
    Path("run/snapshot.resume-5.zip").write_bytes(b"of code that was changed back since")
    monkeypatch.setattr(snapshot.commit, "replacing", lambda *_, **__: pytest.fail("the disk is full"))
    write_changed_snapshot("run", 5, config="train")
    assert not Path("run/snapshot.resume-5.zip").exists()


def test_a_resumed_run_keeps_its_code_only_when_it_changed(desk: Path) -> None:
    write_snapshot("run/snapshot.zip", config="train")
    write_changed_snapshot("run", 5, config="train")
    assert not Path("run/snapshot.resume-5.zip").exists()
    Path("user/modules/mine.py").write_text("x = 2\n")
    write_changed_snapshot("run", 5, config="train")
    assert Path("run/snapshot.resume-5.zip").exists()
    write_changed_snapshot("run", 9, config="train")
    assert not Path("run/snapshot.resume-9.zip").exists()
    Path("user/modules/mine.py").write_text("x = 1\n")
    write_changed_snapshot("run", 12, config="train")
    assert Path("run/snapshot.resume-12.zip").exists()
