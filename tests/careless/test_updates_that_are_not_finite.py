"""An update whose gradient overflows, through both doors of PyTorch: what becomes of it in fp32, bf16 and fp16."""

from __future__ import annotations

import json
import math
import os
import runpy
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from benchmarks.trainer_work import Points, Square
from tests.golden import x_train
from tests.golden.record import hash_of
from tests.golden.trainer import Overflowing
from tests.processes import fork_ranks
from tests.trainer.test_trainer import losses
from xdpx import Trainer, TrainerCallback, TrainingArguments
from xdpx import run as door
from xdpx.checkpoints.trusted import load_tensors
from xdpx.models import models
from xdpx.reports.run_logs import read_table

PLANTED = 5


def trained_by_x_train(folder: Path, **keys: Any) -> dict[str, list[Any]]:
    """Plant an infinite gradient at the fifth update of a run of `cls_cnn`; return the columns of its log."""
    network = models["cls_cnn"]
    forward, seen = network.forward, 0

    def planted(self: Any, *arguments: Any, **more: Any) -> Tensor:
        nonlocal seen
        found: Tensor = forward(self, *arguments, **more)
        seen += self.training
        if self.training and seen == PLANTED:
            found.register_hook(lambda gradient: gradient * torch.inf)
        return found

    with mock.patch.object(network, "forward", planted):
        x_train.train(folder, "run", "single", {**x_train.CNN, "eval_interval": 1, **keys})
    return read_table(str(folder / "run/train.log.tsv"))


def reason(folder: Path) -> str:
    found: str = json.loads((folder / "run/status.json").read_text())["reason"]
    return found


def weights_after(folder: Path, step: int) -> str:
    return hash_of(torch.load(folder / f"run/checkpoint-{step}.pt", weights_only=True))


@pytest.mark.parametrize("precision", [{}, {"bf16": True}, {"fp16": True}])
def test_x_train_leaves_such_an_update_out_and_counts_it(tmp_path: Path, precision: dict[str, Any]) -> None:
    log = trained_by_x_train(tmp_path, nonfinite_steps="skip", **precision)
    assert len(log["loss"]) == 12
    assert weights_after(tmp_path, PLANTED - 1) == weights_after(tmp_path, PLANTED) != weights_after(tmp_path, 6)
    state = torch.load(tmp_path / "run/checkpoint-12.pts", weights_only=True)["engine"]
    assert state["num_updates"] == 12
    assert state["loss_scale"]["scale"] == (64.0 if precision.get("fp16") else 1.0), (
        "it begins at 128, and is halved once"
    )


def test_x_train_ends_at_such_an_update_and_saves_nothing_of_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed"):
        trained_by_x_train(tmp_path)
    assert "the loss or gradient of step 5 is NaN or infinite" in reason(tmp_path)
    assert {path.name for path in (tmp_path / "run").glob("checkpoint-?.pt")} == {
        f"checkpoint-{n}.pt" for n in range(1, 5)
    }


def test_x_train_takes_such_an_update_where_that_is_asked_for_and_refuses_to_save_its_weights(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed"):
        trained_by_x_train(tmp_path, nonfinite_steps="keep")
    assert "after step 5 weights are NaN or infinite" in reason(tmp_path)


@pytest.mark.parametrize("action", ["raise", "skip", "keep"])
def test_x_train_names_what_made_it_and_keeps_the_batch(tmp_path: Path, action: str) -> None:
    network = models["cls_cnn"]
    forward, seen = network.forward, 0

    def planted(self: Any, *arguments: Any, **more: Any) -> Tensor:
        nonlocal seen
        found: Tensor = forward(self, *arguments, **more)
        seen += self.training
        return found / (found - found) if self.training and seen >= PLANTED else found

    keys = {**x_train.CNN, "eval_interval": 12, "log_interval": 10, "nonfinite_steps": action}
    with mock.patch.object(network, "forward", planted), suppress(RuntimeError):
        x_train.train(tmp_path, "run", "single", keys)
    told = (tmp_path / "run/nonfinite/update-5.txt").read_text()
    assert f"forward: '{network.__name__}' ({network.__name__}) is the first module that gives inf" in told
    assert "sample ids " in told
    assert load_tensors(str(tmp_path / "run/nonfinite/update-5.pt"))["number"] == PLANTED
    if action == "raise":
        assert "It began forward: '" in reason(tmp_path)


@pytest.mark.parametrize("action", ["raise", "skip", "keep"])
def test_the_trainer_names_what_made_it(tmp_path: Path, action: str) -> None:
    args = TrainingArguments(
        str(tmp_path), max_steps=8, use_cpu=True, disable_tqdm=True, logging_steps=4, nonfinite_steps=action,
        learning_rate=0.01, save_steps=4,
    )  # fmt: skip
    torch.manual_seed(1)
    trainer = Trainer(Overflowing(0.1), args, train_dataset=Points(130))
    with suppress(FloatingPointError):
        trainer.train()
    told = next((tmp_path / "nonfinite").glob("update-*.txt")).read_text()
    assert "was taken again" in told


class Watch(TrainerCallback):
    """Notes the weights, the loss scale and the learning rate after each update."""

    trainer: Trainer

    def __init__(self) -> None:
        self.weights: list[str] = []
        self.scales: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **brought: Any) -> None:
        self.weights.append(hash_of(brought["model"].state_dict()))
        scaler = self.trainer.accelerator.scaler
        self.scales.append(1.0 if scaler is None else scaler.get_scale())


