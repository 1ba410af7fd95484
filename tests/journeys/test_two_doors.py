"""A run of x-train and one of the Trainer, side by side: in one figure, in one table, with one callback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from xdpx.reports.run_logs import read_run
from xdpx.run import main

SCRIPT = """
import torch
from torch import nn
from own_callbacks import Witness

from xdpx import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


drawn = torch.randn(120, 4, generator=torch.Generator().manual_seed(1))
rows = [{"x": row, "labels": int(row[0] > 0)} for row in drawn]
args = TrainingArguments(
    "by_trainer", max_steps=12, per_device_train_batch_size=16, learning_rate=0.1, logging_steps=3, eval_steps=6,
    eval_strategy="steps", save_strategy="no", metric_for_best_model="acc", report_to="tables", disable_tqdm=True,
)
trainer = Trainer(
    Net(), args, train_dataset=rows[:80], eval_dataset=rows[80:], callbacks=[Witness()],
    compute_metrics=lambda found: {"acc": float((found.predictions.argmax(-1) == found.label_ids).mean())},
)
trainer.train()
"""
CALLBACKS = """
from xdpx import TrainerCallback
from xdpx.trainer.hooks import register


@register("witness")
class Witness(TrainerCallback):
    def __init__(self):
        self.seen = []

    def on_log(self, args, state, control, logs, **kwargs):
        if "loss" in logs:
            self.seen.append(["log", state.global_step])

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        self.seen.append(["evaluate", state.global_step, "eval_acc" in metrics])

    def on_train_end(self, args, state, control, **kwargs):
        with open(args.output_dir + ".seen", "w") as file:
            print(*self.seen, sep="\\n", file=file)
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both doors have trained for twelve steps."""
    folder = tmp_path_factory.mktemp("doors")
    (folder / "user/modules").mkdir(parents=True)
    (folder / "user/modules/own_callbacks.py").write_text(CALLBACKS)
    (folder / "script.py").write_text("import sys\nsys.path.append('user/modules')\n" + SCRIPT)
    (folder / "raw").mkdir()
    for name, count in (("train", 200), ("dev", 40)):
        rows = [f"{'good' if row % 2 else 'poor'} film {row % 7}\t{'ab'[row % 2]}\n" for row in range(count)]
        (folder / f"raw/{name}.txt").write_text("".join(rows))
    prepro = {"data_source": "raw", "data_dir": "data", "processor": "single", "loader": "single", "tokenizer": "space"}
    train = {
        "__parent__": "data/meta", "data_dir": "data", "save_dir": "by_x_train", "model": "cls_cnn", "embedding_dim": 4,
        "loss": "cross_entropy", "hidden_size": 8, "max_update": 12, "batch_size": 32, "learning_rate": 0.01,
        "log_interval": 3, "eval_interval": 6, "major_metric": "acc", "callbacks": ["witness"],
    }  # fmt: skip
    for name, config in (("prepro", {**prepro, "max_len": 8}), ("train", train)):
        (folder / f"{name}.json").write_text(json.dumps(config))
    for line in (["-m", "xdpx.run", "x-prepro", "prepro.json", "x-train", "train.json"], ["script.py"]):
        done = subprocess.run([sys.executable, *line], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_both_leave_the_same_tables(desk: Path) -> None:
    ours, theirs = (read_run(str(desk / name)) for name in ("by_x_train", "by_trainer"))
    for run in (ours, theirs):
        assert run.train["step"].tolist() == [3, 6, 9, 12]
        assert run.valid["step"].tolist() == [6, 12]
        assert run.ascending
        assert run.major_scores.max() == run.valid["best_score"][-1]
        assert (run.train["ups"] > 0).all()
        assert (run.valid["train_wall"] > 0).all()
    assert (ours.samples_per_step, theirs.samples_per_step) == (32, 16)
    columns = {"epoch", "step", "loss", "gnorm", "clip", "wps", "ups", "lr"}
    assert columns <= set(ours.train.columns)
    assert columns <= set(theirs.train.columns)


def test_one_callback_hears_the_same_at_both(desk: Path) -> None:
    ours, theirs = ((desk / f"{name}.seen").read_text() for name in ("by_x_train", "by_trainer"))
    assert ours == theirs
    assert ours.count("evaluate") == 2


@pytest.mark.parametrize("walltime", ["false", "true"])
def test_both_are_drawn_in_one_figure(
    desk: Path, walltime: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    config = {"save_dir": "by_trainer", "ref_dir": {"x-train": "by_x_train"}}
    Path("viz.json").write_text(json.dumps(config))
    assert main(["x-viz", "viz.json", f"walltime={walltime}"]) == 0
    assert "left out" not in capsys.readouterr().err
    assert {"acc.png", "loss.png"} <= {path.name for path in (desk / "by_trainer/plots").iterdir()}


def test_both_stand_in_one_table_of_results(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    assert main(["x-script", "aggregate_results", "by_trainer", "by_x_train"]) == 0
    told = capsys.readouterr().out
    assert "by_trainer" in told
    assert "by_x_train" in told
