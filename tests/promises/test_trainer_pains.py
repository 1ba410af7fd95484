"""What users of the original complain about does not happen here: number by number, as the issue lists it.

Number 15 (several nodes that save), 19 (saving shards) and parts of 1 and 8 need several processes: they are in
test_trainer_pair.py.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import json
import pickle
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset
from transformers.utils import ModelOutput

from xdpx.reports.windows import Stopwatch

_spec = importlib.util.spec_from_file_location("trainer_parts", Path(__file__).with_name("trainer_parts.py"))
assert _spec is not None
assert _spec.loader is not None
parts: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(parts)

door = parts.door
SAVING = {"save_strategy": "steps", "save_steps": 1}


def logged(trainer: Any, key: str) -> list[float]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def said(capture: pytest.CaptureFixture[str]) -> str:
    return "".join(capture.readouterr())


# ---- 1: accumulation


def own_loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    logits = outputs["logits"][:, :-1].flatten(0, 1)
    total = nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=-100, reduction="sum")
    return total / num_items_in_batch


KINDS: dict[str, Any] = {
    "tokens": (parts.tiny_gpt, parts.text_rows, {}),
    "smoothing": (parts.tiny_bert, parts.token_rows, {"label_smoothing_factor": 0.1}),
    "own function": (parts.tiny_gpt, parts.text_rows, {"compute_loss_func": own_loss}),
    "a model that ignores the count": (parts.tiny_bert, parts.token_rows, {}),
    "plain module": (lambda: parts.seeded(), parts.Rows, {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_01_however_a_step_is_cut_its_loss_and_gradient_are_the_same(kind: str, tmp_path: Path) -> None:
    make, rows, changes = KINDS[kind]
    found = []
    for size, accumulation in ((8, 1), (4, 2), (2, 4), (1, 8)):
        trainer = parts.build(
            tmp_path, make(), rows(16), per_device_train_batch_size=size, gradient_accumulation_steps=accumulation,
            max_grad_norm=0.0, optim="sgd", train_sampling_strategy="sequential", **changes,
        )  # fmt: skip
        trainer.train()
        found.append([*parts.losses(trainer), *logged(trainer, "grad_norm")])
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=2e-5)


def test_01_a_trainer_can_be_told_that_a_model_ignores_the_count(tmp_path: Path) -> None:
    found = []
    for size, accumulation in ((8, 1), (2, 4)):
        trainer = parts.build(
            tmp_path, parts.tiny_bert(), parts.token_rows(16), per_device_train_batch_size=size, max_grad_norm=0.0,
            gradient_accumulation_steps=accumulation, optim="sgd", train_sampling_strategy="sequential",
        )  # fmt: skip
        trainer.loss_is_scaled_for_ga = False
        trainer.train()
        found.append([*parts.losses(trainer), *logged(trainer, "grad_norm")])
    assert found[1] == pytest.approx(found[0], rel=2e-5)


@pytest.mark.parametrize("kind", ["tokens", "smoothing", "own function", "a model that ignores the count"])
def test_01_batches_that_do_not_come_out_even_count_every_target_once(kind: str, tmp_path: Path) -> None:
    make, rows, changes = KINDS[kind]
    found = []
    for size, accumulation in ((16, 1), (3, 6), (5, 4)):
        trainer = parts.build(
            tmp_path, make(), rows(16), per_device_train_batch_size=size, max_grad_norm=0.0,
            gradient_accumulation_steps=accumulation, optim="sgd", train_sampling_strategy="sequential", **changes,
        )  # fmt: skip
        trainer.train()
        found.append([*parts.losses(trainer), *logged(trainer, "grad_norm")])
    assert found[1] == pytest.approx(found[0], rel=2e-5)
    assert found[2] == pytest.approx(found[0], rel=2e-5)


# ---- 2: signatures


class Short(door.Trainer):  # type: ignore[misc, name-defined]
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False) -> Any:
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


class Open(door.Trainer):  # type: ignore[misc, name-defined]
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


class Old(door.Trainer):  # type: ignore[misc, name-defined]
    def training_step(self, model: Any, inputs: Any) -> Any:
        model.train()
        loss = self.compute_loss(model, self._prepare_inputs(inputs))
        loss.backward()
        return loss.detach()

    def log(self, logs: Any) -> None:
        super().log({**logs, "old": 1.0})


@pytest.mark.parametrize("kind", [Short, Open, Old])
def test_02_methods_of_any_generation_are_called_as_they_are_written(kind: Any, tmp_path: Path) -> None:
    plain = parts.build(tmp_path, parts.tiny_bert(), parts.token_rows())
    plain.train()
    trainer = parts.build(tmp_path, parts.tiny_bert(), parts.token_rows(), kind=kind, eval_dataset=parts.token_rows(8))
    trainer.train()
    assert parts.losses(trainer) == pytest.approx(parts.losses(plain), rel=1e-6)
    assert trainer.evaluate()["eval_loss"] > 0


def test_02_a_forward_that_does_not_know_the_count_is_not_given_it(tmp_path: Path) -> None:
    class Strict(parts.Net):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, labels: Any) -> Any:
            return super().forward(x, labels)

    class Loose(parts.Net):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, labels: Any, **kwargs: Any) -> Any:
            self.kwargs = set(kwargs)
            return super().forward(x, labels)

    strict, loose = (parts.build(tmp_path, parts.seeded(kind)) for kind in (Strict, Loose))
    strict.train()
    loose.train()
    assert loose.model.kwargs == {"num_items_in_batch"}
    assert parts.losses(loose) == parts.losses(strict)


# ---- 3: slow resume


def test_03_resuming_reads_no_row_that_was_trained_on(tmp_path: Path) -> None:
    first = parts.Rows(400)
    parts.build(tmp_path, data=first, callbacks=[parts.stopper(90)], save_strategy="steps", save_steps=90).train()
    rows = parts.Rows(400)
    parts.build(tmp_path, data=rows, save_strategy="steps", save_steps=90).train(resume_from_checkpoint=True)
    assert len(rows.asked) == 400 - 4 * 90
    assert sorted(first.asked[:360] + rows.asked) == list(range(400))


class Stream(IterableDataset):  # type: ignore[type-arg]
    """A stream that can begin where it stood, as those of `datasets` can."""

    def __init__(self) -> None:
        self.at, self.given = 0, 0

    def __iter__(self) -> Any:
        rows = parts.Rows(48)
        while self.at < len(rows):
            self.at += 1
            self.given += 1
            yield rows[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_03_a_stream_that_knows_where_it_stood_is_not_read_again(tmp_path: Path) -> None:
    straight = parts.build(tmp_path / "a", data=Stream(), max_steps=9)
    straight.train()
    common = {"max_steps": 9, "save_strategy": "steps", "save_steps": 6}
    parts.build(tmp_path / "b", data=Stream(), callbacks=[parts.stopper(6)], **common).train()
    stream = Stream()
    resumed = parts.build(tmp_path / "b", data=stream, **common)
    resumed.train(resume_from_checkpoint=True)
    assert parts.losses(resumed) == parts.losses(straight)
    assert stream.given <= 3 * 4 + 8  # a step or two may be read ahead


# ---- 4: checkpoints half written

FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json", "rng_state.pth")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_04_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    name: str, damage: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    straight = parts.build(tmp_path, save_strategy="steps", save_steps=2)
    straight.train()
    victim = tmp_path / "checkpoint-6" / name
    if damage == "cut":
        victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    else:
        victim.unlink()
    capfd.readouterr()
    resumed = parts.build(tmp_path, save_strategy="steps", save_steps=2)
    resumed.train(resume_from_checkpoint=True)
    assert "checkpoint-6" in said(capfd)
    assert len(parts.losses(resumed)) == 6
    assert torch.equal(parts.weights(resumed.model), parts.weights(straight.model))


def test_04_a_save_that_fails_leaves_no_checkpoint(tmp_path: Path) -> None:
    class Full(door.Trainer):  # type: ignore[misc, name-defined]
        def _save(self, output_dir: Any = None, state_dict: Any = None) -> None:
            super()._save(output_dir, state_dict)
            if self.state.global_step == 4:
                raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        parts.build(tmp_path, kind=Full, save_strategy="steps", save_steps=2).train()
    assert parts.folders(tmp_path) == ["checkpoint-2"]


# ---- 5: memory in evaluation


def test_05_predictions_are_put_together_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = []
    cat = torch.cat
    monkeypatch.setattr(torch, "cat", lambda *a, **k: (copied.append(result := cat(*a, **k)), result)[1])
    concatenate = np.concatenate
    monkeypatch.setattr(np, "concatenate", lambda *a, **k: (copied.append(r := concatenate(*a, **k)), r)[1])
    rows = parts.Rows(240)
    predicted = parts.build(tmp_path).predict(rows)
    assert predicted.predictions.shape == (240, 3)
    assert sum(part.numel() if isinstance(part, torch.Tensor) else part.size for part in copied) <= 2 * 240 * 4


def test_05_predictions_that_will_fill_the_memory_are_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("xdpx.trainer.data.joining.total_memory", lambda: 2000)
    parts.build(tmp_path).predict(parts.Rows(240))
    words = said(capfd)
    assert "batch_eval_metrics" in words or "preprocess_logits_for_metrics" in words


# ---- 6: the loss of an evaluation


def test_06_the_loss_of_an_evaluation_does_not_depend_on_its_batches(tmp_path: Path) -> None:
    rows, model = parts.text_rows(15), parts.tiny_gpt()
    found = []
    for size in (1, 2, 4, 8):
        found.append(parts.build(tmp_path, model, rows, per_device_eval_batch_size=size).evaluate(rows)["eval_loss"])
    ids, labels = (torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels"))
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
    by_hand = nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=-100).item()
    assert found == pytest.approx([by_hand] * 4, abs=1e-6)


# ---- 7: another run goes on


def test_07_every_argument_that_is_another_one_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    parts.build(tmp_path, save_strategy="steps", save_steps=3, callbacks=[parts.stopper(3)]).train()
    capfd.readouterr()
    changes = {"learning_rate": 0.5, "weight_decay": 0.3, "logging_steps": 2, "warmup_steps": 1}
    resumed = parts.build(tmp_path, save_strategy="steps", save_steps=3, **changes)
    resumed.train(resume_from_checkpoint=True)
    words = said(capfd)
    assert all(name in words for name in changes)
    steps = [entry["step"] for entry in resumed.state.log_history if "loss" in entry]
    assert steps == [1, 2, 3, 4, 6]


GIVEN = {"learning_rate": 0.5, "weight_decay": 0.3, "adam_beta1": 0.5, "warmup_steps": 5}


def resumed_with(tmp_path: Path, wins: str, **changes: Any) -> tuple[Any, Any]:
    """Stop at step 3, go on with other settings; return that Trainer, and one that had these settings all along."""
    common = {"save_strategy": "steps", "save_steps": 3, **changes}
    parts.build(tmp_path / "run", callbacks=[parts.stopper(3)], **common).train()
    resumed = parts.build(tmp_path / "run", resume_hyperparameters=wins, **(common | GIVEN))
    resumed.train(resume_from_checkpoint=True)
    fresh = parts.build(tmp_path / "fresh", **(common | GIVEN | {"save_strategy": "no"}))
    fresh.train()
    return resumed, fresh


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant_with_warmup"])
def test_07_settings_given_now_hold_from_the_next_step_on_when_so_asked(schedule: str, tmp_path: Path) -> None:
    resumed, fresh = resumed_with(tmp_path, "given", lr_scheduler_type=schedule)
    assert logged(resumed, "learning_rate")[:3] != logged(fresh, "learning_rate")[:3]
    assert logged(resumed, "learning_rate")[3:] == pytest.approx(logged(fresh, "learning_rate")[3:])
    for group, wanted in zip(resumed.optimizer.param_groups, fresh.optimizer.param_groups, strict=True):
        assert {name: group[name] for name in group if name != "params"} == {
            name: wanted[name] for name in wanted if name != "params"
        }
    assert {int(state["step"]) for state in resumed.optimizer.state.values()} == {6}  # the moments are the saved ones


def test_07_settings_that_were_saved_hold_otherwise(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    resumed, _ = resumed_with(tmp_path, "saved")
    assert resumed.optimizer.param_groups[0]["initial_lr"] == 0.01
    assert resumed.optimizer.param_groups[0]["betas"] == (0.9, 0.999)
    assert "resume_hyperparameters='given'" in said(capfd)


def test_07_a_schedule_that_follows_the_score_keeps_what_it_has_learned(tmp_path: Path) -> None:
    plateau = {
        "lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps", "eval_steps": 1,
        "save_strategy": "steps", "save_steps": 3,
        "metric_for_best_model": "score", "greater_is_better": True, "eval_dataset": parts.Rows(4),
    }  # fmt: skip
    usual = {"lr_scheduler_kwargs": {"patience": 0, "factor": 0.5, "mode": "max"}, **plateau}
    scores = {"compute_metrics": scored(3, 2, 1)}
    parts.build(tmp_path, callbacks=[parts.stopper(3)], **scores, **usual).train()
    changed = {"lr_scheduler_kwargs": {"patience": 9, "factor": 0.1, "mode": "max"}, "learning_rate": 1.0}
    resumed = parts.build(
        tmp_path, compute_metrics=scored(1, 1, 1), resume_hyperparameters="given", **(usual | changed)
    )
    resumed.train(resume_from_checkpoint=True)
    assert resumed.optimizer.param_groups[0]["lr"] == pytest.approx(0.25)  # halved twice, then patient
    assert (resumed.lr_scheduler.best, resumed.lr_scheduler.patience) == (3, 9)


def test_07_the_data_goes_on_at_the_sample_whatever_the_batch(tmp_path: Path) -> None:
    common = {"save_strategy": "steps", "save_steps": 3, "train_sampling_strategy": "sequential"}
    parts.build(tmp_path, data=parts.Rows(24), callbacks=[parts.stopper(3)], **common).train()
    rows = parts.Rows(24)
    resumed = parts.build(tmp_path, data=rows, per_device_train_batch_size=2, **common)
    resumed.train(resume_from_checkpoint=True)
    assert rows.asked[:12] == list(range(12, 24))
    assert resumed.state.epoch == pytest.approx(1.0)


# ---- 8: the dice of the data


class NoisyRows(parts.Rows):  # type: ignore[misc, name-defined]
    def __getitem__(self, index: int) -> dict[str, Any]:
        row = super().__getitem__(index)
        return {**row, "x": row["x"] + torch.randn(4)}


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_08_data_that_throws_dice_is_the_same_after_a_resume(step: int, tmp_path: Path) -> None:
    common = {"num_train_epochs": 2, **SAVING}
    straight = parts.build(tmp_path / "a", parts.seeded(parts.Net, 0.2), NoisyRows(12), **common)
    straight.train()
    stop = [parts.stopper(step)]
    parts.build(tmp_path / "b", parts.seeded(parts.Net, 0.2), NoisyRows(12), callbacks=stop, **common).train()
    resumed = parts.build(tmp_path / "b", parts.seeded(parts.Net, 0.2), NoisyRows(12), **common)
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(parts.weights(resumed.model), parts.weights(straight.model))


# ---- 9: trackers


@pytest.mark.parametrize("value", [None, "none", [], ["none"]], ids=str)
def test_09_nothing_is_reported_unless_asked_for(value: Any, tmp_path: Path) -> None:
    named = parts.build(tmp_path, report_to=value)
    names = [type(callback).__name__ for callback in named.callback_handler.callbacks]
    assert names == ["DefaultFlowCallback", "PrinterCallback"]
    assert door.TrainingArguments(str(tmp_path)).report_to in ([], "none", None)


# ---- 10: losses that are NaN or infinite


class Explodes(parts.Net):  # type: ignore[misc, name-defined]
    calls = 0

    def forward(self, x: Any, labels: Any = None) -> Any:
        self.calls += 1
        outputs = super().forward(x, labels)
        return {**outputs, "loss": outputs["loss"] * (float("nan") if self.calls == 3 else 1.0)}


def test_10_a_loss_that_is_no_number_is_logged_as_it_is(tmp_path: Path) -> None:
    trainer = parts.build(tmp_path, parts.seeded(Explodes))
    trainer.train()
    found = parts.losses(trainer)
    assert np.isfinite(found[:2]).all()
    assert np.isnan(found[2:]).all()


def test_10_updates_that_are_no_numbers_are_counted(tmp_path: Path) -> None:
    trainer = parts.build(tmp_path, parts.seeded(Explodes), logging_steps=2)
    trainer.train()
    assert logged(trainer, "nonfinite_steps") == [2, 2]  # the third and, its weights being spoilt, all that follow
    healthy = parts.build(tmp_path)
    healthy.train()
    assert not logged(healthy, "nonfinite_steps")


@pytest.mark.parametrize(("action", "waiting"), [("keep", False), ("skip", True), ("raise", True)])
def test_10_nothing_waits_for_the_device_until_a_log_unless_so_asked(
    action: str, waiting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wide(parts.Net):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, labels: Any = None) -> Any:
            outputs = super().forward(x, labels)
            return {**outputs, "aux_loss": outputs["loss"] * 2}

    monkeypatch.setattr("xdpx.engines.pytorch.transfer.is_free_to_read", lambda device: False)  # as if this were a GPU
    waits: list[str] = []
    for name in ("item", "tolist", "__bool__", "__float__", "cpu", "numpy"):
        real = getattr(torch.Tensor, name)
        watched = lambda *a, real=real, name=name, **k: (waits.append(name), real(*a, **k))[1]  # noqa: E731
        monkeypatch.setattr(torch.Tensor, name, watched)
    during: list[int] = []

    class Watch(door.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            waits.clear()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            during.append(len(waits))

    trainer = parts.build(
        tmp_path, parts.seeded(Wide), callbacks=[Watch()], optim="sgd", logging_steps=6, nonfinite_steps=action
    )
    trainer.train()
    assert [count > 0 for count in during] == [waiting] * 6
    assert logged(trainer, "aux_loss")


class Blinks(parts.Net):  # type: ignore[misc, name-defined]
    """Return a loss that is NaN, or a gradient that is, in its third pass."""

    calls = 0

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: Any, labels: Any = None) -> Any:
        self.calls += 1
        outputs = super().forward(x, labels)
        if self.calls == 3 and self.what == "loss":
            outputs["loss"] = outputs["loss"] * float("inf")
        if self.calls == 3 and self.what == "gradient":
            outputs["loss"].register_hook(lambda gradient: gradient * float("nan"))
        return outputs


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_10_such_an_update_can_be_left_out(what: str, tmp_path: Path) -> None:
    before: dict[int, Any] = {}

    class Keep(door.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            before[state.global_step] = parts.weights(model).clone()

    trainer = parts.build(
        tmp_path, parts.seeded(Blinks, what), nonfinite_steps="skip", logging_steps=3, callbacks=[Keep()],
        weight_decay=0.1,
    )  # fmt: skip
    output = trainer.train()
    assert torch.equal(before[3], before[2])
    assert not torch.equal(before[4], before[3])
    assert logged(trainer, "nonfinite_steps") == [1]
    assert np.isfinite(parts.losses(trainer)).all()
    first, second = parts.losses(trainer)
    assert output.training_loss == pytest.approx((2 * first + 3 * second) / 5)
    assert {int(state["step"]) for state in trainer.optimizer.state.values()} == {5}
    assert trainer.lr_scheduler.last_epoch == 5


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_10_such_an_update_can_end_the_training_before_it_is_taken(what: str, tmp_path: Path) -> None:
    two = parts.build(tmp_path / "two", callbacks=[parts.stopper(2)])
    two.train()
    trainer = parts.build(tmp_path, parts.seeded(Blinks, what), nonfinite_steps="raise", **SAVING)
    with pytest.raises(FloatingPointError, match="step 3: .*the weights are those of step 2"):
        trainer.train()
    assert torch.equal(parts.weights(trainer.model), parts.weights(two.model))
    assert parts.folders(tmp_path) == ["checkpoint-1", "checkpoint-2"]


# ---- 11: how many checkpoints stay


def scored(*values: float) -> Any:
    """Return a function that scores evaluations in this order."""
    left = list(values)
    return lambda _: {"score": left.pop(0)}


BEST = {"metric_for_best_model": "score", "greater_is_better": True, "eval_strategy": "steps", "eval_steps": 1}


def test_11_the_best_and_the_newest_always_stay(tmp_path: Path) -> None:
    trainer = parts.build(
        tmp_path,
        eval_dataset=parts.Rows(4),
        compute_metrics=scored(1, 9, 2, 3, 4, 5),
        save_total_limit=2,
        **BEST,
        **SAVING,
    )
    trainer.train()
    assert parts.folders(tmp_path) == ["checkpoint-2", "checkpoint-6"]


def test_11_the_newest_that_can_be_resumed_stays(tmp_path: Path) -> None:
    parts.build(tmp_path, save_total_limit=1, save_strategy="steps", save_steps=4, callbacks=[parts.stopper(4)]).train()
    limited = {"save_total_limit": 1, "save_only_model": True, "save_strategy": "steps", "save_steps": 3}
    parts.build(tmp_path, **limited).train()
    assert parts.folders(tmp_path) == ["checkpoint-4", "checkpoint-6"]


def test_11_only_the_best_may_be_kept(tmp_path: Path) -> None:
    trainer = parts.build(
        tmp_path, eval_dataset=parts.Rows(4), compute_metrics=scored(1, 3, 2, 5, 4, 4), save_strategy="best",
        save_total_limit=1, **BEST,
    )  # fmt: skip
    trainer.train()
    assert parts.folders(tmp_path) == ["checkpoint-4"]


# ---- 12: the best model at the end


def test_12_the_best_model_comes_back_whatever_the_intervals(tmp_path: Path) -> None:
    weights = {}

    class Keep(door.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            weights[state.global_step] = parts.weights(model).clone()

    trainer = parts.build(
        tmp_path, eval_dataset=parts.Rows(4), compute_metrics=scored(1, 9, 2), load_best_model_at_end=True,
        callbacks=[Keep()], save_strategy="steps", save_steps=3, **(BEST | {"eval_steps": 2}),
    )  # fmt: skip
    trainer.train()
    assert trainer.state.best_global_step == 4
    assert torch.equal(parts.weights(trainer.model), weights[4])


def test_12_a_best_model_that_could_not_be_loaded_is_said_loudly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Vandal(door.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            for folder in Path(args.output_dir).glob("checkpoint-*"):
                shutil.rmtree(folder)
            state.best_model_checkpoint = None

    trainer = parts.build(
        tmp_path, eval_dataset=parts.Rows(4), compute_metrics=scored(3, 2, 1, 1, 1, 1), load_best_model_at_end=True,
        callbacks=[Vandal()], **SAVING, **BEST,
    )  # fmt: skip
    trainer.train()
    assert "load_best_model_at_end" in said(capfd)


# ---- 13: metrics that are missing


class Wrapper(nn.Module):
    """What PEFT and its like do: everything is passed on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.base_model = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("num_items_in_batch", None)
        return self.base_model(*args, **kwargs)


