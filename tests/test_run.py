"""The doors, as a shell opens them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
RUN = str(REPOSITORY / "xdpx" / "run.py")
DRAW = "{\n  shape: square\n  side: 3\n  save_dir: out/one\n  batch_size: 32\n}\n"
HEAVY = ("torch", "jax", "tensorflow", "pandas", "transformers", "matplotlib", "sklearn")


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A working directory with a config and a user's module that adds the command `x-draw`."""
    modules = tmp_path / "user" / "modules"
    modules.mkdir(parents=True)
    shutil.copy(REPOSITORY / "tests" / "config" / "fake_rooms.py", modules)
    (tmp_path / "draw.hjson").write_text(DRAW)
    return tmp_path


OWN_CODE = "| using your own code: fake_rooms.py of user/modules\n"
"""What is said where the user's modules are needed."""


def door(desk: Path, *words: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """Run `python xdpx/run.py ...`, or some code, in that directory."""
    command = [sys.executable, "-c", code] if code else [sys.executable, RUN, *words]
    environment = {key: value for key, value in os.environ.items() if key != "XDPX_USER_MODULES"}
    return subprocess.run(command, cwd=desk, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_a_command_does_its_run_and_exits_with_zero(desk: Path) -> None:
    told = door(desk, "x-draw", "draw", "side=4")
    assert (told.returncode, told.stderr) == (0, OWN_CODE)
    assert "side=4" in (desk / "out/one/picture.txt").read_text()


def test_a_command_can_be_told_everything_on_its_line(desk: Path) -> None:
    told = door(desk, "x-draw", "shape=square", "side=3", "save_dir=out/one", "batch_size=32")
    assert (told.returncode, told.stderr) == (0, OWN_CODE)
    assert "side=3" in (desk / "out/one/picture.txt").read_text()


def test_what_is_missing_on_a_line_without_a_config_is_told_as_in_a_config(desk: Path) -> None:
    told = door(desk, "x-draw", "shpae=square", "side=3", "save_dir=out/one", "--dry")
    assert told.returncode == 2
    assert told.stderr.startswith(f"{OWN_CODE}command line: ")
    assert "shpae (command line): no such key in x-draw. Did you mean 'shape'?" in told.stderr


def test_several_pairs_run_in_order_and_the_second_sees_what_the_first_made(desk: Path) -> None:
    after = DRAW.replace("out/one", "out/two").replace("{\n", "{\n  source: out/one/picture.txt\n", 1)
    (desk / "after.hjson").write_text(after)
    told = door(desk, "x-draw", "draw", "x-draw", "after")
    assert told.returncode == 0
    assert (desk / "out/two/picture.txt").exists()


def test_nothing_starts_when_a_later_pair_is_wrong(desk: Path) -> None:
    (desk / "after.hjson").write_text(DRAW.replace("batch_size", "batchsize"))
    told = door(desk, "x-draw", "draw", "x-draw", "after")
    assert told.returncode == 2
    assert "batchsize (after.hjson:5): no such key in x-draw. Did you mean 'batch_size'?" in told.stderr
    assert not (desk / "out").exists()


def test_a_failure_ends_the_line_unless_told_to_keep_going(desk: Path) -> None:
    line = ["x-draw", "draw", "mishap=bug", "x-draw", "draw", "save_dir=out/two"]
    assert door(desk, *line).returncode == 1
    assert not (desk / "out/two").exists()
    assert door(desk, *line, "--keep-going").returncode == 1
    assert (desk / "out/two/picture.txt").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["x-draw", "draw", "side=x"], 2, "side (command line): is 'x'. Use an integer."),
        (["x-draw", "darw"], 2, "The nearest file there is 'draw.hjson'."),
        (["x-draw", "draw", "--dyr"], 2, "Did you mean '--dry'?"),
        (["x-draw", "draw", "mishap=disk"], 1, "cannot write; because: [Errno 28] No space left on device"),
        (["x-draw", "draw", "mishap=interrupt"], 130, "interrupted"),
        (["x-draw", "draw", "mishap=preempted"], 85, ""),
        (["x-draw", "draw", "mishap=memory"], 1, "out of memory"),
    ],
)
def test_errors_have_their_exit_codes_and_no_traceback(desk: Path, words: list[str], code: int, told: str) -> None:
    result = door(desk, *words)
    assert result.returncode == code
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_an_error_in_a_users_module_is_shown_as_theirs(desk: Path) -> None:
    result = door(desk, "x-draw", "draw", "mishap=bug")
    assert result.returncode == 1
    assert "the error comes from your module" in result.stderr.splitlines()[-1]
    assert "fake_rooms.py" in result.stderr.splitlines()[-1]


