"""The road a newcomer walks: README's commands, on the demo's own data, made small."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
LINES = [text for text in re.findall(r"^```bash\n(.*?)^```", README, re.MULTILINE | re.DOTALL) if "x-exp" not in text]
TOUR, COMPARED = (next(text for text in LINES if word in text) for word in ("stdlib_docstrings", "x-viz"))


def xdpx(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "xdpx.run", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def typed(folder: Path, lines: str) -> str:
    """Run lines of README with the words that a shell finds in them, and return what they say; all must end well."""
    told = ""
    for line in lines.replace("\\\n", " ").splitlines():
        command, *words = shlex.split(line, comments=True)
        program = words if command == "python" else ["-m", "xdpx.run", command, *words]
        done = subprocess.run([sys.executable, *program], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        told += done.stdout + done.stderr
    return told


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Walk README's tour once, in a folder of its own, with a third of the data."""
    folder = tmp_path_factory.mktemp("demo road")
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    writing, commands = TOUR.split("\n", 1)
    typed(folder, writing)
    train = folder / "demo/raw/train.tsv"
    train.write_text("".join(train.read_text(encoding="utf-8").splitlines(keepends=True)[::3]), encoding="utf-8")
    typed(folder, commands)
    return folder


def test_a_file_of_the_user_needs_one_command(demo: Path) -> None:
    rows = (demo / "demo/raw/dev.tsv").read_text(encoding="utf-8").splitlines()[:200]
    with (demo / "reviews.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["review", "label"], *[row.split("\t") for row in rows]])
    [line] = [row for text in LINES for row in text.splitlines() if "reviews.csv" in row]
    assert "95 % interval" in typed(demo, f"{line.partition('#')[0]} max_epoch=1")


def test_the_demo_is_scored_well_above_the_majority_class(demo: Path) -> None:
    with (demo / "demo/scores.tsv").open(encoding="utf-8") as file:
        scores = {row["split"]: float(row["acc"]) for row in csv.DictReader(file, delimiter="\t")}
    assert scores["test"] > 0.5  # the commonest of nine topics has 0.17


def test_predictions_stand_beside_every_original_line(demo: Path) -> None:
    original = (demo / "demo/raw/unlabelled.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in (demo / "demo/predictions.tsv").read_text(encoding="utf-8").splitlines()]
    assert rows[0] == ["text", "pred", "prob", "target_prob"]
    assert [row[0] for row in rows[1:]] == original
    assert all(abs(sum(json.loads(row[2])) - 1) < 1e-4 for row in rows[1:])


@pytest.mark.parametrize(
    "name",
    ["args.py", "log.txt", "snapshot.zip", "starter_config.hjson", "train.log.tsv", "valid.log.tsv", "plots/acc.png"],
)
def test_the_run_leaves_the_documented_files(demo: Path, name: str) -> None:
    assert (demo / "demo/run" / name).stat().st_size > 0


def test_the_summary_says_what_to_try_next(demo: Path) -> None:
    summary = REPOSITORY / "examples/demo/summary.py"
    done = subprocess.run([sys.executable, str(summary), "demo"], cwd=demo, capture_output=True, text=True, check=True)
    assert "What to try next" in done.stdout


def test_two_runs_are_drawn_and_tabulated_together(demo: Path) -> None:
    told = typed(demo, COMPARED.replace("save_dir=demo/run2", "save_dir=demo/run2 max_update=20", 1))
    assert "demo/run2" in told
    assert "learning_rate" in told


def test_the_run_opens_from_python_as_the_readme_shows(demo: Path) -> None:
    code = next(text for text in re.findall(r"^```python\n(.*?)^```", README, re.M | re.S) if "load_run" in text)
    done = subprocess.run([sys.executable, "-c", code], cwd=demo, capture_output=True, text=True, check=False)
    assert done.stdout == "graphics\n", done.stderr[-2000:]


def test_a_dry_run_as_json_prints_nothing_else(demo: Path) -> None:
    done = xdpx(demo, "x-train", "examples/demo/train", "save_dir=demo/new", "--dry", "--json")
    assert json.loads(done.stdout)[0]["model"] == "cls_cnn"


def test_the_script_door_opens_without_hiding_packages(demo: Path) -> None:
    door = [sys.executable, str(REPOSITORY / "xdpx/run.py"), "x-eval", "examples/demo/eval"]
    done = subprocess.run(door, cwd=demo, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_mistakes_are_answered_as_both_readmes_print(demo: Path) -> None:
    pages = [README, (REPOSITORY / "README.zh.md").read_text(encoding="utf-8")]
    answer = re.compile(r"^```\n\$ (x-\S+) (.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    shown, shown_in_chinese = map(answer.findall, pages)
    assert shown == shown_in_chinese
    assert len(shown) == 2
    for command, words, answer in shown:
        door = ["xdpx.main"] if command == "x-exp" else ["xdpx.run", command]
        line = [sys.executable, "-m", *door, *words.split()]
        assert subprocess.run(line, cwd=demo, capture_output=True, text=True, check=False).stderr == answer