def test_13_a_wrapped_model_has_a_loss_in_evaluation(tmp_path: Path) -> None:
    rows = parts.Rows(8)
    plain = parts.build(tmp_path).evaluate(rows)
    wrapped = parts.build(tmp_path, Wrapper(parts.seeded())).evaluate(rows)
    assert wrapped["eval_loss"] == plain["eval_loss"]


def test_13_a_metric_that_is_missing_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    trainer = parts.build(
        tmp_path, eval_dataset={"near": parts.Rows(4), "far": parts.Rows(4)}, load_best_model_at_end=True,
        metric_for_best_model="eval_loss", eval_strategy="steps", eval_steps=1, **SAVING,
    )  # fmt: skip
    with pytest.raises(KeyError) as raised:
        trainer.train()
    assert all(name in str(raised.value) for name in ("eval_loss", "eval_near_loss", "eval_far_loss"))
    assert trainer.state.global_step == 1


# ---- 14: more numbers in the log


def test_14_numbers_of_ones_own_are_logged_as_their_mean(tmp_path: Path) -> None:
    class Own(door.Trainer):  # type: ignore[misc, name-defined]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
            outputs = model(**inputs)
            self.record("entropy", torch.tensor(float(self.state.global_step)))
            return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    trainer = parts.build(tmp_path, kind=Own, logging_steps=3)
    trainer.train()
    assert logged(trainer, "entropy") == [1.0, 4.0]


