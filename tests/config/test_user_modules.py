from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.config.user_modules import load_user_modules

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("XDPX_USER_MODULES", raising=False)
    yield
    for name in [name for name in sys.modules if name == "_shared" or name.startswith("xdpx_user_modules")]:
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


def test_a_module_called_like_one_of_the_library_hides_nothing(write: Write) -> None:
    write("user/modules/random.py", "hidden = True")
    load_user_modules()
    import random

    assert not hasattr(random, "hidden")