def test_a_dry_run_does_nothing_but_print(desk: Path) -> None:
    told = door(desk, "x-draw", "draw", "--dry")
    assert told.returncode == 0
    assert "  batch_size*: 32" in told.stdout
    assert sorted(path.name for path in desk.iterdir()) == ["draw.hjson", "user"]


def test_a_dry_run_as_json_prints_nothing_else(desk: Path) -> None:
    told = door(desk, "x-draw", "draw", "--dry", "--json", "x-draw", "draw", "side=5")
    assert [run["side"] for run in json.loads(told.stdout)] == [3, 5]
    assert told.stderr == OWN_CODE


def test_a_dry_run_as_json_prints_the_faults_when_something_is_wrong(desk: Path) -> None:
    told = door(desk, "x-draw", "draw", "side=x", "--dry", "--json")
    found = json.loads(told.stdout)
    assert (told.returncode, found["exit_code"], [fault["key"] for fault in found["faults"]]) == (2, 2, ["side"])


def test_help_and_schema_need_no_config(desk: Path) -> None:
    assert "batch_size" in door(desk, "x-draw", "--help").stdout
    assert "pictures at once" in door(desk, "x-draw", "--help", "batch_size").stdout
    assert json.loads(door(desk, "x-draw", "--schema").stdout)["title"] == "xdpx x-draw"
    assert "x-prepro" in door(desk, "--help").stdout


def test_an_unknown_topic_of_help_is_refused(desk: Path) -> None:
    told = door(desk, "x-draw", "--help", "batchsize")
    assert told.returncode == 2
    assert "Did you mean 'batch_size'?" in told.stderr


def test_a_pipe_that_closes_early_makes_no_noise(desk: Path) -> None:
    line = f"{sys.executable} {RUN} x-draw --schema | head -c 10"
    told = subprocess.run(["bash", "-c", line], cwd=desk, capture_output=True, text=True, timeout=300, check=True)
    assert told.stderr == OWN_CODE


def test_our_tokenizers_do_not_hide_the_library_of_that_name(desk: Path) -> None:
    (desk / "user" / "modules" / "look.py").write_text("import tokenizers\nprint(tokenizers.__file__)")
    told = door(desk, "x-draw", "draw", "--dry")
    assert "site-packages" in told.stdout.splitlines()[0]


@pytest.mark.parametrize(
    "words",
    [
        ["x-draw", "draw", "--dry"],
        ["x-draw", "draw", "zork=1"],
        ["x-train", "--help"],
        ["x-train", "--schema"],
        ["--help"],
    ],
)
def test_the_doors_import_nothing_heavy(desk: Path, words: list[str]) -> None:
    code = (
        f"import sys; from xdpx.run import main; main({words!r});"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    assert door(desk, code=code).stderr.splitlines()[-1] == "[]"


def test_the_public_names_of_the_package_are_there_and_cost_nothing_before() -> None:
    code = "import sys, xdpx; print('pydantic' in sys.modules, xdpx.Parameters.__name__, callable(xdpx.load))"
    told = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert told.stdout.split()[:3] == ["False", "Parameters", "True"]