class Detailed(parts.Net):  # type: ignore[misc, name-defined]
    """Gives two more losses, one of them for each row."""

    def forward(self, x: Any, labels: Any = None) -> Any:
        outputs = super().forward(x, labels)
        if labels is None:
            return outputs
        rows = nn.functional.cross_entropy(outputs["logits"], labels, reduction="none")
        return {**outputs, "aux_loss": 2 * outputs["loss"], "row_loss": rows, "no_loss": None, "name": "loss"}


@dataclass
class DetailedOutput(ModelOutput):  # type: ignore[misc]
    loss: Any = None
    aux_loss: Any = None
    row_loss: Any = None
    logits: Any = None


class DetailedModel(Detailed):
    def forward(self, x: Any, labels: Any = None) -> Any:
        outputs = super().forward(x, labels)
        return DetailedOutput(**{name: outputs.get(name) for name in ("loss", "aux_loss", "row_loss", "logits")})


class Calls(door.Trainer):  # type: ignore[misc, name-defined]
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


@pytest.mark.parametrize("model", [Detailed, DetailedModel])
@pytest.mark.parametrize("kind", [None, Calls], ids=["own loss", "overridden"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_14_losses_that_a_model_gives_beside_are_logged_as_their_mean(
    model: Any, kind: Any, accumulation: int, tmp_path: Path
) -> None:
    trainer = parts.build(
        tmp_path, parts.seeded(model), kind=kind, logging_steps=3, gradient_accumulation_steps=accumulation,
        num_train_epochs=accumulation, eval_strategy="steps", eval_steps=1, eval_dataset=parts.Rows(8),
        prediction_loss_only=True,
    )  # fmt: skip
    trainer.train()
    assert logged(trainer, "aux_loss") == pytest.approx([2 * loss for loss in parts.losses(trainer)], rel=1e-5)
    assert logged(trainer, "row_loss") == pytest.approx(parts.losses(trainer), rel=1e-5)
    assert not logged(trainer, "no_loss")
    trainer.train()
    assert not trainer.model._forward_hooks


# ---- 16: flags


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--greater_is_better", True),
        ("--greater_is_better true", True),
        ("--greater_is_better False", False),
        ("--no_greater_is_better", False),
        ("--do_train", True),
        ("--do_train false", False),
        ("--no_do_train", False),
        ("--no_dataloader_pin_memory", False),
        ("--dataloader_pin_memory 0", False),
        ("--no_disable_tqdm", False),
        ("--no_tf32", False),
    ],
)
def test_16_every_flag_may_stand_alone_or_have_a_value(words: str, expected: bool) -> None:
    (args,) = door.HfArgumentParser(door.TrainingArguments).parse_args_into_dataclasses(words.split())
    assert getattr(args, words.split()[0].removeprefix("--").removeprefix("no_")) is expected


