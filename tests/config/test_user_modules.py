from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.config.user_modules import load_user_modules

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("XDPX_USER_MODULES", raising=False)
    yield
    own = ("_shared", "xdpx_user_modules", "plain_", "relative_", "same_name", "changing", "mixed_")
    for name in [name for name in sys.modules if name.startswith(own)]:
        del sys.modules[name]


def test_modules_are_imported_once_in_the_order_of_their_names(write: Write) -> None:
    write(
        "user/modules/b.py",
        "import _shared\n_shared.seen.append('b')",
        "user/modules/a.py",
        "",
        "user/modules/_shared.py",
        "seen = []",
        "user/modules/._a.py",
        "\0 what a Mac leaves in an archive",
    )
    assert load_user_modules() == ["a.py", "b.py"]
    assert load_user_modules() == []
    assert sys.modules["_shared"].seen == ["b"]


def test_without_a_folder_nothing_is_imported(write: Write) -> None:
    write("draw.hjson", "{}")
    assert load_user_modules() == []


def test_another_folder_can_be_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write("elsewhere/mine.py", "")
    monkeypatch.setenv("XDPX_USER_MODULES", str(folder / "elsewhere"))
    assert load_user_modules() == ["mine.py"]


def test_a_named_folder_that_is_not_there_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("draw.hjson", "{}")
    monkeypatch.setenv("XDPX_USER_MODULES", "nowhere")
    with pytest.raises(ConfigError, match="nowhere: is not a folder"):
        load_user_modules()


def test_a_remote_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDPX_USER_MODULES", "s3://bucket/modules")
    with pytest.raises(ConfigError, match="s3://bucket/modules: is remote. Copy the folder here"):
        load_user_modules()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\nimport no_such_thing", "m.py:2): ModuleNotFoundError: No module named 'no_such_thing'."),
        ("x = = 1", "m.py:1): SyntaxError"),
        ("def f():\n    return 1 / 0\n\nf()", "m.py:2): ZeroDivisionError"),
        ("from xdpx.models import register\n\n@register('cls_cnn')\nclass Mine: ...", "another name. Correct"),
        ("import sys\n\nsys.exit(0)", "m.py:3): SystemExit: 0. Correct your module"),
    ],
)
def test_a_module_that_fails_is_named_with_its_line(write: Write, text: str, words: str) -> None:
    write("user/modules/m.py", text)
    with pytest.raises(ConfigError) as refused:
        load_user_modules()
    assert words in str(refused.value)


def test_modules_that_import_one_another_are_imported_once_however_they_say_it(write: Write) -> None:
    write(
        "user/modules/plain_a.py",
        "import plain_b\nplain_b.made.append('a')",
        "user/modules/plain_b.py",
        "from plain_shared import seen\nmade = []\nseen.append(__name__)",
        "user/modules/plain_c.py",
        "import plain_b, plain_a\nassert plain_b.made == ['a']",
        "user/modules/plain_shared.py",
        "seen = []",
        "user/modules/relative_a.py",
        "from .relative_b import made\nfrom . import relative_b\nmade.append('a')",
        "user/modules/relative_b.py",
        "made = []",
    )
    assert len(load_user_modules()) == 6
    assert len(sys.modules["plain_shared"].seen) == 1
    assert import_module("relative_b").made == ["a"]


@pytest.mark.parametrize(
    "first", [("import mixed_c", "from .mixed_c import runs"), ("from .mixed_c import runs", "import mixed_c")]
)
def test_a_module_is_one_for_those_who_import_it_plainly_and_those_who_do_relatively(
    write: Write, first: tuple[str, str]
) -> None:
    write(
        "user/modules/mixed_a.py", first[0], "user/modules/mixed_b.py", first[1], "user/modules/mixed_c.py",
        "import plain_count\nplain_count.runs.append(__name__)\nruns = plain_count.runs",
        "user/modules/plain_count.py", "runs = []",
    )  # fmt: skip
    assert len(load_user_modules()) == 4
    assert len(import_module("mixed_c").runs) == 1
    assert import_module("mixed_c").__spec__.name == import_module("mixed_c").__name__


def test_a_module_that_changes_the_working_directory_does_not_move_the_run(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write("user/modules/plain_moving.py", "import os\nos.chdir('/')", "user/modules/plain_next.py", "")
    assert load_user_modules() == ["plain_moving.py", "plain_next.py"]
    assert Path.cwd() == folder
    assert "plain_moving.py changes the working directory, which is restored" in capsys.readouterr().err


def test_a_second_module_of_the_same_name_is_refused_not_passed_over(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write("first/same_name.py", "x = 1", "second/same_name.py", "x = 2", "third/same_name.py", "x = 1")
    monkeypatch.setenv("XDPX_USER_MODULES", f"{folder}/first:{folder}/third")
    assert load_user_modules() == ["same_name.py"]
    monkeypatch.setenv("XDPX_USER_MODULES", f"{folder}/first:{folder}/second:{folder}/first")
    with pytest.raises(ConfigError, match=r"(?s)second/same_name\.py.* has the name of .*first/same_name\.py, which"):
        load_user_modules()


def test_a_module_that_changed_since_it_was_imported_is_told(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("user/modules/changing.py", "x = 1")
    assert load_user_modules() == ["changing.py"]
    assert "has changed" not in capsys.readouterr().err
    write("user/modules/changing.py", "x = 12")
    assert load_user_modules() == []
    assert "changing.py has changed since it was imported: this process uses the old version" in capsys.readouterr().err


def test_a_module_called_like_one_of_the_library_hides_nothing(write: Write) -> None:
    write("user/modules/random.py", "hidden = True")
    load_user_modules()
    import random

    assert not hasattr(random, "hidden")
