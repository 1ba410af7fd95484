"""`x-io` answers on stdout, complains in one line on stderr, and starts at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xdpx.commands.io import VERBS, main
from xdpx.utils import io

DOCUMENTED = "exists move copy copytree makedirs remove rmtree listdir isdir isfile last_modified size md5 is_writable"


@pytest.fixture
def tree(any_root: str) -> str:
    for name in ("a b.txt", "sub/c.txt"):
        with io.open(io.join(any_root, name), "w") as file:
            file.write("hello\n")
    return any_root


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(
    ("verb", "name", "answer"),
    [
        ("exists", "a b.txt", "True\n"),
        ("exists", "nothing", "False\n"),
        ("isdir", "sub", "True\n"),
        ("isfile", "sub", "False\n"),
        ("size", "a b.txt", "6\n"),
        ("lines", "a b.txt", "1\n"),
        ("md5", "a b.txt", "b1946ac92492d2347c6235b4d2611184\n"),
        ("listdir", "", "a b.txt\nsub\n"),
        ("is_writable", "", "True\n"),
    ],
)
def test_answers_are_printed_one_per_line(
    tree: str, capsys: pytest.CaptureFixture[str], verb: str, name: str, answer: str
) -> None:
    assert ask(capsys, verb, io.join(tree, name)) == (0, answer, "")


def test_trees_are_copied_moved_and_removed(tree: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    assert ask(capsys, "copytree", tree, there) == (0, "", "")
    assert ask(capsys, "listdir", there, "--recursive", "--contains", "c.") == (0, "sub/c.txt\n", "")
    assert ask(capsys, "copy", there + "/a b.txt", there + "/d.txt") == (0, "", "")
    assert ask(capsys, "move", there + "/d.txt", there + "/sub") == (0, "", "")
    assert ask(capsys, "remove", there + "/a b.txt") == (0, "", "")
    assert ask(capsys, "makedirs", there + "/new/deeper") == (0, "", "")
    assert ask(capsys, "listdir", there, "--recursive", "--full-path")[1] == f"{there}/sub/c.txt\n{there}/sub/d.txt\n"
    assert ask(capsys, "rmtree", there) == (0, "", "")
    assert ask(capsys, "exists", there) == (0, "False\n", "")


def test_help_names_every_documented_verb_and_each_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "--help")
    assert code == 0
    for verb in DOCUMENTED.split():
        assert f"\n  {verb} " in out
    for verb in VERBS:
        code, out, _ = ask(capsys, verb, "--help")
        assert code == 0
        assert out.startswith(f"usage: x-io {verb} ")


def test_wrong_questions_exit_2_and_say_what_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "exsts", "a") == (2, "", "x-io: there is no verb 'exsts'. Did you mean 'exists'?\n")
    assert ask(capsys, "qqq")[2] == "x-io: there is no verb 'qqq'. `x-io --help` lists them.\n"
    code, _, err = ask(capsys, "copy", "a")
    assert code == 2
    assert "usage: x-io copy [-h] <source> <target>" in err
    assert "required: <target>" in err
    assert ask(capsys, "size", "a", "b")[0] == 2
    assert ask(capsys, "listdir", "a", "--recursiv")[0] == 2
    assert ask(capsys)[0] == 2


@pytest.mark.parametrize("verb", ["size", "listdir", "md5", "remove", "rmtree", "last_modified"])
def test_what_is_missing_is_told_in_one_line(any_root: str, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    path = io.join(any_root, "nothing")
    assert ask(capsys, verb, path) == (1, "", f"x-io {verb}: {path}: No such file or directory.\n")


def test_a_module_of_the_user_that_fails_is_the_users_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "user/modules").mkdir(parents=True)
    (tmp_path / "user/modules/broken_credentials.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    code, _, err = ask(capsys, "exists", "memory://x/y")
    assert code == 2
    assert "broken_credentials.py" in err
    assert ask(capsys, "exists", "y") == (0, "False\n", "")


def test_starting_imports_nothing_heavy() -> None:
    code = "import sys; from xdpx.commands.io import main; main(['--help']); print('torch' in sys.modules)"
    code += "; print(len(set(sys.modules) & {'numpy', 'fsspec', 'pydantic', 'tqdm'}))"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert ended.stdout.endswith("\nFalse\n0\n")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    code = "import sys; from xdpx.commands.io import main; sys.exit(main(sys.argv[1:]))"
    library = str(Path(subprocess.__file__).parent)
    asked = subprocess.Popen(
        [sys.executable, "-c", code, "listdir", "--recursive", library],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert asked.stdout is not None
    assert asked.stderr is not None
    asked.stdout.readline()
    asked.stdout.close()
    assert (asked.wait(), asked.stderr.read()) == (0, "")
    asked.stderr.close()
