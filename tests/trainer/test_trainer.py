"""The Trainer from outside: a toy that is trained, stopped, continued, scored and saved."""

from __future__ import annotations

import inspect
import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from xdpx import (
    EarlyStoppingCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from xdpx.config.faults import ConfigError
from xdpx.trainer import overrides


class Line(nn.Module):
    """y = a x + b, with dropout, so that random numbers matter."""

    main_input_name = "x"

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer, self.dropout = nn.Linear(1, 1), nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        y = self.layer(self.dropout(x)).squeeze(-1)
        return {"logits": y} if labels is None else {"loss": nn.functional.mse_loss(y, labels), "logits": y}


def points(number: int = 32) -> list[dict[str, torch.Tensor]]:
    dice = torch.Generator().manual_seed(3)
    xs = torch.randn(number, 1, generator=dice)
    return [{"x": x, "labels": (2 * x + 3).squeeze()} for x in xs]


def line(dropout: float = 0.0) -> Line:
    torch.manual_seed(0)
    return Line(dropout)


def arguments(folder: Path, **changes: Any) -> TrainingArguments:
    common: dict[str, Any] = {"use_cpu": True, "disable_tqdm": True, "learning_rate": 0.1, "logging_steps": 1}
    return TrainingArguments(str(folder), **(common | {"save_strategy": "no", "num_train_epochs": 2} | changes))


def trainer(folder: Path, *, dropout: float = 0.0, kind: type[Trainer] = Trainer, **changes: Any) -> Trainer:
    own = {name: changes.pop(name) for name in ("callbacks", "compute_metrics", "model_init") if name in changes}
    data = changes.pop("data", points())
    model = None if "model_init" in own else line(dropout)
    return kind(model, arguments(folder, **changes), train_dataset=data, eval_dataset=points(10), **own)


def losses(of: Trainer) -> list[float]:
    return [row["loss"] for row in of.state.log_history if "loss" in row]


def test_training_lowers_the_loss_and_tells_what_it_did(tmp_path: Path) -> None:
    toy = trainer(tmp_path, num_train_epochs=5)
    output = toy.train()
    assert output.global_step == toy.state.global_step == 20
    assert losses(toy)[-1] < losses(toy)[0] / 2
    assert output.training_loss == pytest.approx(sum(losses(toy)) / 20)
    assert {
        "train_runtime",
        "train_samples_per_second",
        "train_steps_per_second",
        "total_flos",
        "train_loss",
        "epoch",
    } == set(output.metrics)


def test_the_losses_are_those_of_a_loop_written_by_hand(tmp_path: Path) -> None:
    toy = trainer(tmp_path, gradient_accumulation_steps=2, lr_scheduler_type="constant")
    toy.train()
    model, expected = line(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.0)
    for epoch in range(2):
        order = torch.randperm(32, generator=torch.Generator().manual_seed(42 + epoch)).tolist()
        batches = [order[start : start + 8] for start in range(0, 32, 8)]
        for pair in (batches[:2], batches[2:]):
            total = 0.0
            for batch in pair:
                rows = [points()[index] for index in batch]
                stacked = {name: torch.stack([row[name] for row in rows]) for name in ("x", "labels")}
                loss = model(**stacked)["loss"] / 2
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            expected.append(total)
    assert losses(toy) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("step", range(1, 8))
def test_a_run_that_was_stopped_anywhere_ends_like_one_that_was_not(tmp_path: Path, step: int) -> None:
    whole = trainer(tmp_path / "whole", dropout=0.5)
    whole.train()
    first = trainer(tmp_path / "parts", dropout=0.5, save_strategy="steps", save_steps=step, callbacks=[StopAt(step)])
    first.train()
    second = trainer(tmp_path / "parts", dropout=0.5, save_strategy="steps", save_steps=step)
    torch.rand(7)
    second.train(resume_from_checkpoint=True)
    assert losses(second) == losses(whole)
    assert torch.equal(second.model.layer.weight, whole.model.layer.weight)


class Noisy:
    """A collator that draws from a generator of its own, made with the first batch or before."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __call__(self, rows: list[Any]) -> dict[str, torch.Tensor]:
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(5)
        own = self.generator
        noise = torch.rand((), generator=own).item() if isinstance(own, torch.Generator) else own.random()
        return {name: torch.stack([row[name] for row in rows]) + noise for name in ("x", "labels")}


@pytest.mark.parametrize("step", [2, 4])  # within an epoch, and at its end
@pytest.mark.parametrize("generator", [lambda: None, lambda: np.random.default_rng(5), lambda: random.Random(5)])
def test_a_resumed_run_goes_on_with_the_random_numbers_of_its_collator(
    tmp_path: Path, generator: Callable[[], Any], step: int
) -> None:
    def toy() -> Trainer:
        saving = {"save_strategy": "steps", "save_steps": step, "eval_strategy": "steps", "eval_steps": 1}
        made = trainer(tmp_path, **saving)
        made.data_collator = Noisy(generator())
        return made

    whole, again = toy(), toy()
    whole.train()
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert losses(again) == losses(whole)
    assert torch.equal(again.model.layer.weight, whole.model.layer.weight)


class StopAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step >= self.step


def test_an_epoch_that_was_cut_short_is_continued_by_the_next_one(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", dropout=0.5, callbacks=[CutEpoch()], save_strategy="steps", save_steps=1)
    whole.train()
    again = trainer(tmp_path / "whole", dropout=0.5, callbacks=[CutEpoch()], save_strategy="no")
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert losses(again) == losses(whole)
    assert again.state.epoch == whole.state.epoch


@pytest.mark.parametrize("kept", ["position", "what the loader said", "nothing"])
def test_folders_of_every_version_say_where_the_data_goes_on(tmp_path: Path, kept: str) -> None:
    whole = trainer(tmp_path, dropout=0.5, save_strategy="steps", save_steps=3, num_train_epochs=3)
    whole.train()
    folder = tmp_path / "checkpoint-6"
    progress = json.loads((folder / "progress.json").read_text())
    assert (progress.pop("open_epoch"), progress.pop("unlogged"), progress.pop("midway")) == (1, {}, None)
    assert (progress.pop("steps_per_epoch"), progress.pop("offset"), progress.pop("leaves_epoch")) == (4, 0, False)
    assert progress == {"position": {"epoch": 2, "group": 2, "batches": 2}, "samples_per_batch": 8}
    if kept != "position":
        (folder / "checkpoint.manifest.json").unlink()  # the files are not those it names any more
        (folder / "progress.json").write_text(json.dumps({"data": {"epoch": 1, "samples": 16, "ended": False}}))
    if kept == "nothing":  # as the original leaves it
        (folder / "progress.json").unlink()
    again = trainer(tmp_path, dropout=0.5, num_train_epochs=3)
    again.train(resume_from_checkpoint=str(folder))
    assert losses(again) == losses(whole)


@pytest.mark.parametrize("length", [{"num_train_epochs": 3}, {"max_steps": 14}], ids=["epochs", "steps"])
@pytest.mark.parametrize("changes", [{"per_device_train_batch_size": 4}, {"data": points(64)}, {"data": points(15)}])
def test_with_other_batches_a_resumed_training_ends_where_it_was_meant_to(
    tmp_path: Path, length: dict[str, int], changes: dict[str, Any]
) -> None:
    common: dict[str, Any] = {"save_strategy": "steps", "save_steps": 5, "dropout": 0.5} | length
    trainer(tmp_path, callbacks=[StopAt(5)], **common).train()
    for stop in (7, 99):  # resumed a second time, it does not forget
        again = trainer(tmp_path, callbacks=[StopAt(stop)], **common, **changes)
        again.train(resume_from_checkpoint=True)
    state, rates = again.state, [row["learning_rate"] for row in again.state.log_history if "loss" in row]
    assert state.global_step == state.max_steps == length.get("max_steps", state.max_steps)
    assert state.epoch == 3 or "max_steps" in length
    assert 0 < rates[-1] < 0.1 / 5  # the schedule came to its end, too
    assert (tmp_path / f"checkpoint-{state.max_steps}").is_dir()


class Counted(torch.utils.data.IterableDataset[Any]):
    """The points of a long line, one after another."""

    def __iter__(self) -> Any:
        for x in torch.arange(1000.0):
            yield {"x": x[None] / 1000, "labels": x / 1000}


class Seeing(Trainer):
    seen: list[int]

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        self.seen += (1000 * inputs["labels"]).round().int().tolist()
        return super().training_step(model, inputs, num_items_in_batch)


@pytest.mark.parametrize(
    ("changes", "updates"),
    [({"per_device_train_batch_size": 4}, 6), ({"per_device_train_batch_size": 2}, 6), ({"max_steps": 20}, 14)],
)
def test_a_stream_is_read_on_where_it_was_whatever_the_batches_and_steps(
    tmp_path: Path, changes: dict[str, int], updates: int
) -> None:
    common: dict[str, Any] = {"data": Counted(), "save_strategy": "steps", "save_steps": 6}
    trainer(tmp_path, max_steps=6 if "max_steps" in changes else 12, callbacks=[StopAt(6)], **common).train()
    again = trainer(tmp_path, kind=Seeing, **{"max_steps": 12} | common | changes)
    Seeing.seen = []
    again.train(resume_from_checkpoint=True)
    assert Seeing.seen == list(range(48, 48 + updates * again.args.per_device_train_batch_size))


def test_no_batch_is_left_out_when_more_of_them_make_a_step_than_before(tmp_path: Path) -> None:
    trainer(tmp_path, callbacks=[StopAt(7)], per_device_train_batch_size=3, save_strategy="steps", save_steps=7).train()
    more = {"gradient_accumulation_steps": 2, "num_train_epochs": 1}
    Seeing.seen = []
    trainer(tmp_path, kind=Seeing, per_device_train_batch_size=3, **more).train(resume_from_checkpoint=True)
    assert len(Seeing.seen) == 32 - 7 * 3


class CutEpoch(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_epoch_stop = state.global_step == 2


def test_the_epoch_is_fractional_and_a_fraction_of_the_last_one_is_trained(tmp_path: Path) -> None:
    toy = trainer(tmp_path, num_train_epochs=1.5)
    toy.train()
    assert (toy.state.global_step, toy.state.epoch) == (6, 1.5)


def test_max_steps_wins_over_epochs_and_goes_through_the_data_again(tmp_path: Path) -> None:
    toy = trainer(tmp_path, max_steps=10)
    assert toy.train().global_step == 10
    assert toy.state.num_train_epochs == 3


def test_a_stream_is_read_again_until_max_steps(tmp_path: Path) -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(points(20))

    toy = trainer(tmp_path, max_steps=7, data=Stream())
    assert toy.train().global_step == 7


def test_a_stream_that_is_empty_ends_the_training_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Empty(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(())

    toy = trainer(tmp_path, max_steps=7, data=Empty())
    with caplog.at_level("WARNING", logger="xdpx"):
        assert toy.train().global_step == 0


def test_events_come_in_the_order_that_callbacks_rely_on(tmp_path: Path) -> None:
    heard: list[str] = []

    class Listener(TrainerCallback):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("on_"):
                return super().__getattribute__(name)
            return lambda *_, **__: heard.append(name.removeprefix("on_"))

    toy = trainer(
        tmp_path, callbacks=[Listener()], num_train_epochs=1, max_steps=1, gradient_accumulation_steps=2,
        eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, per_device_eval_batch_size=10,
    )  # fmt: skip
    toy.train()
    assert heard == [
        "init_end", "train_begin", "epoch_begin", "step_begin", "substep_end", "pre_optimizer_step", "optimizer_step",
        "step_end", "log", "prediction_step", "log", "evaluate", "save", "epoch_end", "log", "train_end",
    ]  # fmt: skip


def test_a_loss_that_is_no_number_is_shown_as_it_is(tmp_path: Path) -> None:
    class Breaks(Trainer):
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            return super().training_step(model, inputs, num_items_in_batch) * float("nan")

    toy = trainer(tmp_path, kind=Breaks)
    toy.train()
    assert all(math.isnan(loss) for loss in losses(toy))


def test_a_filtered_micro_batch_counts_as_the_mean_of_the_others_of_its_update(tmp_path: Path) -> None:
    class Breaks(Trainer):
        calls = 0

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False) -> Any:
            self.calls += 1
            return super().compute_loss(model, inputs) * 0 + (float("nan") if self.calls == 2 else self.calls)

    changed = {"logging_nan_inf_filter": True, "logging_steps": 1, "max_steps": 1, "gradient_accumulation_steps": 3}
    toy = trainer(tmp_path, kind=Breaks, per_device_train_batch_size=2, **changed)
    toy.train()
    assert losses(toy) == [pytest.approx(2.0)]


def test_overrides_of_the_former_generation_are_called_with_what_they_take(tmp_path: Path) -> None:
    class Former(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False) -> Any:
            outputs = model(**inputs)
            return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

        def training_step(self, model: Any, inputs: Any) -> Any:
            return super().training_step(model, inputs)

        def log(self, logs: dict[str, float]) -> None:
            logs["mine"] = 1.0
            super().log(logs)

    plain, former = trainer(tmp_path), trainer(tmp_path, kind=Former, gradient_accumulation_steps=1)
    plain.train()
    former.train()
    assert losses(former) == losses(plain)
    assert former.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]
    assert all(row["mine"] == 1.0 for row in former.state.log_history)


def test_the_best_model_is_saved_between_the_regular_saves_and_loaded_at_the_end(tmp_path: Path) -> None:
    toy = trainer(
        tmp_path, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=100, learning_rate=2.0,
        load_best_model_at_end=True, metric_for_best_model="loss", lr_scheduler_type="constant",
    )  # fmt: skip
    toy.train()
    scores = {row["step"]: row["eval_loss"] for row in toy.state.log_history if "eval_loss" in row}
    best = min(scores, key=lambda step: scores[step])
    assert toy.state.best_global_step == best
    assert toy.state.best_model_checkpoint == str(tmp_path / f"checkpoint-{best}")
    assert toy.evaluate()["eval_loss"] == pytest.approx(scores[best])


def test_a_best_checkpoint_that_was_removed_is_named_and_the_last_weights_stay(tmp_path: Path, capsys: Any) -> None:
    class Removing(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            shutil.rmtree(state.best_model_checkpoint)

    toy = trainer(
        tmp_path, eval_strategy="steps", eval_steps=4, save_strategy="best", metric_for_best_model="loss",
        load_best_model_at_end=True, callbacks=[Removing()], num_train_epochs=1,
    )  # fmt: skip
    assert toy.train().global_step == 4
    assert "checkpoint-4, the best, no longer contains weights, so the last weights are kept" in capsys.readouterr().err


def test_what_ends_before_the_checkpoint_trains_nothing_and_another_schedule_is_refused(
    tmp_path: Path, capsys: Any
) -> None:
    plateau: dict[str, Any] = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"}
    trainer(tmp_path, save_strategy="epoch", **plateau).train()
    last = str(tmp_path / "checkpoint-8")
    trainer(tmp_path, save_strategy="epoch", max_steps=4, **plateau).train(resume_from_checkpoint=last)
    assert "Nothing is left to train" in capsys.readouterr().err
    with pytest.raises(
        ValueError, match="its learning rate schedule is not that of LambdaLR.*the original lr_scheduler_type"
    ):
        trainer(tmp_path, save_strategy="epoch").train(resume_from_checkpoint=last)


def test_early_stopping_ends_the_training_and_keeps_its_count_over_a_resume(tmp_path: Path) -> None:
    toy = trainer(
        tmp_path, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, learning_rate=0.0,
        metric_for_best_model="loss", load_best_model_at_end=True, callbacks=[EarlyStoppingCallback(3)],
    )  # fmt: skip
    assert toy.train().global_step == 4
    saved = json.loads((tmp_path / "checkpoint-4" / "trainer_state.json").read_text(encoding="utf-8"))
    assert saved["stateful_callbacks"]["EarlyStoppingCallback"]["attributes"]["early_stopping_patience_counter"] == 3


@pytest.mark.parametrize("restored", [True, False])
def test_a_resumed_run_whose_early_stopping_begins_anew_says_so(tmp_path: Path, capsys: Any, restored: bool) -> None:
    def toy(*more: Any, **changes: Any) -> Trainer:
        return trainer(
            tmp_path, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, learning_rate=0.0,
            metric_for_best_model="loss", callbacks=[EarlyStoppingCallback(3), *more], **changes,
        )  # fmt: skip

    toy(StopAt(2)).train()
    capsys.readouterr()
    again = toy(restore_callback_states_from_checkpoint=restored)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == (4 if restored else 5)  # in one go it is 4
    told = 'EarlyStoppingCallback: begins anew, but had come to {"early_stopping_patience_counter": 1}'
    assert (told in capsys.readouterr().err) is not restored


def test_a_model_init_makes_a_new_model_for_each_training(tmp_path: Path) -> None:
    toy = trainer(tmp_path, model_init=lambda: line())
    toy.train()
    first = losses(toy)
    toy.train()
    assert losses(toy) == first


def test_settings_of_the_optimizer_that_change_between_two_trainings_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = trainer(tmp_path, max_steps=1)
    toy.train()
    toy.args.learning_rate, toy.args.warmup_steps = 0.5, 0
    toy.train()
    assert "learning_rate: is 0.5, but the optimizer of the training before, which goes on, was made with 0.1" in (
        capsys.readouterr().err
    )
    toy.optimizer = None
    toy.train()
    assert "goes on" not in capsys.readouterr().err
    assert toy.state.log_history[0]["learning_rate"] == 0.5


def test_what_was_corrected_about_the_loss_holds_for_the_models_of_model_init_too(tmp_path: Path) -> None:
    toy = trainer(tmp_path, model_init=lambda: line())
    toy.label_names.append("x")
    toy.can_return_loss = True
    toy.train()
    assert (toy.label_names, toy.can_return_loss) == (["labels", "x"], True)


def test_every_model_of_model_init_caches_as_the_arguments_say(tmp_path: Path) -> None:
    def made() -> Line:
        model = line()
        model.config = SimpleNamespace(use_cache=True)
        return model

    toy = trainer(tmp_path, model_init=made, max_steps=1)
    toy.train()
    assert toy.model.config.use_cache is False  # type: ignore[union-attr]


def test_memory_that_runs_out_makes_batches_smaller_and_begins_anew(tmp_path: Path) -> None:
    class Small(Trainer):
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            if len(inputs["x"]) > 6 and self.state.global_step == 1:
                raise RuntimeError("CUDA out of memory. Tried to allocate")
            return super().training_step(model, inputs, num_items_in_batch)

    toy = trainer(tmp_path, kind=Small, auto_find_batch_size=True)
    toy.train()
    expected = trainer(tmp_path, per_device_train_batch_size=6)
    expected.train()
    assert toy._train_batch_size == 6
    assert losses(toy) == losses(expected)


def test_an_error_that_has_nothing_to_do_with_memory_is_not_swallowed(tmp_path: Path) -> None:
    class Fails(Trainer):
        def training_step(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("mine")

    toy = trainer(tmp_path, kind=Fails, auto_find_batch_size=True)
    with pytest.raises(RuntimeError, match="mine"):
        toy.train()
    assert not toy.is_in_train


def test_what_a_user_records_is_logged_as_its_mean_over_the_window(tmp_path: Path) -> None:
    class Records(Trainer):
        def training_step(self, *given: Any, **more: Any) -> Any:
            self.record("step_now", torch.tensor(float(self.state.global_step)))
            return super().training_step(*given, **more)

    toy = trainer(tmp_path, kind=Records, logging_steps=2)
    toy.train()
    assert [row["step_now"] for row in toy.state.log_history if "step_now" in row] == [0.5, 2.5, 4.5, 6.5]


def test_changed_arguments_are_listed_when_a_run_is_continued(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer(tmp_path, save_strategy="steps", save_steps=4).train()
    changed: dict[str, Any] = {"learning_rate": 0.5, "logging_steps": 2, "nonfinite_steps": "skip"}
    again = trainer(tmp_path, save_strategy="steps", save_steps=4, **changed)
    said: list[str] = []
    import logging

    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("xdpx").addHandler(handler)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    logging.getLogger("xdpx").removeHandler(handler)
    told = next(text for text in said if "other arguments" in text)
    assert "learning_rate: was 0.1, is 0.5" in told
    assert "logging_steps: was 1" in told
    assert "nonfinite_steps: was keep, is skip" in told


@pytest.mark.parametrize("wanted", [True, "missing"])
def test_continuing_from_nothing_is_refused(tmp_path: Path, wanted: Any) -> None:
    with pytest.raises(ValueError, match="valid checkpoint"):
        trainer(tmp_path).train(resume_from_checkpoint=wanted if wanted is True else str(tmp_path / wanted))


def test_the_learning_rate_that_is_logged_is_the_one_just_used(tmp_path: Path) -> None:
    toy = trainer(tmp_path, num_train_epochs=1)
    toy.train()
    rates = [row["learning_rate"] for row in toy.state.log_history if "learning_rate" in row]
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])


class Unlabelled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.layer(x).squeeze(-1)}


def test_labels_reach_a_loss_of_ones_own_where_the_model_takes_none(tmp_path: Path) -> None:
    def loss(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(outputs["logits"], labels)

    args, rows = arguments(tmp_path, max_steps=1), points(8)
    toy = Trainer(Unlabelled(), args, train_dataset=rows, eval_dataset=rows, compute_loss_func=loss)
    toy.train()
    assert toy.evaluate()["eval_loss"] > 0
    assert toy.predict(rows).label_ids is not None


class Reader(TrainerCallback):
    def __init__(self) -> None:
        self.tokens: list[int] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.tokens.append(state.num_input_tokens_seen)


def test_tokens_are_counted_up_to_now_for_callbacks_and_evaluations_between_two_logs(tmp_path: Path) -> None:
    counted: Any = {"include_num_input_tokens_seen": "all", "logging_steps": 500, "num_train_epochs": 1}
    for callbacks in ([], [reader := Reader()]):
        toy = trainer(tmp_path, callbacks=callbacks, eval_strategy="steps", eval_steps=2, **counted)
        toy.train()
        seen = [row["num_input_tokens_seen"] for row in toy.state.log_history if "eval_loss" in row]
        assert seen == [16, 32]
    assert reader.tokens == [8, 16, 24, 32]


def test_saving_the_best_without_evaluating_is_said_to_save_nothing(tmp_path: Path, capsys: Any) -> None:
    trainer(tmp_path, save_strategy="best", metric_for_best_model="loss", max_steps=1).train()
    assert "no checkpoint is written unless a callback asks for an evaluation" in capsys.readouterr().err


def test_a_plateau_follows_the_evaluation(tmp_path: Path) -> None:
    toy = trainer(
        tmp_path, lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="steps", eval_steps=1,
        metric_for_best_model="loss", lr_scheduler_kwargs={"patience": 0, "factor": 0.5}, learning_rate=5.0,
    )  # fmt: skip
    toy.train()
    assert toy.optimizer.param_groups[0]["lr"] < 5.0


@pytest.mark.parametrize("when", ["epoch", "no"])
def test_a_plateau_of_ones_own_follows_the_loss_of_evaluations(when: str, tmp_path: Path, capsys: Any) -> None:
    model = line()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.99, factor=0.5)
    args = arguments(tmp_path, eval_strategy=when)
    data = {"train_dataset": points(), "eval_dataset": points(10)}
    Trainer(model, args, **data, optimizers=(optimizer, plateau)).train()
    assert optimizer.param_groups[0]["lr"] == (0.1 if when == "no" else 0.05)
    assert ("changes the learning rate after evaluations" in capsys.readouterr().err) == (when == "no")


def test_predictions_are_rows_in_the_order_of_the_data(tmp_path: Path) -> None:
    toy = trainer(tmp_path)
    output = toy.predict(points(10))
    with torch.no_grad():
        expected = [toy.model(row["x"][None])["logits"].item() for row in points(10)]
    assert np.allclose(output.predictions, expected)
    assert output.label_ids.shape == (10,)
    assert output.metrics is not None
    assert set(output.metrics) >= {"test_loss", "test_runtime"}


def test_a_constructor_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="neither"):
        Trainer(args=arguments(tmp_path))
    with pytest.raises(ValueError, match="both"):
        Trainer(line(), arguments(tmp_path), model_init=lambda: line())


def test_methods_of_the_former_generation_that_few_override_are_called_with_what_they_take(tmp_path: Path) -> None:
    served = []

    class Former(Trainer):
        def _get_train_sampler(self) -> Any:
            return super()._get_train_sampler()

        def get_batch_samples(self, epoch_iterator: Any, num_batches: int) -> Any:
            return super().get_batch_samples(epoch_iterator, num_batches)

        def _maybe_log_save_evaluate(
            self, tr_loss: Any, grad_norm: Any, model: Any, trial: Any, epoch: Any, ignore_keys_for_eval: Any
        ) -> None:
            served.append(self.state.global_step)
            super()._maybe_log_save_evaluate(tr_loss, grad_norm, model, trial, epoch, ignore_keys_for_eval)

        def create_optimizer(self) -> Any:
            return torch.optim.SGD(self.model.parameters(), lr=0.1)  # and does not set it

        def _save_checkpoint(self, model: Any, trial: Any, metrics: Any = None) -> None:
            super()._save_checkpoint(model, trial, metrics=metrics)

    args = {"max_steps": 3, "logging_steps": 2, "optim": "sgd", "per_device_train_batch_size": 16}
    args |= {"save_strategy": "steps", "save_steps": 3}
    plain, former = trainer(tmp_path, **args), trainer(tmp_path, kind=Former, **args)
    plain.train()
    former.train()
    assert losses(former) == losses(plain)
    assert served == [1, 2, 2, 3, 3]  # also when nothing is due, and at the end of each epoch


def test_a_training_step_of_before_446_leaves_the_division_to_the_accelerator_as_it_could_then(tmp_path: Path) -> None:
    class Former(Trainer):
        def training_step(self, model: Any, inputs: Any) -> Any:
            model.train()
            with self.compute_loss_context_manager():
                loss = self.compute_loss(model, self._prepare_inputs(inputs))
            self.accelerator.backward(loss)
            return loss.detach() / self.args.gradient_accumulation_steps

    plain, former = (trainer(tmp_path, kind=kind, gradient_accumulation_steps=2) for kind in (Trainer, Former))
    plain.train()
    former.train()
    norms = [[row["grad_norm"] for row in toy.state.log_history if "grad_norm" in row] for toy in (plain, former)]
    assert norms[1] == pytest.approx(norms[0])
    assert losses(former) == pytest.approx(losses(plain))


def test_methods_copied_from_the_original_s_source_work(tmp_path: Path) -> None:
    names = (
        "get_train_dataloader", "get_eval_dataloader", "training_step", "prediction_step", "evaluation_loop",
        "evaluate", "predict",
    )  # fmt: skip
    kind = type("Copies", (Trainer,), {name: vars(transformers.Trainer)[name] for name in names})
    whole = {"max_steps": 2, "per_device_eval_batch_size": 10}  # for the original's mean is one of batches
    plain, copies = trainer(tmp_path, **whole), trainer(tmp_path, kind=kind, **whole)
    for toy in (plain, copies):
        toy.train()
    assert losses(copies) == losses(plain)
    assert copies.evaluate()["eval_loss"] == pytest.approx(plain.evaluate()["eval_loss"])
    assert (copies.predict(points(5)).predictions == plain.predict(points(5)).predictions).all()


def test_an_override_that_is_never_called_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Vain(Trainer):
        def _rotate_checkpoints(self, *given: Any) -> None: ...

    trainer(tmp_path, kind=Vain)
    said = capsys.readouterr().err
    assert "Vain._rotate_checkpoints: this Trainer never calls it" in said
    assert "Use save_total_limit" in said


def test_every_model_of_model_init_generates_as_the_arguments_say(tmp_path: Path) -> None:
    wanted = transformers.GenerationConfig(max_length=7)
    args = Seq2SeqTrainingArguments(
        str(tmp_path), use_cpu=True, disable_tqdm=True, max_steps=1, save_strategy="no", generation_config=wanted
    )
    toy = Seq2SeqTrainer(args=args, model_init=lambda: line(), train_dataset=points())
    toy.train()
    assert toy.model.generation_config.max_length == 7  # type: ignore[union-attr]


class TwoParts(nn.Module):
    """A mean over targets, which may be none, and another part; whatever else it is given is ignored."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, **rest: Any) -> dict[str, torch.Tensor]:
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels) + logits.pow(2).mean(), "logits": logits}


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_batch_without_targets_leaves_no_nan_in_weights_or_in_the_loss_of_others(
    tmp_path: Path, accumulated: int
) -> None:
    rows = [{"x": torch.ones(1), "labels": label} for label in (-100, 1)]
    changes = {"per_device_train_batch_size": 1, "train_sampling_strategy": "sequential", "num_train_epochs": 1}
    model = TwoParts()
    toy = Trainer(model, arguments(tmp_path, gradient_accumulation_steps=accumulated, **changes), train_dataset=rows)
    toy.train()
    assert all(weight.isfinite().all() for weight in model.parameters())
    assert math.isfinite(losses(toy)[-1])


