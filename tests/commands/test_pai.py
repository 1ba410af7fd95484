"""`bash pai.sh` against a stand-in for odpscmd, which notes what it is asked and says what odpscmd says."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, environment
from xdpx.commands.pai import parse, trouble_of, wanted
from xdpx.config.faults import ConfigError

INSTANCE = "20261123064100gxyz"
LOGVIEW = f"http://logview.odps.aliyun.com/logview/?h=http://service.odps.aliyun.com/api&p=me&i={INSTANCE}&token=abc"
ODPSCMD = f"""#!{sys.executable}
import json, os, sys
with open("argv.jsonl", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if "REFUSE" in os.environ:
    sys.exit("FAILED: ODPS-0420095: Access Denied - not allowed")
print("ID = {INSTANCE}\\nLog view:\\n{LOGVIEW}", flush=True)
for second, percent in enumerate((0, 0, 0, 50, 50)):
    print(f"pytorch180_a 2026-11-23 06:41:0{{second}} job:0/0/1[{{percent}}%]", flush=True)
print("OK")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "odpscmd").write_text(ODPSCMD)
    (tmp_path / "bin" / "odpscmd").chmod(0o755)
    return tmp_path


def pai(project: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    found = environment(PATH=f"{project / 'bin'}:{os.environ['PATH']}", PYTHON=sys.executable, **more)
    return subprocess.run(
        ["bash", str(ROOT / "pai.sh"), *words], cwd=project, env=found, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_line_is_checked_sent_followed_and_noted(project: Path) -> None:
    ended = pai(project, "x-io", "listdir", ".", "-v", "131", "-w", "1", "-g", "2", "-c", "4", "-m", "10")
    assert ended.returncode == 0, ended.stderr
    (words,) = [json.loads(line) for line in (project / "argv.jsonl").read_text().splitlines()]
    (folder,) = (project / "submissions").iterdir()
    assert words == ["-e", (folder / "pai.txt").read_text().rstrip("\n")]
    assert "-DuserDefinedParameters='x-io listdir .'" in words[1]
    assert ended.stdout.count("[0%]") == ended.stdout.count("[50%]") == 1
    row = (project / "command_history.txt").read_text().rstrip("\n").split("\t")
    assert row[1:] == ["x-io listdir .", f"pai {INSTANCE}", LOGVIEW]
    assert not (folder / "package.tar.gz").exists()


def test_what_pai_refuses_is_told_in_its_own_words_and_nothing_is_noted(project: Path) -> None:
    ended = pai(project, "x-io", "listdir", ".", "-w", "1", "-g", "1", REFUSE="1")
    assert ended.returncode == 1
    assert "ODPS-0420095: Access Denied" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (project / "command_history.txt").exists()


def test_a_config_with_a_fault_goes_nowhere(project: Path) -> None:
    (project / "bad.hjson").write_text("{ learning_rat: 1 }")
    ended = pai(project, "x-train", "bad.hjson", "-w", "1", "-g", "1")
    assert ended.returncode == 2
    assert "learning_rat" in ended.stderr
    assert not (project / "argv.jsonl").exists()


def test_flags_are_taken_wherever_they_stand_and_the_rest_is_left_alone() -> None:
    words = "-w 2 x-train a.hjson --n_gpus=1 x-train b c=-v --pt_version 131 --v100 y --tensorflow --dry"
    rest, given = parse(words.split())
    assert rest == ["x-train", "a.hjson", "x-train", "b", "c=-v"]
    expected = {"nodes": "2", "gpus": "1", "pytorch": "131", "v100": "y", "tensorflow": "true", "dry": "true"}
    assert given == expected


@pytest.mark.parametrize("words", ["x-train a -w", "-g x-train a", "x-train a -r oss://b/c"])
def test_a_flag_without_its_value_is_no_command(words: str) -> None:
    with pytest.raises(ConfigError):
        parse(words.split())


def test_flags_win_over_configs_and_these_over_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    values = wanted({"gpus": "2"}, {"gpus": 1, "nodes": 1, "memory": 20})
    expected = {"gpus": "2", "nodes": "1", "memory": "20", "pytorch": "180", "cpus": "4", "v100": "n"}
    assert values == expected
    assert "pytorch 180 (-v), cpus 4 (-c), v100 n (-s)" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="-w: is not given"):
        wanted({"gpus": "2"}, {})


def test_on_a_terminal_what_is_missing_is_asked_for_until_it_fits(project: Path) -> None:
    near, far = pty.openpty()
    found = environment(PATH=f"{project / 'bin'}:{os.environ['PATH']}", PYTHON=sys.executable)
    words = ["bash", str(ROOT / "pai.sh"), "x-io", "listdir", ".", "-w", "1", "-s", "n", "--dry"]
    with subprocess.Popen(words, cwd=project, env=found, stdin=far, stdout=subprocess.PIPE, text=True) as process:
        os.write(near, b"131\n9\n3\n\n64\n")  # version; GPUs, the first time too many; cores as usual; memory
        told, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "--gpus: is 9. Use 1 to 8" in told
    assert "pai -name pytorch131" in told
    assert '{"cpu":400,"memory":64000,"gpu":300}' in told


@pytest.mark.parametrize(("name", "text"), [("memory", "129"), ("cpus", "x"), ("v100", "maybe"), ("pytorch", "190")])
def test_an_answer_that_pai_does_not_take_is_named(name: str, text: str) -> None:
    assert trouble_of(name, text)


@pytest.mark.parametrize("word", ["test", "benchmark", "coverage"])
def test_what_only_the_repository_can_run_is_not_sent_and_says_how_to_run_it(word: str) -> None:
    with pytest.raises(ConfigError, match=rf"{word}: is not sent to PAI.* Run it on a machine with the repository"):
        parse([word, "-w", "1"])


def test_a_flag_whose_value_was_forgotten_does_not_take_the_next_flag_for_it() -> None:
    with pytest.raises(ConfigError, match="-g: has no value"):
        parse(["x-train", "train", "-w", "1", "-g", "--dry"])
    with pytest.raises(ConfigError, match="-v: has no value"):
        parse(["x-train", "train", "-v", "-w", "1"])