@pytest.mark.parametrize("precision", [{}, {"bf16": True}, {"fp16": True}])
def test_the_trainer_leaves_such_an_update_out_and_counts_it(tmp_path: Path, precision: dict[str, Any]) -> None:
    watch = Watch()
    args = TrainingArguments(
        str(tmp_path), max_steps=12, use_cpu=True, disable_tqdm=True, logging_steps=1, save_strategy="no",
        learning_rate=0.01, nonfinite_steps="skip", **precision,
    )  # fmt: skip
    torch.manual_seed(1)
    watch.trainer = trainer = Trainer(Overflowing(0.1), args, train_dataset=Points(130), callbacks=[watch])
    trainer.train()
    assert trainer.state.global_step == len(losses(trainer)) == 12
    assert watch.weights[PLANTED - 2] == watch.weights[PLANTED - 1] != watch.weights[PLANTED]
    if precision.get("fp16"):
        assert watch.scales == [65536.0] * (PLANTED - 1) + [32768.0] * (12 - PLANTED + 1)
        assert all(math.isfinite(loss) for loss in losses(trainer)), (
            "an overflow of the gradient leaves the loss as it is"
        )
    rates = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    assert rates[PLANTED] == rates[PLANTED - 1], "the schedule waits"


def test_a_loss_scale_that_no_update_fits_ends_x_train_with_a_report(tmp_path: Path) -> None:
    network = models["cls_cnn"]
    forward = network.forward

    def always(self: Any, *arguments: Any, **more: Any) -> Tensor:
        found: Tensor = forward(self, *arguments, **more)
        if self.training:
            found.register_hook(lambda gradient: gradient * torch.inf)
        return found

    keys = {**x_train.CNN, "fp16": True, "fp16_init_scale": 4, "min_loss_scale": 0.5}
    with mock.patch.object(network, "forward", always), pytest.raises(RuntimeError, match="failed"):
        x_train.train(tmp_path, "run", "single", keys)
    assert "update 3: gradients overflow in fp16 at any loss scale down to 0.5" in reason(tmp_path)


