"""What a shell offers on the tabulator key: the script is run by the shell itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xdpx.run import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, with some files beside it."""
    folder = tmp_path_factory.mktemp("completion")
    for name in ("train.hjson", "trial.yaml", "treasure.txt"):
        (folder / name).write_text("")
    (folder / "tree").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "xdpx.run", "x-train", "--completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "script").write_text(done.stdout)
    return folder


def offered(script: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in words)
    program = f"source ./script; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _xdpx; "
    program += "printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(["bash", "-c", program], cwd=script, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [line.rstrip() for line in done.stdout.splitlines() if line]


def test_keys_names_choices_and_flags_are_offered(script: Path) -> None:
    assert offered(script, "x-train", "a", "learning_r") == ["learning_rate="]
    assert offered(script, "x-train", "a", "model", "=", "cls_cnn_b") == ["cls_cnn_bce"]
    assert offered(script, "x-train", "a", "model=cls_cnn_b") == [
        "model=cls_cnn_bce"
    ]  # where the shell does not split at =
    assert offered(script, "x-train", "a", "bf16", "=") == ["true", "false"]
    assert offered(script, "x-train", "a", "--dr") == ["--dry"]
    assert offered(script, "x-train", "a", "x-ev") == ["x-eval"]


def test_the_keys_are_those_of_the_last_command_on_the_line(script: Path) -> None:
    assert offered(script, "x-train", "a", "x-pred", "b", "max_pre") == ["max_predict="]
    assert offered(script, "x-train", "max_pre") == ["max_predictions="]


def test_config_files_and_folders_are_offered_and_for_x_run_every_file(script: Path) -> None:
    assert sorted(offered(script, "x-train", "tr")) == sorted(
        ["train_episodes=", "train_steps=", "train_subset=", "train.hjson", "trial.yaml", "tree/"]
    )
    assert "treasure.txt" in offered(script, "x-run", "trea")


def test_scripts_and_verbs_are_offered(script: Path) -> None:
    assert offered(script, "x-script", "confu") == ["confusion_matrix"]
    assert offered(script, "x-io", "copyt") == ["copytree"]


def test_zsh_loads_what_it_needs_and_fish_gets_lines_of_its_own(capsys: Capture) -> None:
    assert main(["x-train", "--completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit && bashcompinit\n")
    assert main(["x-train", "--completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "complete -c x-train -a model=cls_cnn -d 'The network.'" in lines
    assert all(line.startswith("complete -c x-") for line in lines)


def test_an_unknown_shell_is_refused(capsys: Capture) -> None:
    assert main(["x-train", "--completion", "bahs"]) == 2
    assert "Did you mean 'bash'?" in capsys.readouterr().err
    assert main(["x-train", "--completion"]) == 2


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_is_sound_for_the_shell_itself(shell: str, tmp_path: Path, capsys: Capture) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    main(["x-train", "--completion", shell])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
