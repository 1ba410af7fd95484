"""The road a newcomer walks: README's commands, on the demo's own data, made small."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def xdpx(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "xdpx.run", *words], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Walk the whole road once, in a folder of its own, with half of the data."""
    folder = tmp_path_factory.mktemp("demo road")
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    script = REPOSITORY / "examples/demo/stdlib_docstrings.py"
    subprocess.run([sys.executable, str(script), "demo/raw"], cwd=folder, check=True, capture_output=True)
    train = folder / "demo/raw/train.tsv"
    train.write_text("".join(train.read_text(encoding="utf-8").splitlines(keepends=True)[::2]), encoding="utf-8")
    done = xdpx(
        folder,
        *("x-prepro", "examples/demo/prepro"),
        *("x-train", "examples/demo/train", "embedding_dim=64", "hidden_size=64", "learning_rate=0.005"),
        *("x-eval", "examples/demo/eval"),
        *("x-pred", "examples/demo/predict"),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


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
    assert xdpx(demo, "x-train", "examples/demo/train", "save_dir=demo/run2", "max_update=20").returncode == 0
    assert xdpx(demo, "x-viz", "save_dir=demo/run2", "ref_dir=demo/run").returncode == 0
    table = xdpx(demo, "x-script", "aggregate_results", "demo", "--full").stdout
    assert "demo/run2" in table
    assert "max_update" in table


def test_a_dry_run_as_json_prints_nothing_else(demo: Path) -> None:
    done = xdpx(demo, "x-train", "examples/demo/train", "save_dir=demo/new", "--dry", "--json")
    assert json.loads(done.stdout)[0]["model"] == "cls_cnn"


def test_the_script_door_opens_without_hiding_packages(demo: Path) -> None:
    door = [sys.executable, str(REPOSITORY / "xdpx/run.py"), "x-eval", "examples/demo/eval"]
    done = subprocess.run(door, cwd=demo, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