class Never(Square):
    """The toy, whose gradients are all infinite."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        said = super().forward(x, labels)
        said["loss"].register_hook(lambda gradient: gradient * torch.inf)
        return said


def test_a_loss_scale_that_no_update_fits_ends_the_trainer_and_its_weights_stay(tmp_path: Path) -> None:
    args = TrainingArguments(
        str(tmp_path), max_steps=40, use_cpu=True, disable_tqdm=True, save_strategy="no", fp16=True
    )  # fmt: skip
    model = Never(0.1)
    before = hash_of(model.state_dict())
    with pytest.raises(
        FloatingPointError, match="update 20: gradients overflow in fp16 at any loss scale down to 0.06"
    ):
        Trainer(model, args, train_dataset=Points(130)).train()
    assert hash_of(model.state_dict()) == before


def test_the_batch_is_taken_again_from_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="failed"):
        trained_by_x_train(tmp_path)
    path = str(tmp_path / "run/nonfinite/update-5.pt")
    monkeypatch.chdir(tmp_path)
    assert door.main(["x-script", "replay_nan", path]) == 0
    assert "all of it is finite now" in capsys.readouterr().out, "the fault was planted from outside"
    network = models["cls_cnn"]
    forward = network.forward
    with mock.patch.object(network, "forward", lambda *values, **more: forward(*values, **more) * torch.nan):
        assert door.main(["x-script", "replay_nan", path]) == 1
    assert "is the first module that gives NaN" in capsys.readouterr().out
    assert door.main(["x-script", "replay_nan", str(tmp_path / "run/checkpoint-4.pt")]) == 2
    assert door.main(["x-script", "replay_nan", str(tmp_path / "none.pt")]) == 2
    capsys.readouterr()
    assert door.main(["x-script", "replay_nan", path, "--fulll"]) == 2
    assert "--fulll: is given, but the args.py of" in capsys.readouterr().err


def test_what_one_rank_met_alone_is_named_and_taken_again_in_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    network = models["cls_cnn"]
    forward, planted = network.forward, tmp_path / "planted"

    def divided(self: Any, tokens: Tensor, mask: Tensor) -> Tensor:
        """Divide by zero in the last row of batches of rank 1, and of the one that it left."""
        found: Tensor = forward(self, tokens, mask)
        bad = self.training and (planted.exists() or os.environ.get("RANK") == "1")
        return found / (torch.arange(len(found)) < len(found) - bad)[:, None]

    x_train.preprocessed(tmp_path, "single")
    with mock.patch.object(network, "forward", divided):
        keys = {**x_train.CNN, "dropout": 0.5, "batch_size": 6}
        codes = fork_ranks(lambda rank: x_train.train(tmp_path, "run", "single", keys), 2, str(tmp_path / "words"))
        assert codes == [70, 70]
        [kept] = (tmp_path / "run/nonfinite").glob("*.pt")
        planted.touch()
        capsys.readouterr()
        assert door.main(["x-script", "replay_nan", str(kept)]) == 1
    said = kept.with_suffix(".txt").read_text().splitlines()
    assert said.pop(1) == "on rank 1 of 2 processes; the others give finite numbers"
    assert "'ClsCnn' (ClsCnn) is the first module that gives" in said[1]
    assert "rows 2 of micro-batch 0" in said
    assert "\n".join(said) in capsys.readouterr().out, "dropout was that of rank 1"


TRAINING = """
import sys
import torch
from torch import nn
from xdpx import Trainer, TrainingArguments

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.drop = nn.Linear(3, 4), nn.Dropout(0.5)

    def forward(self, x, labels=None):
        hidden = self.drop(self.inner(x)) + (0 if "mended" in sys.argv else torch.log(x[:, :1]))
        return {"loss": (hidden.sum(dim=1) - labels).square().mean(), "logits": hidden}

torch.manual_seed(len(sys.argv))
rows = [{"x": torch.full((3,), 1.0 + row), "labels": torch.tensor(0.0)} for row in range(12)]
rows[7]["x"] = torch.tensor([-1.0, 2.0, 3.0])
args = TrainingArguments("out", max_steps=3, per_device_train_batch_size=4, use_cpu=True, disable_tqdm=True,
                         nonfinite_steps="raise", report_to="none")
Trainer(Net(), args, train_dataset=rows).train()
print("TRAINED")
"""


def test_a_trainer_takes_the_batch_again_by_its_script_and_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINING)
    with pytest.raises(FloatingPointError, match=r"It began forward: 'Net' .* See .*update"):
        runpy.run_path("train.py", run_name="__main__")
    [kept] = (tmp_path / "out/nonfinite").glob("*.pt")
    before = sorted(tmp_path.rglob("*"))
    said = kept.with_suffix(".txt").read_text()
    capsys.readouterr()
    assert door.main(["x-script", "replay_nan", str(kept)]) == 0
    assert "its script builds the model" in capsys.readouterr().out
    assert door.main(["x-script", "replay_nan", str(kept), "mended", "train.py"]) == 2
    assert "mended train.py: is given, but" in capsys.readouterr().err
    assert door.main(["x-script", "replay_nan", str(kept), "train.py", "other weights at first"]) == 1
    told = capsys.readouterr().out
    assert said in told, "weights, batch and dropout are those of the file"
    assert "TRAINED" not in told
    assert door.main(["x-script", "replay_nan", str(kept), "train.py", "mended"]) == 0
    assert "all of it is finite now" in capsys.readouterr().out
    (tmp_path / "idle.py").write_text("print('nothing is trained here')")
    assert door.main(["x-script", "replay_nan", str(kept), "idle.py"]) == 1
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "idle.py"])