def test_every_method_of_the_original_that_is_lacking_here_is_named_where_it_is_overridden() -> None:
    methods = {name for name, _ in inspect.getmembers(transformers.Trainer, inspect.isfunction)}
    assert methods - set(dir(Trainer)) <= overrides.UNCALLED.keys()


def test_an_override_of_prepare_input_is_asked_for_each_part_of_a_batch(tmp_path: Path) -> None:
    class Doubling(Trainer):
        def _prepare_input(self, data: Any) -> Any:
            prepared = super()._prepare_input(data)
            return prepared * 2 if isinstance(data, torch.Tensor) else prepared

    toy = trainer(tmp_path, kind=Doubling)
    assert toy._prepare_inputs({"x": torch.ones(1), "rest": [torch.ones(1), "text"]}) == {"x": 2, "rest": [2, "text"]}


def test_an_override_of_evaluate_gets_each_of_several_sets_by_name(tmp_path: Path) -> None:
    class Reordered(Trainer):
        def evaluate(self, ignore_keys: Any = None, eval_dataset: Any = None, metric_key_prefix: str = "eval") -> Any:  # type: ignore[override]
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    toy = trainer(tmp_path, kind=Reordered)
    toy.eval_dataset = {"few": points(4), "many": points(10)}
    plain = trainer(tmp_path)
    wanted = [plain.evaluate(points(number))["eval_loss"] for number in (4, 10)]
    scores = toy.evaluate()
    assert [scores["eval_few_loss"], scores["eval_many_loss"]] == wanted


