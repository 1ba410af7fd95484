from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from xdpx.config.args_file import differences, newest_args, starter_text, write_args, write_starter_config
from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run, load, resolve
from xdpx.config.stored_args import read_args

pytestmark = pytest.mark.usefixtures("rooms")
Write = Callable[..., Path]


def draw(**values: object) -> Run:
    base = {"shape": "square", "side": 3, "save_dir": "out/ö 'q\"", "batch_size": 32}
    return resolve({**base, **values}, "x-draw", source="draw.hjson", paths=False)


def test_args_are_written_and_read_back(tmp_path: Path) -> None:
    run = draw(source=None, sizes=[1, 2])
    path = str(tmp_path / "args.py")
    write_args(run, path)
    assert read_args(path) == dict(run.values)


def test_args_are_grouped_and_changes_are_starred(tmp_path: Path) -> None:
    path = tmp_path / "args.py"
    write_args(draw(interval=5), str(path))
    tree = ast.literal_eval(path.read_text(encoding="utf-8"))
    assert tree["(draw)"]["batch_size*"] == 32
    assert tree["(draw)"]["learning_rate"] == 1e-3
    assert tree["(draw)"]["(log)"] == {"interval*": 5}
    assert tree["(shape)"]["side*"] == 3


def test_a_resolved_run_can_be_made_from_args_again(tmp_path: Path) -> None:
    run = draw(interval="@{batch_size:64}/50")
    path = str(tmp_path / "args.py")
    write_args(run, path)
    again = resolve(read_args(path), "x-draw", source=path, paths=False)
    assert dict(again.values) == dict(run.values)
    assert again.changed == run.changed


@pytest.mark.parametrize("text", ["__import__('os').system('touch gone')", "{'a': open('x')}", "[1]", "{", "\x00"])
def test_nothing_but_a_dict_of_literals_is_read(write: Write, text: str) -> None:
    folder = write("args.py", text)
    with pytest.raises(ConfigError, match="args"):
        read_args("args.py")
    assert not (folder / "gone").exists()


def test_a_starter_config_gives_the_same_run_again(write: Write) -> None:
    write("unused", "")
    run = draw(source=None, sizes=[4], style="rich", interval=3)
    write_starter_config(run, "starter_config.hjson", meta_keys=())
    (again,) = load("starter_config", "x-draw")
    assert dict(again.values) == dict(run.values)


def test_a_starter_config_leaves_out_what_meta_gives_and_defaults() -> None:
    text = starter_text(draw(style="plain"), meta_keys={"side"})
    assert "side" not in text
    assert "style" not in text
    assert "batch_size: 32" in text


def test_the_newest_args_are_those_of_the_last_resume(write: Write) -> None:
    folder = write("r/args.py", "{}", "r/args.resume-20.py", "{}", "r/args.resume-100.py", "{}", "e/x", "")
    assert newest_args(f"{folder}/r") == f"{folder}/r/args.resume-100.py"
    assert newest_args(f"{folder}/e") is None
    assert newest_args(f"{folder}/none") is None


def test_differences_name_what_went_came_and_changed() -> None:
    assert differences({"a": 1, "b": 2}, {"b": 3, "c": 4}) == ["-- a: 1", "++ c: 4", "+- b: 2 -> 3"]