def test_16_the_help_shows_a_flag_once_with_its_default() -> None:
    @dataclass
    class Script:
        fast: bool = True

    text = door.HfArgumentParser(Script).format_help()
    entries = [line for line in text.splitlines() if line.strip().startswith("--")]
    assert len(entries) == 1
    assert "True" in text[text.index("--fast", text.index("options")) :] or "true" in text


def test_16_a_misspelt_flag_is_answered_with_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((ValueError, SystemExit)) as raised:
        door.HfArgumentParser(door.TrainingArguments).parse_args_into_dataclasses(["--learning_rte", "1"])
    assert "learning_rate" in str(raised.value) + said(capfd)


# ---- 17: columns


def table(**more: Any) -> Any:
    from datasets import Dataset

    rows = [parts.Rows(8)[index] for index in range(8)]
    columns = {"x": [row["x"].tolist() for row in rows], "labels": [row["labels"] for row in rows]}
    return Dataset.from_dict(columns | more).with_format("torch")


def test_17_columns_that_are_dropped_are_named_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasets")
    parts.build(tmp_path, data=table(title=["t"] * 8), log_level="info", num_train_epochs=2).train()
    assert said(capfd).count("title") == 1


def test_17_a_collator_of_ones_own_gets_the_columns_it_asks_for(tmp_path: Path) -> None:
    pytest.importorskip("datasets")

    def collate(rows: Any) -> Any:
        x = torch.stack([row["x"] * row["factor"] for row in rows])
        return {"x": x, "labels": torch.stack([row["labels"] for row in rows])}

    trainer = parts.build(tmp_path, data=table(factor=[2.0] * 8), data_collator=collate)
    trainer.train()
    assert len(parts.losses(trainer)) == 2