def answering(loss: Any) -> type[Trainer]:
    """Return a Trainer whose compute_loss returns what `loss` makes of the model's outputs."""

    class Own(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False) -> Any:
            return loss(model(**inputs))

    return Own


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda outputs: None, "compute_loss: returned None. Return one number as a tensor"),
        (lambda outputs: outputs["logits"], r"compute_loss: returned a tensor of shape \(8,\). Return one number"),
        (lambda outputs: (outputs["loss"], outputs), r"a tuple of 2. Return \(loss, outputs\) only when"),
        (lambda outputs: outputs["loss"].detach(), "the loss does not depend on any weight that is trained"),
    ],
)
def test_what_is_no_loss_is_refused_in_words(loss: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, RuntimeError), match=said):
        trainer(tmp_path, kind=answering(loss)).train()


def test_a_loss_may_be_a_tensor_of_one_number_and_an_evaluation_needs_its_outputs(tmp_path: Path) -> None:
    plain, own = trainer(tmp_path), trainer(tmp_path, kind=answering(lambda outputs: outputs["loss"][None]))
    plain.train()
    own.train()
    assert losses(own) == losses(plain)
    with pytest.raises(TypeError, match=r"compute_loss: returned a tensor of shape \(1,\) when asked for the outputs"):
        own.evaluate()


