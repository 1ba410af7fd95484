"""One label is NaN, or a rate far too high: what was good stays on the disk, and is what a resume takes."""

import logging
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import SequentialSampler

from tests.careless.two_classes import prepare, train
from xdpx import Trainer, TrainingArguments
from xdpx.checkpoints import folders

POISONED_UPDATE = 3


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(3, 1)

    def forward(self, x, labels=None):
        guess = self.line(x).squeeze(-1)
        return {"loss": ((guess - labels) ** 2).mean(), "logits": guess}


class InOrder(Trainer):
    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


def rows(poisoned=True):
    drawn = torch.Generator().manual_seed(0)
    found = [{"x": torch.randn(3, generator=drawn), "labels": torch.randn((), generator=drawn)} for _ in range(24)]
    if poisoned:
        found[4 * POISONED_UPDATE - 2]["labels"] = torch.tensor(float("nan"))
    return found


def trainer(folder, poisoned=True, **options):
    torch.manual_seed(0)
    usual = {"per_device_train_batch_size": 4, "num_train_epochs": 1, "save_steps": 1, "logging_steps": 1}
    usual |= {"save_total_limit": 2, "report_to": [], "use_cpu": True, "disable_tqdm": True}
    args = TrainingArguments(str(folder), **{**usual, **options})

    def scores(prediction):
        scores.last += 1.0  # a metric that does not see what the weights are
        return {"acc": scores.last}

    scores.last = 0.0
    return InOrder(
        model=Line(), args=args, train_dataset=rows(poisoned), eval_dataset=rows()[:4], compute_metrics=scores
    )


def warnings(caplog):
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_newest_checkpoint_with_finite_weights_stays_and_is_what_a_resume_takes(tmp_path, caplog):
    trainer(tmp_path / "run").train()
    assert folders.steps(tmp_path / "run") == [POISONED_UPDATE - 1, 6]
    told = [line for line in warnings(caplog) if "training continues" in line]
    assert len(told) == 1
    assert re.match(f"(loss or gradient is|weights are) NaN or infinite,? at step {POISONED_UPDATE}", told[0])
    caplog.clear()
    again = trainer(tmp_path / "run", nonfinite_steps="skip")
    again.train(resume_from_checkpoint=True)
    passed_over, *_ = warnings(caplog)
    assert "checkpoint-6: weights in it are NaN or infinite." in passed_over
    assert all(weight.isfinite().all() for weight in again.model.parameters())


def test_a_path_to_weights_that_are_not_finite_is_taken_with_a_loud_word(tmp_path, caplog):
    trainer(tmp_path / "run").train()
    caplog.clear()
    trainer(tmp_path / "run", max_steps=7).train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-6"))
    assert any("checkpoint-6: ITS WEIGHTS ARE NAN OR INFINITE" in line for line in warnings(caplog))


def test_weights_that_are_not_finite_are_never_the_best(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "acc", "greater_is_better": True}
    best = trainer(tmp_path / "run", load_best_model_at_end=True, **options)
    best.train()
    assert best.state.best_global_step == POISONED_UPDATE - 1
    assert all(weight.isfinite().all() for weight in best.model.parameters())


def test_a_training_whose_every_update_is_left_out_ends_as_a_failure(tmp_path):
    lost = trainer(tmp_path / "run", max_steps=400, save_strategy="no", nonfinite_steps="skip")
    with torch.no_grad():
        lost.model.line.weight[:] = float("inf")
    with pytest.raises(FloatingPointError, match="the last 100 updates were left out one after another"):
        lost.train()


def test_without_nan_nothing_is_said(tmp_path, caplog):
    trainer(tmp_path / "run", poisoned=False).train()
    assert not [line for line in warnings(caplog) if "NaN" in line]
    assert folders.steps(tmp_path / "run") == [5, 6]


def test_x_train_saves_no_weights_that_the_last_update_has_made_infinite(tmp_path, capfd):
    """Every loss and gradient so far was finite; the step that follows them was too long."""
    data = prepare(tmp_path / "data")
    run = tmp_path / "run"
    keys = {"learning_rate": 3e38, "clip_norm": 0.0, "weight_decay": 9.0, "eval_interval": 1, "log_interval": 9}
    assert train(data, run, save_full_checkpoint=True, max_epoch=None, max_update=1, **keys) == 1
    error = capfd.readouterr().err
    assert "after step 1 weights are NaN or infinite, though no loss was. Nothing was saved" in error
    assert "Traceback" not in error
    assert not list(run.glob("checkpoint-*"))


def test_x_train_does_not_go_on_from_a_state_that_is_not_finite(tmp_path, capfd, monkeypatch):
    data = prepare(tmp_path / "data")
    run, keys = tmp_path / "run", {"resume": "auto", "learning_rate": 3e38, "clip_norm": 0.0, "weight_decay": 9.0}
    with monkeypatch.context() as older:  # a version that did not look wrote it
        older.setattr("xdpx.training.callbacks.saving.refuse_nonfinite", lambda session: None)
        assert train(data, run, train_steps=1, **keys) == 0
    assert train(data, run, **keys) == 1
    assert "weights in checkpoint-1.pts are NaN or infinite" in capfd.readouterr().err


def test_a_job_of_x_exp_that_skips_every_update_ends_as_a_failure(tmp_path):
    from tests.experiments.running import tiny
    from xdpx.experiments.running import run
    from xdpx.training.status import read_status

    folder = str(tmp_path / "job")
    quiet = {"plots": False, "enable_summary_writer": False}
    with pytest.raises(FloatingPointError, match="the last 4 updates, up to step 4, were all skipped"):
        run(tiny.Tiny(STEPS=4, EVAL=0, SAVE=2, SKIP=1e-9), job_log_dir=folder, **quiet)
    status = read_status(folder)
    assert status is not None
    assert status.status == "failed"
    assert not Path(folder, "checkpoints/checkpoint_00000004").exists()
