"""The prompt, as a person types at it, and the words of x-serve."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from xdpx import run as door
from xdpx.commands import serve, server
from xdpx.commands.serve import answer_lines, row_of
from xdpx.config.faults import ConfigError
from xdpx.inference.answers import Prediction

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("line", "num_texts", "row"),
    [
        ("good film", 1, "good film"),
        ("  有没有 优惠券  ", 1, "有没有 优惠券"),
        ("[笑] 好看", 1, "[笑] 好看"),
        ("['a', 'b']", 1, ["a", "b"]),
        ("['有没有 优惠券', '有 优惠券 吗']", 2, ["有没有 优惠券", "有 优惠券 吗"]),
        ("[‘有没有 优惠券’, ‘有 优惠券 吗’]", 2, ["有没有 优惠券", "有 优惠券 吗"]),
        ("【“甲”，“乙”】", 2, ["甲", "乙"]),
        ("('a', \"it's\")", 2, ["a", "it's"]),
    ],
)
def test_a_line_is_a_text_or_a_list_of_them(line, num_texts, row):
    assert row_of(line, num_texts) == row


@pytest.mark.parametrize("line", ["a b", "['a', 3]", "['a', 'b'", "[a, b]", "__import__('os').getcwd()"])
def test_a_line_that_should_be_a_list_and_is_none_is_told_how_to_be_written(line):
    with pytest.raises(ConfigError, match=r"not a Python list of 2 texts. Write: \['\.\.\.', '\.\.\.'\]"):
        row_of(line, 2)


def test_probabilities_are_shown_the_highest_first():
    shown = list(answer_lines(Prediction("pos", {"neg": 0.25, "pos": 0.75})))
    assert shown[0] == "  pos"
    assert [line.split()[:2] for line in shown[1:]] == [["pos", "0.7500"], ["neg", "0.2500"]]
    assert list(answer_lines(Prediction(None, {}, score=1.5))) == ["  1.5"]
    assert "too short" in next(answer_lines(Prediction(None, {})))
    assert list(answer_lines(Prediction("x", {str(each): 0.01 for each in range(30)})))[-1] == "    and 20 more"


def test_the_prompt_answers_every_line_and_ends_with_the_input(finished_run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("good film\n\n['a', 'b']\nbad plot"))
    assert door.main(["x-script", "serve", str(finished_run.run)]) == 0
    told = capsys.readouterr().out
    assert "checkpoint-10.pt" in told
    assert told.count("pos  0.") == 2
    assert "is a row of 2 texts" in told


def test_what_is_no_run_is_told(tmp_path, capsys):
    assert door.main(["x-script", "serve", str(tmp_path)]) == 2
    assert "contains no args.py" in capsys.readouterr().err
    assert door.main(["x-script", "serve", "a", "b", "c"]) == 2
    assert "Usage: x-script serve SAVE_DIR [CHECKPOINT]" in capsys.readouterr().err


def test_the_documented_file_opens_the_prompt_although_it_lies_beside_our_tokenizers(tmp_path):
    words = [sys.executable, str(ROOT / "xdpx" / "serve.py"), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "python xdpx/serve.py SAVE_DIR" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["zork"], "'zork' is not a folder"),
        ([".", "--host", "0.0.0.0"], "others could use your models. Add --token new"),
        ([".", "--token", "short"], "can be guessed"),
        (["a=.", "a=."], "'a' names several models"),
        (["=."], "'.' has no name before its '='"),
        ([".", "--rows", "many"], "is 'many'; use a whole number from 1"),
        ([".", "--waiting", "0"], "is '0'; use a whole number from 1"),
    ],
)
def test_what_would_be_unsafe_or_empty_is_refused(words, told, capsys, monkeypatch):
    monkeypatch.delenv(server.TOKEN_VARIABLE, raising=False)
    assert door.main(["x-serve", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_missing_package_is_named_with_its_extra(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(server, "find_spec", lambda name: None if name == "uvicorn" else object())
    assert door.main(["x-serve", str(tmp_path)]) == 2
    assert "needs uvicorn, which this environment lacks. Run: pip install 'xdpx[serve]'" in capsys.readouterr().err


def test_flags_that_completion_offers_are_those_that_are_taken():
    taken = {word for action in server._parser()._actions for word in action.option_strings}
    assert set(server.FLAGS) == taken - {"-h"}
    assert serve.__doc__
