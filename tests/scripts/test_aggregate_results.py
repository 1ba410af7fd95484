import os
import subprocess
import sys
from pathlib import Path

import pytest

from xdpx.commands.script import main

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def runs(tmp_path):
    for name, score, rate in (("lr1", 0.7, 1e-3), ("lr2", 0.9, 1e-4)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "args.py").write_text(repr({"learning_rate": rate, "major_metric": "acc", "ascending_metric": True}))
        (folder / "valid.log.tsv").write_text(f"epoch\tstep\tups\tvalid_acc\tbest_score\n1\t50\t9\t{score}\t{score}\n")
    return str(tmp_path / "runs")


def test_one_line_for_each_run_in_order_of_its_path(runs, capsys):
    assert main(["aggregate_results", runs]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("\t") == ["run", "best_score", "step", "valid_acc"]
    assert [line.split("\t")[1] for line in lines[1:]] == ["0.7", "0.9"]


def test_full_puts_the_best_first_and_shows_what_differs(runs, capsys):
    assert main(["aggregate_results", runs, "--full"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0][-1] == "learning_rate"
    assert [line[-1] for line in lines[1:]] == ["0.0001", "0.001"]


def test_keywords_choose_runs_and_no_run_is_exit_code_1(runs, capsys):
    assert main(["aggregate_results", runs, "-lr2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["aggregate_results", runs, "-lr2", "-lr1"]) == 1
    assert "no evaluated runs with lr2 and lr1" in capsys.readouterr().err


def test_the_folder_of_scripts_does_the_same_as_x_script(runs):
    command = [sys.executable, str(REPOSITORY / "scripts"), "aggregate_results", runs]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0
    assert done.stdout.startswith("run\tbest_score")
