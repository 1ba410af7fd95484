import re
import sys
from pathlib import Path

import pytest

from xdpx.commands import script
from xdpx.commands.outcomes import exit_code
from xdpx.commands.script import SHIPPED, main
from xdpx.config.faults import ConfigError


@pytest.fixture
def own_script(tmp_path, monkeypatch):
    folder = tmp_path / "user" / "scripts"
    folder.mkdir(parents=True)
    (folder / "greet.py").write_text('"""Say hello."""\nimport sys\nprint("hello", *sys.argv[1:])\nsys.exit(3)\n')
    (folder / "broken.py").write_text("def (")
    monkeypatch.chdir(tmp_path)


def test_alone_it_lists_every_script_with_one_line_each(own_script, capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    names = sorted({*SHIPPED, *script.script_files()})
    width, listed = max(map(len, names)), text.splitlines()[-len(names) :]
    assert all(re.fullmatch(rf"  {name:<{width}}  \S.*[.)]", line) for name, line in zip(names, listed, strict=True))
    assert f"  {'greet':<{width}}  Say hello." in listed
    assert f"  {'broken':<{width}}  (cannot be read)" in listed


def test_a_users_script_runs_with_its_arguments_and_gives_its_exit_code(own_script, capsys):
    assert main(["greet", "you", "--loud"]) == 3
    assert capsys.readouterr().out == "hello you --loud\n"


def test_a_users_script_imports_what_lies_beside_it_and_may_stand_for_a_shipped_one(own_script, capsys):
    Path("user/scripts/beside.py").write_text("WORD = 'beside'")
    Path("user/scripts/verify.py").write_text("import sys\nimport beside\nsys.exit([beside.WORD])")
    before = list(sys.path)
    assert main(["verify"]) == 1
    told = capsys.readouterr().err
    assert "verify.py is run, and not the script 'verify' that ships with xdpx" in told
    assert "['beside']" in told
    assert sys.path == before
    sys.modules.pop("beside")


@pytest.mark.parametrize(
    ("source", "out", "code"),
    [
        ("def main(argv): print('main', argv)", "main ['a', '--b']", 0),
        ("def main(argv): ...\ndef cli_main(argv): print(argv)\n", "['called', 'a', '--b']", 0),
        ("import sys\ndef main():\n    print(sys.argv[1:])\n    return 4", "['a', '--b']", 4),
        ("def main(argv=None): raise SystemExit(2)", "", 2),
        ("def main(argv): print(argv)\nmain(1)", "1", 0),
        ("def main(argv): print(argv)\nprint(*map(main, [1]))", "1\nNone", 0),
        ("import logging\nlog = logging.getLogger(__name__)\ndef main(argv): print(argv)", "['a', '--b']", 0),
        ("def main(argv): print(argv)\nDOORS = {'main': main}", "['a', '--b']", 0),
        ("def main(argv): print(argv)\nif __name__ == '__main__':\n    main(1)", "1", 0),
        ("def helper(): ...\nprint('by itself')", "by itself", 0),
    ],
)
def test_the_main_function_of_a_users_script_is_called_once(own_script, capsys, source, out, code):
    Path("user/scripts/called.py").write_text(source)
    assert main(["called", "a", "--b"]) == code
    assert capsys.readouterr().out.strip() == out


def test_a_users_script_that_would_do_nothing_is_refused(own_script):
    Path("user/scripts/idle.py").write_text('"""Doc."""\nimport sys\nX = 1\nasync def main(argv): print(argv)\n')
    with pytest.raises(ConfigError, match=r"idle\.py defines neither cli_main nor main, and runs nothing else"):
        main(["idle"])


def test_a_users_script_that_cannot_be_read_is_told_by_its_line(own_script, capsys):
    assert exit_code(lambda: main(["broken"])) == 1
    told = capsys.readouterr().err
    assert told.startswith("SyntaxError: invalid syntax\n  def (\nthe error comes from your module ")
    assert told.rstrip().endswith("broken.py:1.")


def test_an_unknown_name_is_answered_with_the_nearest(own_script):
    with pytest.raises(ConfigError, match="Did you mean 'aggregate_results'"):
        main(["agregate_results"])
    with pytest.raises(ConfigError, match="Did you mean 'greet'"):
        main(["great"])


def test_help_explains_a_script_without_running_it(capsys):
    assert main(["verify", "--help"]) == 0
    assert "Usage: x-script verify" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(set(SHIPPED) - {"replay_nan"}))  # words behind its file are another program's
def test_no_flag_is_dropped_silently(name):
    with pytest.raises(ConfigError, match="no such flag"):
        main([name, "a", "b", "--fulll"])


@pytest.mark.parametrize("name", sorted(set(SHIPPED) - {"doctor"}))  # which looks at this machine
def test_without_arguments_the_usage_is_told(name):
    with pytest.raises(ConfigError, match=f"Usage: x-script {name}"):
        main([name])


def test_scripts_are_found_where_only_the_package_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "__file__", str(tmp_path / "site-packages/xdpx/commands/script.py"))
    monkeypatch.chdir(tmp_path)
    assert script.script_files() == {}
    with pytest.raises(FileNotFoundError):
        main(["verify", str(tmp_path / "nowhere")])


@pytest.mark.parametrize(("word", "meant"), [("–full", "--full"), ("—full", "--full"), ("–lr", "-lr")])
def test_a_dash_of_printed_text_is_told_from_a_hyphen(word, meant):
    with pytest.raises(ConfigError, match=f"{word}: begins with a dash, not with hyphens. Write {meant}."):
        main(["aggregate_results", "runs", word])