def test_an_evaluation_of_ones_own_that_returns_nothing_is_refused_only_where_the_best_model_is_wanted(
    tmp_path: Path,
) -> None:
    class Forgetful(Trainer):
        def evaluate(self, *given: Any, **named: Any) -> Any:
            super().evaluate(*given, **named)

    args = {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    assert trainer(tmp_path, kind=Forgetful, **args).train().global_step == 1
    with pytest.raises(TypeError, match="evaluate: returned None, but metric_for_best_model"):
        trainer(tmp_path, kind=Forgetful, metric_for_best_model="loss", **args).train()


def test_a_training_step_that_returns_nothing_is_refused(tmp_path: Path) -> None:
    kind = type("Silent", (Trainer,), {"training_step": lambda self, model, inputs, num_items_in_batch=None: None})
    with pytest.raises(TypeError, match="training_step: returned None. Return the loss of the micro-batch"):
        trainer(tmp_path, kind=kind).train()


def test_a_tensor_that_is_logged_stands_in_the_history_as_a_number(tmp_path: Path) -> None:
    toy = trainer(tmp_path)
    toy.log({"mine": torch.tensor(2.0, requires_grad=True) * 3})
    assert toy.state.log_history[-1]["mine"] == 6.0
    assert isinstance(toy.state.log_history[-1]["mine"], float)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((row for row in points()), "a generator cannot be indexed by sample"),
        ({"train": points(), "test": points()}, "It holds train, test: give one of them"),
        (torch.utils.data.DataLoader(points()), "Give its dataset"),
        ("rows.csv", "Give a list, a Dataset, or an IterableDataset"),
        (
            type("Endless", (), {"__getitem__": lambda self, index: {}})(),
            "a Endless has no length.*Give it a __len__",
        ),
        ([(1.0, 2.0)] * 8, "a sample is a tuple, whose values have no names"),
        ([], "train_dataset: is empty"),
    ],
)
def test_data_without_samples_by_number_or_name_is_refused(data: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        trainer(tmp_path, data=data, max_steps=2).train()


@pytest.mark.parametrize(
    ("batch", "said"),
    [(None, "data_collator: returned None"), (SimpleNamespace(x=1), "a batch is a SimpleNamespace, not a dict")],
)
def test_a_collator_that_makes_no_batch_is_told_so(batch: Any, said: str, tmp_path: Path) -> None:
    toy = trainer(tmp_path)
    toy.data_collator = lambda rows: batch
    with pytest.raises(TypeError, match=said):
        toy.train()


def test_everything_of_another_kind_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        Trainer(Line, arguments(tmp_path), callbacks=EarlyStoppingCallback(), optimizers=3, compute_metrics={})  # type: ignore[arg-type]
    assert [fault.key for fault in error.value.faults] == ["model", "callbacks", "optimizers", "compute_metrics"]


def test_what_has_no_effect_beside_a_loss_or_an_optimizer_of_another_kind_is_told(tmp_path: Path, capsys: Any) -> None:
    asked = {"label_smoothing_factor": 0.1, "optim_target_modules": ["layer"], "max_steps": 1}
    model = line()
    Trainer(
        model, arguments(tmp_path, **asked), train_dataset=points(),
        compute_loss_func=lambda outputs, labels, num_items_in_batch=None: (outputs["logits"] - labels).square().mean(),
    ).train()  # fmt: skip
    told = capsys.readouterr().err
    assert "label_smoothing_factor: has no effect, because compute_loss_func" in told
    assert "optim_target_modules: has no effect: 'adamw_torch_fused'" in told


def test_noise_of_size_0_is_none(tmp_path: Path) -> None:
    assert (
        trainer(tmp_path, neftune_noise_alpha=0, max_steps=1).train().global_step == 1
    )  # of a model without embeddings


def test_arguments_that_do_not_say_how_to_generate_are_refused_by_a_seq2seq_trainer(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="args is a TrainingArguments.*Give Seq2SeqTrainingArguments"):
        Seq2SeqTrainer(nn.Linear(1, 1), TrainingArguments(str(tmp_path), use_cpu=True))


def test_a_status_that_is_not_ours_is_kept_beside_and_an_output_dir_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text("mine")
    trainer(tmp_path, max_steps=1, save_strategy="epoch").train()
    assert (tmp_path / "status.json.damaged-1").read_text() == "mine"
    assert json.loads((tmp_path / "status.json").read_text())["status"] == "finished"
    with pytest.raises(FileExistsError, match=r"output_dir: .* is a file. Name a folder"):
        trainer(tmp_path / "status.json")


@pytest.mark.parametrize("step", [2, 4])  # within an epoch, and at its end
def test_a_callback_may_look_at_batches_and_a_checkpoint_still_knows_the_place(tmp_path: Path, step: int) -> None:
    class Looks(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            next(iter(given["train_dataloader"]))

        def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.on_step_end(args, state, control, **given)

    saving = {"save_strategy": "epoch"} if step == 4 else {"save_strategy": "steps", "save_steps": step}
    whole = trainer(tmp_path, dropout=0.5, callbacks=[Looks], train_sampling_strategy="random", **saving)
    whole.train()
    again = trainer(tmp_path, dropout=0.5, callbacks=[Looks])
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert losses(again) == losses(whole)
    assert torch.equal(again.model.layer.weight, whole.model.layer.weight)


def test_what_a_script_sets_between_two_trainings_holds_for_the_next(tmp_path: Path) -> None:
    def squares(outputs: Any, labels: Any, num_items_in_batch: Any) -> Any:
        return ((outputs["logits"] - labels) ** 2).sum() / num_items_in_batch

    toy = trainer(tmp_path, gradient_accumulation_steps=2, num_train_epochs=1)
    toy.train()
    toy.args.per_device_train_batch_size, toy.compute_loss_func = 4, squares
    assert toy.train().global_step == 4
    assert toy.state.train_batch_size == 4
    toy.compute_loss_func = lambda outputs, labels: ((outputs["logits"] - labels) ** 2).mean()
    fresh = trainer(tmp_path, gradient_accumulation_steps=2, num_train_epochs=1, per_device_train_batch_size=4)
    for one in (toy, fresh):
        one.model.load_state_dict(line().state_dict())
        one.train()
    assert losses(toy)[0] == pytest.approx(losses(fresh)[0], rel=1e-5)


def test_a_schedule_that_an_override_says_the_trainer_made_begins_anew(tmp_path: Path) -> None:
    class Own(Trainer):
        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            if self.lr_scheduler is None:
                self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.5**step)
                self._created_lr_scheduler = True
            return self.lr_scheduler

    toy = trainer(tmp_path, kind=Own)
    rates = []
    for _ in range(2):
        toy.train()
        rates.append([row["learning_rate"] for row in toy.state.log_history if "loss" in row])
    assert rates[1] == pytest.approx(rates[0])
    assert rates[0][-1] < rates[0][0]


def test_weights_that_a_callback_adds_are_clipped_and_their_gradients_do_not_pile_up(tmp_path: Path) -> None:
    class Grows(TrainerCallback):
        def on_epoch_begin(self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, **_: Any) -> None:
            if state.global_step:
                model.layer.extra = nn.Parameter(torch.zeros(1))
                model.layer.register_forward_hook(lambda layer, inputs, output: output + layer.extra)
                optimizer.param_groups[0]["params"].append(model.layer.extra)

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
            assert all(weight.grad is None for weight in model.parameters())

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
            norm = torch.stack([weight.grad.norm() for weight in model.parameters()]).norm()
            assert norm < 0.0101

    trainer(tmp_path, callbacks=[Grows], max_grad_norm=0.01, lr_scheduler_type="constant").train()


def test_arguments_in_the_order_of_former_years_are_told_to_be_given_by_name(tmp_path: Path) -> None:
    former = (line(), arguments(tmp_path), None, points(), points(), None, None)
    with pytest.raises(ConfigError, match="compute_loss_func: is metrics.* If it computes metrics, give it by name"):
        Trainer(*former, metrics)
    with pytest.raises(ConfigError, match=r"callbacks: is \(None, None\), as `optimizers` may be. Give all by name"):
        Trainer(*former, None, None, (None, None), None)  # type: ignore[arg-type]


def metrics(predictions: Any) -> dict[str, float]:
    return {"size": float(len(predictions.label_ids))}


def test_a_mean_that_would_count_as_a_share_is_warned_of(tmp_path: Path, capsys: Any) -> None:
    class Weighs(Trainer):
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            return 2 * model(**inputs)["loss"]

    class Settled(Weighs):
        loss_is_scaled_for_ga = False

    for kind, warned in ((Settled, False), (Weighs, True)):
        toy = trainer(tmp_path, kind=kind, gradient_accumulation_steps=2, max_steps=1)
        toy.model_accepts_loss_kwargs = True
        toy.train()
        assert ("does not use the num_items_in_batch" in capsys.readouterr().err) is warned


def test_a_trainer_moves_a_teacher_and_gathers_as_that_of_former_years(tmp_path: Path) -> None:
    toy, teacher = trainer(tmp_path), nn.Linear(1, 1)
    toy._move_model_to_device(teacher, torch.device("meta"))
    assert teacher.weight.is_meta
    rows = toy._pad_across_processes(torch.ones(2, 3))
    assert torch.equal(toy._nested_gather(rows), rows)
    args = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True)
    writer = Seq2SeqTrainer(line(), args, processing_class=SimpleNamespace(pad_token_id=7))
    assert writer._pad_tensors_to_max_len(torch.ones(1, 1), 3).tolist() == [[1, 7, 7]]


