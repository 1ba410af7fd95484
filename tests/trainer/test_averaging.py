"""EMA and SWA in the Trainer: averaged weights are scored and saved, and resuming goes on with both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.optimizers.schedule_free import ScheduleFree
from xdpx import Trainer, TrainerCallback, TrainingArguments

RATE, STEPS = 0.1, 8


class Line(nn.Module):
    """y = a x, whose running mean of x is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(1))
        self.fixed = nn.Parameter(torch.ones(1), requires_grad=False)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        y = self.slope * x
        if self.training:
            self.seen += 1
        return {"logits": y} if labels is None else {"loss": nn.functional.mse_loss(y, labels), "logits": y}


class Walk(TrainerCallback):
    """Notes the weight after each update."""

    def __init__(self) -> None:
        self.points: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **brought: Any) -> None:
        self.points.append(brought["model"].slope.item())


def trainer(folder: Path, **changes: Any) -> tuple[Trainer, Walk]:
    data = [{"x": torch.tensor(1.0), "labels": torch.tensor(3.0)} for _ in range(4 * STEPS)]
    common: dict[str, Any] = {
        "use_cpu": True, "disable_tqdm": True, "learning_rate": RATE, "per_device_train_batch_size": 4, "optim": "sgd",
        "max_steps": STEPS, "lr_scheduler_type": "constant", "save_strategy": "steps", "save_steps": 3, "seed": 1,
        "logging_steps": 1, "save_total_limit": None,
    }  # fmt: skip
    walk = Walk()
    args = TrainingArguments(str(folder), **(common | changes))
    return Trainer(Line(), args, train_dataset=data, eval_dataset=data[:2], callbacks=[walk]), walk


def ema_of(points: list[float], decay: float) -> float:
    mean = 0.0
    for point in points:
        mean = decay * mean + (1 - decay) * point
    return mean


def loss_at(slope: float) -> float:
    return (slope - 3.0) ** 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ema_decay": 0.8}, lambda points: ema_of(points, 0.8)),
        ({"swa_start": 5}, lambda points: sum(points[4:]) / len(points[4:])),
        ({"swa_start": 0.25, "swa_interval": 3}, lambda points: sum(points[1::3]) / len(points[1::3])),
    ],
)
def test_the_averaged_weights_are_scored_and_saved_and_stay_in_the_end(
    tmp_path: Path, changes: dict[str, Any], expected: Any
) -> None:
    chosen, walk = trainer(tmp_path, eval_strategy="steps", eval_steps=6, **changes)
    plain, alone = trainer(tmp_path / "plain")
    chosen.train()
    plain.train()
    assert walk.points == alone.points, "an average changes nothing in what is trained"
    scores = [row["eval_loss"] for row in chosen.state.log_history if "eval_loss" in row]
    assert scores == pytest.approx([loss_at(expected(walk.points[:6])), loss_at(expected(walk.points))], rel=1e-5)
    at_six, at_eight = (load_file(tmp_path / f"checkpoint-{step}/model.safetensors") for step in (6, 8))
    assert float(at_six["slope"]) == pytest.approx(expected(walk.points[:6]), rel=1e-5)
    assert float(at_six["seen"]) == 6.0
    assert float(at_eight["slope"]) == chosen.model.slope.item() == pytest.approx(expected(walk.points), rel=1e-5)
    assert chosen.evaluate()["eval_loss"] == pytest.approx(loss_at(expected(walk.points)), rel=1e-5)


@pytest.mark.parametrize("changes", [{"ema_decay": 0.8}, {"swa_start": 2}, {"swa_start": 5, "swa_interval": 2}])
def test_a_resumed_training_goes_on_with_both_bit_for_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    whole, walk = trainer(tmp_path / "whole", **changes)
    whole.train()
    for step in (3, 6):
        again, rest = trainer(tmp_path / f"from {step}", **changes)
        again.train(resume_from_checkpoint=str(tmp_path / f"whole/checkpoint-{step}"))
        assert rest.points == walk.points[step:]
        assert torch.equal(again.model.slope, whole.model.slope)


def test_until_swa_begins_the_weights_of_now_are_scored_and_saved(tmp_path: Path) -> None:
    chosen, walk = trainer(tmp_path, swa_start=7, eval_strategy="steps", eval_steps=3)
    chosen.train()
    first = next(row["eval_loss"] for row in chosen.state.log_history if "eval_loss" in row)
    assert first == pytest.approx(loss_at(walk.points[2]), rel=1e-5)
    assert float(load_file(tmp_path / "checkpoint-3/model.safetensors")["slope"]) == walk.points[2]


def test_an_average_that_is_left_out_when_resuming_leaves_the_trained_weights(tmp_path: Path) -> None:
    first, walk = trainer(tmp_path / "first", ema_decay=0.8)
    first.train()
    plain, rest = trainer(tmp_path / "plain")
    plain.train(resume_from_checkpoint=str(tmp_path / "first/checkpoint-6"))
    assert rest.points == walk.points[6:]
    assert plain.model.slope.item() == walk.points[-1]


def test_an_even_average_of_other_points_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path, swa_start=2)[0].train()
    with pytest.raises(ValueError, match="swa_start: the average starts at update 3"):
        trainer(tmp_path, swa_start=3)[0].train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))


def test_what_cannot_be_averaged_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="contradicts ema_decay"):
        trainer(tmp_path, ema_decay=0.9, swa_start=2)
    with pytest.raises(ValueError, match="ema_decay: is 1.5. Use more than 0, up to 1"):
        trainer(tmp_path, ema_decay=1.5)
    half, _ = trainer(tmp_path, ema_decay=0.9)
    half.model.bfloat16()
    with pytest.raises(ValueError, match="1 trained weights are in half precision, such as slope"):
        half.train()
    schedule_free, _ = trainer(tmp_path, ema_decay=0.9)
    schedule_free.optimizer = torch.optim.SGD(schedule_free.model.parameters(), lr=RATE)
    schedule_free.optimizer.eval = schedule_free.optimizer.train = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="SGD keeps an average of its own"):
        schedule_free.train()


def test_an_average_that_would_begin_after_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"swa_start: is {STEPS + 1}, but training has {STEPS} steps"):
        trainer(tmp_path, swa_start=STEPS + 1)[0].train()


def by_schedule_free(folder: Path, resume: Any = None, **changes: Any) -> tuple[Trainer, Walk]:
    trained, walk = trainer(folder, save_steps=1, **changes)
    trained.optimizer = ScheduleFree(trained.model.parameters(), lr=RATE)
    trained.train(resume_from_checkpoint=resume)
    return trained, walk


def test_schedule_free_saves_its_average_and_goes_on_from_the_bits_that_it_trained(tmp_path: Path) -> None:
    """Whenever it was scored or saved: in the original each of these moves the last bits of the training."""
    often, points = by_schedule_free(tmp_path / "often", eval_strategy="steps", eval_steps=1)
    rarely, same = by_schedule_free(tmp_path / "rarely", save_strategy="no")
    resumed, rest = by_schedule_free(tmp_path / "again", str(tmp_path / "often/checkpoint-3"))
    assert points.points == same.points
    assert rest.points == points.points[3:]
    ends = [each.model.slope.item() for each in (often, rarely, resumed)]
    assert ends[0] == ends[1] == ends[2] != points.points[-1]
    saved = load_file(tmp_path / f"often/checkpoint-{STEPS}/model.safetensors")
    assert saved["slope"].item() == ends[0]
    assert often.evaluate()["eval_loss"] == pytest.approx((ends[0] - 3) ** 2)
