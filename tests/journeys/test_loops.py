"""Many runs from one config: grids that nest, cross-validation, runs that fail, and the same command again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.tiers import nightly

FRAGILE = '''
from xdpx.config.parameters import param
from xdpx.losses import register
from xdpx.losses.cross_entropy import CrossEntropy


@register("fragile")
class Fragile(CrossEntropy):
    """Cross-entropy that fails when asked to."""

    class Parameters(CrossEntropy.Parameters):
        fail: bool = param(False, doc="Whether to fail.")

    def __call__(self, model, batch):
        if self.parameters.fail:
            raise ValueError("as asked")
        return super().__call__(model, batch)
'''
BASE = """
__parent__: data/meta
data_dir: data
model: cls_cnn
embedding_dim: 4
hidden_size: 8
dropout: 0.2
loss: fragile
batch_size: 8
max_update: 2
eval_interval: -1
major_metric: acc
learning_rate: 1e-2
plots: false
"""
GRID = """{
  __parent__: [
    ../base
    [
      { learning_rate: 1e-2 }
      { learning_rate: 1e-3, __parent__: [ [ { dropout: 0.1 }, { dropout: 0.3 } ] ] }
    ]
  ]
  save_dir: grid/${learning_rate}.${dropout}
}"""
FOLDS = """
__parent__:
  - ./base
  - - {__def__: {fold: 0}}
    - {__def__: {fold: 1}, fail: true}
    - {__def__: {fold: 2}}
train_subset: split*
valid_subset: split${fold}
exclude_valid_from_train: true
save_dir: folds/${fold}
resume: auto
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Prepare three splits and a module of the user's, and return what runs a command there."""
    folder = tmp_path_factory.mktemp("loops")
    texts = {"raw/split0.txt": "good film\tpos\nbad film\tneg\n" * 8, "base.yaml": BASE, "folds.yml": FOLDS}
    texts |= {"raw/split1.txt": "good\tpos\nbad\tneg\n" * 8, "raw/split2.txt": "good one\tpos\nbad one\tneg\n" * 8}
    texts |= {"user/modules/fragile.py": FRAGILE, "sweeps/grid.hjson": GRID}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def xdpx(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "xdpx.run", *words]
        return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)

    made = ("loader=single", "processor=single", "tokenizer=space", "max_len=4")
    assert xdpx("x-prepro", "data_source=raw", "data_dir=data", *made).returncode == 0
    return xdpx


def rows(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the rows of the last table on standard error or output."""
    lines = (done.stdout + done.stderr).splitlines()
    start = max(index for index, line in enumerate(lines) if line.startswith("run  what varies"))
    return [line for line in lines[start + 1 :] if line[:1].isdigit()]


@nightly("tests/commands/test_batch.py::test_runs_at_the_same_time_share_the_threads_and_mark_their_lines")
def test_a_nested_grid_runs_two_at_a_time_and_not_again(run: Run) -> None:
    dry = json.loads(
        run("x-train", "sweeps/grid", "valid_subset=split0", "train_subset=split1", "--dry", "--json").stdout
    )
    assert [each["save_dir"] for each in dry] == ["grid/0.01.0.2", "grid/0.001.0.1", "grid/0.001.0.3"]
    line = ("x-train", "sweeps/grid", "valid_subset=split0", "train_subset=split1", "--jobs", "2")
    first, again = run(*line), run(*line)
    assert (first.returncode, again.returncode) == (0, 0)
    assert [row.count("  finished  ") for row in rows(first)] == [1, 1, 1]
    assert [row.count("  finished before  ") for row in rows(again)] == [1, 1, 1]


@nightly("tests/commands/test_batch.py::test_a_failure_stops_the_loop_unless_told_to_keep_going")
def test_a_fold_that_fails_is_told_and_the_others_go_on(run: Run) -> None:
    first = run("x-train", "folds", "--jobs", "2", "--keep-going")
    assert first.returncode == 1
    assert "the error comes from your module" in first.stdout + first.stderr
    assert [("finished" in row, "failed (1)" in row) for row in rows(first)] == [
        (True, False), (False, True), (True, False),
    ]  # fmt: skip
    again = run("x-train", "folds", "fail=false")
    assert again.returncode == 0
    assert ["finished before" in row for row in rows(again)] == [True, False, True]


@nightly("tests/journeys/test_demo.py::test_two_runs_are_drawn_and_tabulated_together")
def test_the_runs_of_a_loop_stand_in_one_table(run: Run) -> None:
    table = run("x-script", "aggregate_results", "grid", "--full").stdout.splitlines()
    assert {"learning_rate", "dropout"} <= set(table[0].split("\t"))
    assert len(table) == 4
    drawn = run("x-viz", "save_dir=grid/*", "ref_dir=grid/0.01.0.2")
    assert drawn.returncode == 0, drawn.stderr
