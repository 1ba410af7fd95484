import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from xdpx import run as door
from xdpx.commands import board

ROOT = Path(__file__).resolve().parents[2]


def test_the_board_starts_answers_and_ends(tmp_path):
    (tmp_path / "a run").mkdir()
    (tmp_path / "a run" / "valid.log.tsv").write_text("epoch\tstep\tvalid_acc\tbest_score\n1\t10\t0.5\t0.5\n")
    words = [sys.executable, "-m", "xdpx.run", "x-board", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            told = process.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/", told)
            assert address is not None, told
            for _ in range(50):
                with urllib.request.urlopen(f"{address[0]}api/runs?since=0", timeout=10) as answer:
                    found = json.load(answer)
                if found["whole"]:
                    break
            assert [row["name"] for row in found["rows"]] == ["a run"]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["zork"], "'zork' is not a folder"),
        ([".", "--host", "0.0.0.0"], "others could watch your runs. Add --token new"),
        ([".", "--token", "short"], "can be guessed"),
    ],
)
def test_what_would_be_unsafe_or_empty_is_refused(words, told, capsys, monkeypatch):
    monkeypatch.delenv(board.TOKEN_VARIABLE, raising=False)
    assert door.main(["x-board", *words]) == 2
    assert told in capsys.readouterr().err


def test_help_says_how_it_is_called(capsys):
    assert door.main(["x-board", "--help"]) == 0
    assert "ssh -L" in capsys.readouterr().out