def test_17_data_of_which_nothing_would_be_left_is_refused_with_names(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    data = table().rename_columns({"x": "pixels", "labels": "target"})
    with pytest.raises(ValueError) as raised:
        parts.build(tmp_path, data=data).train()
    assert all(name in str(raised.value) for name in ("pixels", "target", "remove_unused_columns"))


def test_17_wrappers_are_looked_through(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    trainer = parts.build(tmp_path, Wrapper(parts.seeded()), table(title=["t"] * 8))
    trainer.train()
    assert len(parts.losses(trainer)) == 2


# ---- 18: pickles


class Evil:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("it-was-run"),)


@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state.pth", "scheduler.pt", "training_args.bin"])
def test_18_a_checkpoint_cannot_run_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parts.build(tmp_path, **SAVING, callbacks=[parts.stopper(2)]).train()
    for folder in ("checkpoint-1", "checkpoint-2"):
        (tmp_path / folder / "manifest.json").unlink(missing_ok=True)
        buffer = io.BytesIO()
        torch.save({"state": Evil()}, buffer, pickle_module=pickle)
        (tmp_path / folder / name).write_bytes(buffer.getvalue())
    refusal = ""
    try:
        parts.build(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    except Exception as error:
        refusal = str(error)
    assert not Path("it-was-run").exists()
    assert not refusal or name in refusal  # going on without the file is right as well


def test_18_everything_in_a_checkpoint_is_plain_data(tmp_path: Path) -> None:
    parts.build(tmp_path, **SAVING, callbacks=[parts.stopper(1)]).train()
    folder = tmp_path / "checkpoint-1"
    for name in ("optimizer.pt", "scheduler.pt", "training_args.bin"):
        assert torch.load(folder / name, weights_only=True)
    told = json.loads((folder / "training_args.json").read_text(encoding="utf-8"))
    assert told["learning_rate"] == 0.01


# ---- 20: speed


def test_20_a_resumed_run_reports_the_speed_of_its_own_stretch(tmp_path: Path) -> None:
    common = {"include_num_input_tokens_seen": "all", "save_strategy": "steps", "save_steps": 4}
    rows = parts.token_rows(24)
    parts.build(tmp_path, parts.tiny_bert(), rows, callbacks=[parts.stopper(4)], **common).train()
    resumed = parts.build(tmp_path, parts.tiny_bert(), rows, **common)
    metrics = resumed.train(resume_from_checkpoint=True).metrics
    seconds = metrics["train_runtime"]
    assert metrics["train_steps_per_second"] * seconds == pytest.approx(2, rel=0.05)
    assert metrics["train_samples_per_second"] * seconds == pytest.approx(8, rel=0.05)
    assert resumed.state.num_input_tokens_seen == 24 * 6
    last = [entry for entry in resumed.state.log_history if "train_tokens_per_second" in entry][-1]
    assert last["train_tokens_per_second"] * last["train_runtime"] == pytest.approx(8 * 6, rel=0.1)


class Clock:
    """A clock that stands still but for what rows and nets say they take, so that no other load shows in it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which a Trainer tells its speed."""
    told = Clock()
    monkeypatch.setattr("xdpx.trainer.loss.windows.perf_counter", told)
    monkeypatch.setattr("xdpx.training.accumulation.Stopwatch", functools.partial(Stopwatch, told))
    return told


class SlowRows(parts.Rows):  # type: ignore[misc, name-defined]
    def __init__(self, count: int, clock: Clock) -> None:
        super().__init__(count)
        self.clock = clock

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.clock.now += 0.01
        return super().__getitem__(index)


def slow_net(clock: Clock) -> Any:
    class SlowNet(parts.Net):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, labels: Any = None) -> Any:
            clock.now += 0.01 if self.training else 0.1
            return super().forward(x, labels)

    return parts.seeded(SlowNet)


def test_20_every_log_tells_the_speed_since_the_last_one(tmp_path: Path, clock: Clock) -> None:
    trainer = parts.build(
        tmp_path, slow_net(clock), SlowRows(22, clock), logging_steps=2, eval_strategy="steps", eval_steps=1,
        eval_dataset=parts.Rows(4),
    )  # fmt: skip
    trainer.train()
    lines = [entry for entry in trainer.state.log_history if "loss" in entry]
    # Two steps of 0.01 s a log, and the rows they wait for, 0.01 s each: 12, for one batch is read ahead, then 8, then
    # the 2 that are left. The evaluations, of 0.1 s each, do not count.
    assert [line["steps_per_second"] for line in lines] == pytest.approx([2 / 0.14, 2 / 0.10, 2 / 0.04], rel=1e-3)
    assert [line["data_wait_share"] for line in lines] == pytest.approx([12 / 14, 8 / 10, 2 / 4], rel=1e-3)
    rows = [line["samples_per_second"] / line["steps_per_second"] for line in lines]
    assert rows == pytest.approx([4, 4, 3], rel=1e-3)  # the last batch has two


def test_20_every_log_tells_how_much_of_the_time_went_by_waiting_for_data(tmp_path: Path, clock: Clock) -> None:
    trainer = parts.build(tmp_path, slow_net(clock), SlowRows(22, clock), logging_steps=2)
    trainer.train()
    assert logged(trainer, "data_wait_share") == pytest.approx([12 / 14, 8 / 10, 2 / 4], rel=1e-3)


@pytest.mark.parametrize("mode", ["all", "no"])
def test_20_tokens_per_second_are_told_where_tokens_are_counted(mode: str, tmp_path: Path) -> None:
    trainer = parts.build(
        tmp_path, parts.tiny_bert(), parts.token_rows(24), include_num_input_tokens_seen=mode, logging_steps=2,
        gradient_accumulation_steps=2, **(SAVING | {"save_steps": 1}),
    )  # fmt: skip
    trainer.train()
    tokens, samples = logged(trainer, "tokens_per_second"), logged(trainer, "samples_per_second")
    assert tokens == pytest.approx([6 * each for each in samples] if mode == "all" else [], rel=1e-3)


def test_20_a_resumed_run_counts_only_its_own_samples_and_tokens(tmp_path: Path) -> None:
    common = {"include_num_input_tokens_seen": "all", "save_strategy": "steps", "save_steps": 4, "logging_steps": 6}
    rows = parts.token_rows(24)
    parts.build(tmp_path, parts.tiny_bert(), rows, callbacks=[parts.stopper(4)], **common).train()
    resumed = parts.build(tmp_path, parts.tiny_bert(), rows, **common)
    resumed.train(resume_from_checkpoint=True)
    line = [entry for entry in resumed.state.log_history if "loss" in entry][-1]
    assert line["tokens_per_second"] / line["steps_per_second"] == pytest.approx(4 * 6, rel=1e-3)
    assert line["samples_per_second"] / line["steps_per_second"] == pytest.approx(4, rel=1e-3)


# ---- 21: saving


def test_21_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = parts.build(tmp_path / "now", **SAVING)
    straight.train()
    monkeypatch.setenv("XDPX_SAVE_IN_BACKGROUND", "1")
    threads: set[str] = set()

    class Watch(door.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_save(self, *_: Any, **__: Any) -> None:
            threads.update(thread.name for thread in threading.enumerate())

    later = parts.build(tmp_path / "later", callbacks=[Watch()], **SAVING)
    later.train()
    assert "xdpx-checkpoint" in threads
    assert parts.folders(tmp_path / "later") == parts.folders(tmp_path / "now")
    for step in range(1, 7):
        now, then = (tmp_path / place / f"checkpoint-{step}/model.safetensors" for place in ("now", "later"))
        assert now.read_bytes() == then.read_bytes()


# ---- 22: DataParallel


def test_22_data_parallelism_in_one_process_warns_and_names_the_launcher(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from xdpx.engines.pytorch.strategies import DataParallel
    from xdpx.engines.pytorch.world import World

    world = World(0, 1, 0, 1, 0, torch.device("cpu"), "data_parallel", num_gpus=2)
    DataParallel(world, place=False).prepare(parts.seeded())
    assert "torchrun" in said(capfd)