@pytest.mark.parametrize("frozen", ["before", "on_train_begin"])
def test_weights_that_a_callback_trains_later_are_told_of_if_the_optimizer_lacks_them(
    tmp_path: Path, capsys: Any, frozen: str
) -> None:
    class Thaws(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            given["model"].layer.bias.requires_grad = False

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            given["model"].layer.bias.requires_grad = state.global_step >= 2

    toy = trainer(tmp_path, callbacks=[Thaws], max_steps=4)
    bias = toy.model.layer.bias
    before, bias.requires_grad = bias.item(), frozen != "before"
    toy.train()
    told = "requires_grad: was set during the training for 1 weights, such as layer.bias" in capsys.readouterr().err
    assert (bias.item() == before, told) == ((True, True) if frozen == "before" else (False, False))


@pytest.mark.parametrize(("first", "then", "sizes"), [(2, 1, [2, 1, 1, 1]), (1, 3, [1, 3, 3, 1])])
def test_an_accumulation_that_a_callback_changes_holds_from_the_next_update_on_and_no_row_is_left_out(
    tmp_path: Path, first: int, then: int, sizes: list[int]
) -> None:
    class Changes(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            args.gradient_accumulation_steps = then

    class Counts(Trainer):
        def get_batch_samples(self, *given: Any) -> Any:
            batches, number = super().get_batch_samples(*given)
            found.append(len(batches))
            return batches, number

    found: list[int] = []
    trainer(tmp_path, kind=Counts, callbacks=[Changes], gradient_accumulation_steps=first).train()
    assert found == sizes


def test_weights_of_a_loss_that_are_never_trained_are_told_of(tmp_path: Path, capsys: Any) -> None:
    scale = nn.Parameter(torch.ones(()))

    class Scaled(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
            return scale * model(**inputs)["loss"]

    trainer(tmp_path, kind=Scaled, max_steps=2).train()
    printed = capsys.readouterr()
    assert "weights that are not trained (1, of shape ())" in printed.out + printed.err


def test_an_update_that_the_loss_scale_leaves_out_is_no_reason_to_warn(tmp_path: Path, capsys: Any) -> None:
    big = [{"x": torch.full((1,), 300.0), "labels": torch.tensor(3.0)}] * 8
    toy = trainer(tmp_path, fp16=True, data=big, max_steps=1)
    toy.train()
    assert toy.accelerator.optimizer_step_was_skipped
    assert math.isinf(toy.state.log_history[0]["grad_norm"])
    assert "the result will be useless" not in capsys.readouterr().err


def test_an_optimizer_or_schedule_of_something_else_is_told_of(tmp_path: Path, capsys: Any) -> None:
    model, other = line(), torch.optim.SGD(line().parameters(), lr=0.1)
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(other)
    for optimizers, told in (
        ((other, None), "its 2 weights are not those of the model"),
        ((own, schedule), "changes the learning rate of another optimizer"),
        ((own, None), ""),
    ):
        Trainer(model, arguments(tmp_path, max_steps=1), train_dataset=points(), optimizers=optimizers).train()
        printed = capsys.readouterr().err
        assert told in printed
        assert ("warning" in printed) == bool(told)


def test_an_optimizer_that_changes_nothing_is_told_of(tmp_path: Path, capsys: Any) -> None:
    class Idle(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            del closure

    for kind in (Idle, torch.optim.SGD):
        model = line()
        optimizers = (kind(model.parameters(), lr=0.1), None)
        args = arguments(tmp_path / kind.__name__, max_steps=10, lr_scheduler_type="constant")
        Trainer(model, args, train_dataset=points(), optimizers=optimizers).train()
        told = "training changes nothing: after 10 updates" in capsys.readouterr().err
        assert told is (kind is Idle)


def test_a_loss_that_looks_for_a_column_that_was_left_out_is_told_so(tmp_path: Path) -> None:
    class Weighted(Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
            weight = inputs.pop("weight").mean()
            outputs = model(**inputs)
            return (weight * outputs["loss"], outputs) if return_outputs else weight * outputs["loss"]

    rows = [{**row, "weight": 1.0} for row in points()]
    with pytest.raises(KeyError, match="weight") as caught:
        trainer(tmp_path, kind=Weighted, data=rows).train()
    assert "Set remove_unused_columns=False" in caught.value.__notes__[0]
    trainer(tmp_path, kind=Weighted, data=rows, remove_unused_columns=False).train()
    with pytest.raises(KeyError, match="weight") as caught:
        trainer(tmp_path, kind=Weighted, data=points(), remove_unused_columns=False).train()
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("value", [torch.ones(2), "0.5", None])
def test_what_is_recorded_is_one_number(value: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="record: 'entropy' is .*. Give one number or a tensor of one element"):
        trainer(tmp_path).record("entropy", value)


def test_it_is_told_that_the_count_of_a_causal_model_has_a_target_per_row_too_many(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xdpx.logger.log._warned", set())
    sizes = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=20, n_positions=16)
    rows = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 8
    for loss_type, told in (("ForCausalLM", False), (None, True)):
        model = transformers.GPT2LMHeadModel(sizes)
        model.loss_type = loss_type
        Trainer(model, arguments(tmp_path, max_steps=1), train_dataset=rows).train()
        assert ("one label per row too many" in capsys.readouterr().err) is told
