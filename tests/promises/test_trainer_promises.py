"""What the documents promise of the Trainer: number by number, each by its check on one process.

The checks that need two processes are in test_trainer_pair.py; the numbers are those of the issue.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
import os
import random
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from xdpx.engines.pytorch import world

_spec = importlib.util.spec_from_file_location("trainer_parts", Path(__file__).with_name("trainer_parts.py"))
assert _spec is not None
assert _spec.loader is not None
parts: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(parts)

door = parts.door
REPOSITORY = Path(__file__).parents[2]


# ---- 1: a loop for every model


def by_hand(model: nn.Module, batches: list[Any], learning_rate: float) -> torch.Tensor:
    """Train as everybody would write it: AdamW, clipping at 1, linear decay."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0, fused=True)
    model.train()
    for step, batch in enumerate(batches):
        model(**batch)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = learning_rate * (1 - step / len(batches))
        optimizer.step()
        optimizer.zero_grad()
    return parts.weights(model)


@pytest.mark.parametrize(
    ("make", "rows"), [(lambda: parts.seeded(), parts.Rows()), (parts.tiny_bert, parts.token_rows())]
)
def test_01_training_ends_with_the_weights_of_a_loop_written_by_hand(make: Any, rows: Any, tmp_path: Path) -> None:
    trainer = parts.build(tmp_path, make(), rows, train_sampling_strategy="sequential")
    trainer.train()
    batches = [
        torch.utils.data.default_collate([rows[i] for i in range(start, start + 4)]) for start in range(0, 24, 4)
    ]
    torch.testing.assert_close(parts.weights(trainer.model), by_hand(make(), batches, 0.01), rtol=1e-6, atol=1e-6)


# ---- 2: arguments


def test_02_arguments_are_the_same_from_python_from_words_and_from_files(tmp_path: Path) -> None:
    values = {"output_dir": "out", "learning_rate": 0.1, "eval_strategy": "steps", "eval_steps": 5, "use_cpu": True}
    (tmp_path / "a.json").write_text(json.dumps(values), encoding="utf-8")
    (tmp_path / "a.yaml").write_text("".join(f"{key}: {value}\n" for key, value in values.items()), encoding="utf-8")
    parser = door.HfArgumentParser(door.TrainingArguments)
    words = [
        "--output_dir",
        "out",
        "--learning_rate",
        "0.1",
        "--eval_strategy",
        "steps",
        "--eval_steps",
        "5",
        "--use_cpu",
    ]
    told = [
        door.TrainingArguments(**values),
        *parser.parse_args_into_dataclasses(words),
        *parser.parse_json_file(str(tmp_path / "a.json")),
        *parser.parse_yaml_file(str(tmp_path / "a.yaml")),
        *parser.parse_dict(values),
    ]
    assert len({args.to_json_string() for args in told}) == 1


def test_02_arguments_come_back_from_what_they_tell(tmp_path: Path) -> None:
    args = parts.arguments(tmp_path, lr_scheduler_type="cosine", label_names=["a"], hub_token="secret")
    told = json.loads(args.to_json_string())
    assert "secret" not in args.to_json_string()
    assert told == args.to_dict()
    again = door.TrainingArguments(**(told | {"hub_token": "secret"}))
    assert again.to_dict() == args.to_dict()
    assert all(isinstance(value, bool | int | float | str) for value in args.to_sanitized_dict().values())


@pytest.mark.parametrize(
    "values",
    [
        {"fp16": True, "bf16": True},
        {"fp16_full_eval": True, "bf16_full_eval": True},
        {"logging_steps": 0},
        {"eval_strategy": "steps", "eval_steps": 1.5},
        {"save_strategy": "steps", "save_steps": 2.5},
        {"load_best_model_at_end": True, "eval_strategy": "no", "save_strategy": "steps"},
        {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "no"},
        {"warmup_steps": -1},
        {"dataloader_prefetch_factor": 2, "dataloader_num_workers": 0},
        {"torch_empty_cache_steps": 0},
        {"optim": "no_such"},
        {"eval_strategy": "sometimes"},
    ],
    ids=lambda values: "-".join(values),
)
def test_02_arguments_that_do_not_go_together_are_refused_when_made(values: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError) as raised:
        parts.arguments(tmp_path, **values)
    assert any(name in str(raised.value) for name in values) or parts.ORIGINAL


def test_02_all_faults_of_arguments_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as raised:
        parts.arguments(tmp_path, fp16=True, bf16=True, warmup_steps=-1, torch_empty_cache_steps=0)
    assert all(name in str(raised.value) for name in ("fp16", "bf16", "warmup_steps", "torch_empty_cache_steps"))


def test_02_every_documented_argument_exists_with_its_default() -> None:
    original = importlib.import_module("transformers").Seq2SeqTrainingArguments
    expected = {field.name: field for field in fields(original)}
    found = {field.name: field for field in fields(door.Seq2SeqTrainingArguments)}
    assert set(expected) <= set(found)
    ours, theirs = door.Seq2SeqTrainingArguments("out").to_dict(), original("out", use_cpu=False).to_dict()
    assert {name: ours[name] for name in theirs} == theirs


# ---- 4: mixed precision


class Witness(parts.Net):  # type: ignore[misc, name-defined]
    def forward(self, x: Any, labels: Any = None) -> Any:
        self.seen = (torch.is_autocast_enabled("cpu"), self.body(x).dtype)
        return super().forward(x, labels)


def test_04_bf16_on_a_cpu_computes_in_bfloat16_and_keeps_weights_in_float32(tmp_path: Path) -> None:
    trainer = parts.build(tmp_path / "bf16", parts.seeded(Witness), bf16=True)
    trainer.train()
    plain = parts.build(tmp_path / "fp32")
    plain.train()
    assert trainer.model.seen == (True, torch.bfloat16)
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert parts.losses(trainer) == pytest.approx(parts.losses(plain), rel=0.03)
    assert parts.losses(trainer) != parts.losses(plain)


def test_04_the_names_of_apex_are_taken_without_effect(tmp_path: Path) -> None:
    args = parts.arguments(tmp_path, fp16_opt_level="O1", half_precision_backend="auto", fp16_backend="auto")
    assert not args.fp16


# ---- 5: twelve points to override

POINTS = {
    "get_train_dataloader": 1,
    "get_eval_dataloader": 1,
    "get_test_dataloader": 1,
    "log": 8,
    "create_optimizer_and_scheduler": 1,
    "create_optimizer": 1,
    "create_scheduler": 1,
    "compute_loss": 9,
    "training_step": 6,
    "prediction_step": 3,
    "evaluate": 1,
    "predict": 1,
}


def run_all(trainer: Any) -> Any:
    """Train six steps, evaluate two batches at the end of the epoch, predict one batch."""
    trainer.train()
    return trainer.predict(parts.Rows(4))


def overriding(name: str, change: Any) -> Any:
    """Return a Trainer whose method `name` hands its own result through `change(self, result)`."""

    def method(self: Any, *values: Any, **options: Any) -> Any:
        return change(self, getattr(door.Trainer, name)(self, *values, **options))

    return type("Own", (door.Trainer,), {name: method})


@pytest.mark.parametrize("name", POINTS)
def test_05_an_overridden_method_is_called_as_often_as_it_should_be(name: str, tmp_path: Path) -> None:
    calls: list[Any] = []
    kind = overriding(name, lambda self, result: (calls.append(name), result)[1])
    trainer = parts.build(tmp_path, kind=kind, eval_dataset=parts.Rows(8), eval_strategy="epoch")
    run_all(trainer)
    assert len(calls) == POINTS[name]


def loader_of_zeros(_: Any, loader: Any) -> Any:
    rows = [{"x": torch.zeros(4), "labels": torch.tensor(0)}] * (8 if len(loader) > 1 else 2)
    return DataLoader(rows, batch_size=4)


def sgd(self: Any, _: Any) -> Any:
    self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
    return self.optimizer


def slow(self: Any, _: Any) -> Any:
    self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.125)
    return self.lr_scheduler


def both(self: Any, result: Any) -> Any:
    sgd(self, result)
    return slow(self, result)


def stretched(_: Any, result: Any) -> Any:
    return (result[0] * 10, *result[1:]) if isinstance(result, tuple) else result * 10


def logged(trainer: Any, key: str) -> list[float]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


USED = {
    "get_train_dataloader": (loader_of_zeros, lambda t, p: t.state.global_step == 2),
    "get_eval_dataloader": (loader_of_zeros, lambda t, p: logged(t, "eval_rows") == [8]),
    "get_test_dataloader": (loader_of_zeros, lambda t, p: len(p.predictions) == 2 and not p.label_ids.any()),
    "log": (lambda self, _: self.state.log_history[-1].update(mine=1), lambda t, p: len(logged(t, "mine")) == 8),
    "create_optimizer_and_scheduler": (both, lambda t, p: logged(t, "learning_rate")[1] == 0.0625),
    "create_optimizer": (sgd, lambda t, p: type(getattr(t.optimizer, "optimizer", t.optimizer)) is torch.optim.SGD),
    "create_scheduler": (slow, lambda t, p: set(logged(t, "learning_rate")) == {0.00125}),
    "compute_loss": (stretched, lambda t, p: parts.losses(t)[0] > 9),
    "training_step": (lambda self, loss: loss * 0 + 5, lambda t, p: set(parts.losses(t)) == {5.0}),
    "prediction_step": (lambda self, r: (r[0] * 0 + 3, r[1] + 100, r[2]), lambda t, p: p.predictions.min() > 50),
    "evaluate": (lambda self, scores: {**scores, "eval_mine": 0.25}, lambda t, p: t.state.best_metric == 0.25),
    "predict": (lambda self, result: "mine", lambda t, p: p == "mine"),
}


@pytest.mark.parametrize("name", USED)
def test_05_what_an_overridden_method_gives_is_used(name: str, tmp_path: Path) -> None:
    change, holds = USED[name]
    more = {"metric_for_best_model": "mine"} if name == "evaluate" else {}
    trainer = parts.build(
        tmp_path,
        kind=overriding(name, change),
        eval_dataset=parts.Rows(12),
        eval_strategy="epoch",
        save_strategy="best" if more else "no",
        compute_metrics=lambda predictions: {"rows": len(predictions.label_ids)},
        **more,
    )
    assert holds(trainer, run_all(trainer))


# ---- 6 and 7: models and their labels


def test_06_models_may_give_a_tuple_a_dict_or_a_model_output(tmp_path: Path) -> None:
    found = []
    for kind in (parts.TupleNet, parts.Net, parts.OutputNet):
        trainer = parts.build(tmp_path, parts.seeded(kind), eval_dataset=parts.Rows(8))
        trainer.train()
        scores = trainer.evaluate()
        found.append(
            [*parts.losses(trainer), scores["eval_loss"], *trainer.predict(parts.Rows(8)).predictions.flatten()]
        )
    assert found[0] == found[1] == found[2]


def test_06_a_dict_without_a_loss_is_refused_with_its_keys(tmp_path: Path) -> None:
    class Silent(parts.Net):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, labels: Any = None) -> Any:
            return {"scores": self.logits(x)}

    with pytest.raises(ValueError, match="loss") as raised:
        parts.build(tmp_path, parts.seeded(Silent)).train()
    assert "scores" in str(raised.value)


class TwoAnswers(parts.Net):  # type: ignore[misc, name-defined]
    def forward(self, x: Any, start: Any = None, end: Any = None) -> Any:
        logits = self.logits(x)
        loss = nn.functional.cross_entropy(logits, start) + nn.functional.cross_entropy(-logits, end)
        return loss, logits, -logits


def test_07_a_model_may_have_several_labels_of_any_name(tmp_path: Path) -> None:
    rows = [{"x": torch.randn(4), "start": number % 3, "end": number % 2} for number in range(8)]
    trainer = parts.build(tmp_path, parts.seeded(TwoAnswers), rows, eval_dataset=rows, label_names=["start", "end"])
    trainer.train()
    predicted = trainer.predict(rows)
    assert isinstance(predicted.label_ids, tuple)
    assert [labels.tolist() for labels in predicted.label_ids] == [[0, 1, 2] * 2 + [0, 1], [0, 1] * 4]
    assert len(predicted.predictions) == 2
    assert trainer.evaluate()["eval_loss"] > 0


# ---- 8: a loss of one's own


def weighted(door: Any, *, counted: bool) -> Any:
    """Return the Trainer of the documents, with their signature, or one with today's, which divides by the count."""

    def loss_of(model: Any, inputs: Any, return_outputs: bool, count: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss_fct = nn.CrossEntropyLoss(weight=torch.ones(3), reduction="mean" if count is None else "sum")
        loss = loss_fct(outputs["logits"].view(-1, 3), labels.view(-1)) / (1 if count is None else count)
        return (loss, outputs) if return_outputs else loss

    class Document(door.Trainer):  # type: ignore[misc, name-defined]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: Any = False) -> Any:
            return loss_of(model, inputs, return_outputs, None)

    class Today(door.Trainer):  # type: ignore[misc, name-defined]
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: Any = False, num_items_in_batch: Any = None
        ) -> Any:
            return loss_of(model, inputs, return_outputs, num_items_in_batch)

    return Today if counted else Document


@pytest.mark.parametrize("counted", [False, True], ids=["documents", "today"])
@pytest.mark.parametrize("model", ["net", "bert"])
def test_08_a_loss_of_ones_own_is_right_under_accumulation(counted: bool, model: str, tmp_path: Path) -> None:
    found = []
    for size, accumulation in ((8, 1), (4, 2), (2, 4)):
        made, rows = (parts.seeded(), parts.Rows()) if model == "net" else (parts.tiny_bert(), parts.token_rows())
        trainer = parts.build(
            tmp_path,
            made,
            rows,
            kind=weighted(door, counted=counted),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
            max_grad_norm=0.0,
            optim="sgd",
            train_sampling_strategy="sequential",
        )
        trainer.train()
        found.append([*parts.losses(trainer), *logged(trainer, "grad_norm")])
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert found[2] == pytest.approx(found[0], rel=1e-5)


# ---- 9: callbacks

EVENTS = [name for name in vars(door.TrainerCallback) if name.startswith("on_")]


def expected_events(steps: int, accumulation: int, epochs: int, eval_batches: int) -> list[str]:
    """Work out the order of all events of a run that logs and evaluates every step and saves at the end of epochs."""
    order = ["on_init_end", "on_train_begin"]
    for _ in range(epochs):
        order.append("on_epoch_begin")
        for _ in range(steps):
            order += ["on_step_begin", *["on_substep_end"] * (accumulation - 1)]
            order += ["on_pre_optimizer_step", "on_optimizer_step", "on_step_end", "on_log"]
            order += [*["on_prediction_step"] * eval_batches, "on_log", "on_evaluate"]
        order += ["on_epoch_end", "on_save"]
    return [*order, "on_log", "on_train_end"]


def test_09_events_come_in_their_order(tmp_path: Path) -> None:
    seen: list[str] = []
    noted = {name: lambda self, *_, _name=name, **__: seen.append(_name) for name in EVENTS}
    scribe = type("Scribe", (door.TrainerCallback,), noted)
    trainer = parts.build(
        tmp_path,
        data=parts.Rows(24),
        eval_dataset=parts.Rows(8),
        callbacks=[scribe()],
        gradient_accumulation_steps=3,
        num_train_epochs=2,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="epoch",
    )
    trainer.train()
    assert seen == expected_events(steps=2, accumulation=3, epochs=2, eval_batches=2)


def test_09_early_stopping_stops(tmp_path: Path) -> None:
    trainer = parts.build(
        tmp_path,
        eval_dataset=parts.Rows(8),
        callbacks=[door.EarlyStoppingCallback(early_stopping_patience=2)],
        compute_metrics=lambda _: {"constant": 1.0},
        metric_for_best_model="constant",
        greater_is_better=True,
        eval_strategy="steps",
        eval_steps=1,
    )
    trainer.train()
    assert trainer.state.global_step == 3


def test_09_a_callback_of_the_original_is_a_callback_here(tmp_path: Path) -> None:
    original = importlib.import_module("transformers").TrainerCallback
    losses: list[float] = []

    class Scribe(original):  # type: ignore[misc, valid-type]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            losses.extend([logs["loss"]] if "loss" in logs else [])

    trainer = parts.build(tmp_path, callbacks=[Scribe()])
    trainer.train()
    assert losses == parts.losses(trainer)


def test_09_tensorboard_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    trainer = parts.build(
        tmp_path / "out", report_to=["tensorboard"], eval_dataset=parts.Rows(8), eval_strategy="epoch"
    )
    trainer.train()
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    written = [item.value for item in events.Scalars("train/loss")]
    assert written == pytest.approx(parts.losses(trainer), rel=1e-6)
    assert "eval/loss" in events.Tags()["scalars"]


# ---- 10: sequences to sequences


def tiny_t5() -> Any:
    from transformers.models.t5 import T5Config, T5ForConditionalGeneration

    shape = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return parts.seeded(lambda: T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, **shape)))


def pair_rows(count: int = 12) -> list[dict[str, Any]]:
    dice = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 30, (count, 5), generator=dice)
    return [{"input_ids": row, "labels": row.flip(0)} for row in ids]


def test_10_a_seq2seq_trainer_scores_and_predicts_what_is_generated(tmp_path: Path) -> None:
    seen: list[Any] = []
    rows = pair_rows()
    args = door.Seq2SeqTrainingArguments(
        str(tmp_path), predict_with_generate=True, generation_max_length=9, per_device_eval_batch_size=4, use_cpu=True,
        report_to="none",
    )  # fmt: skip
    trainer = door.Seq2SeqTrainer(
        model=tiny_t5(), args=args, eval_dataset=rows,
        compute_metrics=lambda predictions: (seen.append(predictions.predictions), {"seen": len(seen)})[1],
    )  # fmt: skip
    scores = trainer.evaluate()
    predicted = trainer.predict(rows, max_length=6, num_beams=2).predictions
    ids = torch.stack([row["input_ids"] for row in rows])
    by_hand = trainer.model.generate(input_ids=ids, max_length=6, num_beams=2)
    assert scores["eval_seen"] == 1
    assert not seen[0][:, 9:].any()  # beyond the longest that was asked for there is only padding
    assert seen[0].dtype.kind == "i"
    assert predicted[:, : by_hand.shape[1]].tolist() == by_hand.tolist()


# ---- 11 and 12: checkpoints

FILES = {
    "model.safetensors",
    "optimizer.pt",
    "scheduler.pt",
    "trainer_state.json",
    "training_args.bin",
    "rng_state.pth",
}


def test_11_checkpoints_lie_where_they_are_looked_for(tmp_path: Path) -> None:
    from transformers.trainer_utils import get_last_checkpoint

    trainer = parts.build(tmp_path, parts.tiny_bert(), parts.token_rows(), save_strategy="steps", save_steps=2)
    trainer.train()
    assert parts.folders(tmp_path) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert FILES | {"config.json"} <= {path.name for path in (tmp_path / "checkpoint-4").iterdir()}
    assert get_last_checkpoint(str(tmp_path)) == str(tmp_path / "checkpoint-6")


def optimizer_state(trainer: Any) -> list[float]:
    state = trainer.optimizer.state_dict()["state"]
    return [float(value.double().sum()) for entry in state.values() for value in entry.values()]


@pytest.mark.parametrize("step", range(1, 6))
def test_12_an_interrupted_run_ends_as_an_undisturbed_one(step: int, tmp_path: Path) -> None:
    common = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 1}
    rows = parts.Rows(12)
    straight = parts.build(tmp_path / "a", parts.seeded(parts.Net, 0.3), rows, **common)
    straight.train()
    parts.build(tmp_path / "b", parts.seeded(parts.Net, 0.3), rows, callbacks=[parts.stopper(step)], **common).train()
    resumed = parts.build(tmp_path / "b", parts.seeded(parts.Net, 0.3), rows, **common)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == straight.state.global_step == 6
    assert torch.equal(parts.weights(resumed.model), parts.weights(straight.model))
    assert optimizer_state(resumed) == optimizer_state(straight)
    assert parts.losses(resumed) == parts.losses(straight)


def test_12_a_path_names_the_checkpoint_and_none_at_all_is_an_error(tmp_path: Path) -> None:
    common = {"save_strategy": "steps", "save_steps": 2, "learning_rate": 0.05}
    straight = parts.build(tmp_path, **common)
    straight.train()
    rows = parts.Rows()
    again = parts.build(tmp_path / "again", data=rows, **common)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert len(parts.losses(again)) == 6
    assert torch.equal(parts.weights(again.model), parts.weights(straight.model))
    with pytest.raises(ValueError, match="checkpoint") as raised:
        parts.build(tmp_path / "empty").train(resume_from_checkpoint=True)
    assert str(tmp_path / "empty") in str(raised.value)


def test_12_a_checkpoint_of_the_original_goes_on_here_and_ours_there(tmp_path: Path) -> None:
    original = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    straight = parts.build(tmp_path / "straight", parts.tiny_bert(dropout=0.2), parts.token_rows())
    straight.train()
    for first, second in ((original, door), (door, original)):
        place = tmp_path / first.__name__
        common = {"save_strategy": "steps", "save_steps": 3, "learning_rate": 0.01, "per_device_train_batch_size": 4}
        common |= {
            "num_train_epochs": 1,
            "logging_steps": 1,
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
        }
        for library, resume in ((first, None), (second, str(place / "checkpoint-3"))):
            args = library.TrainingArguments(str(place), **common)
            trainer = library.Trainer(parts.tiny_bert(dropout=0.2), args, train_dataset=parts.token_rows())
            trainer.train(resume_from_checkpoint=resume)
        torch.testing.assert_close(parts.weights(trainer.model), parts.weights(straight.model), rtol=1e-6, atol=1e-6)
        assert parts.losses(trainer) == pytest.approx(parts.losses(straight), abs=1e-6)


# ---- 13 and 14: the Hub


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What a Hub that runs here was sent by a run of each strategy: lists of {"message", "paths"}, a list for each."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("trainer_hub.py")), door.__name__],
        cwd=tmp_path_factory.mktemp("hub"), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    commits: dict[str, list[dict[str, Any]]] = json.loads(done.stdout.strip().splitlines()[-1])
    return commits


def test_13_every_save_is_a_commit_without_the_state_of_the_optimizer(pushed: Any) -> None:
    commits = pushed["every_save"]
    assert [commit["message"] for commit in commits][:2] == [
        "Training in progress, step 2",
        "Training in progress, step 4",
    ]
    assert commits[-1]["message"] == "End of training"
    assert all("model.safetensors" in commit["paths"] for commit in commits)
    assert not any("optimizer" in path or "checkpoint-" in path for commit in commits for path in commit["paths"])


def test_13_only_the_end_is_sent_when_so_asked(pushed: Any) -> None:
    assert [commit["message"] for commit in pushed["end"]] == ["End of training"]


def test_14_the_newest_checkpoint_lies_in_last_checkpoint(pushed: Any) -> None:
    paths = {path for commit in pushed["checkpoint"] for path in commit["paths"]}
    assert {"last-checkpoint/optimizer.pt", "last-checkpoint/trainer_state.json", "model.safetensors"} <= paths
    assert not any(path.startswith("checkpoint-") for path in paths)


def test_14_all_checkpoints_lie_under_their_names(pushed: Any) -> None:
    paths = {path for commit in pushed["all_checkpoints"] for path in commit["paths"]}
    assert {"checkpoint-2/optimizer.pt", "checkpoint-4/optimizer.pt"} <= paths


def test_14_a_folder_called_last_checkpoint_can_be_resumed(tmp_path: Path) -> None:
    straight = parts.build(tmp_path, save_strategy="steps", save_steps=3)
    straight.train()
    (tmp_path / "checkpoint-3").rename(tmp_path / "last-checkpoint")
    resumed = parts.build(tmp_path / "again")
    resumed.train(resume_from_checkpoint=str(tmp_path / "last-checkpoint"))
    assert torch.equal(parts.weights(resumed.model), parts.weights(straight.model))


def test_13_without_a_hub_pushing_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    trainer = parts.build(tmp_path)
    with pytest.raises(Exception, match="(?i)offline|HF_HUB_OFFLINE|reach"):
        trainer.push_to_hub()


# ---- 15 and 16: levels of the log (on several processes: test_trainer_pair.py)


def test_16_the_trainer_sets_the_level_of_the_library(tmp_path: Path) -> None:
    from transformers.utils import logging as theirs

    before = theirs.get_verbosity()
    try:
        for name, level in (("error", logging.ERROR), ("debug", logging.DEBUG), ("warning", logging.WARNING)):
            trainer = parts.build(tmp_path, log_level=name)
            assert trainer.args.get_process_log_level() == level
            assert theirs.get_verbosity() == level
    finally:
        theirs.set_verbosity(before)


def test_16_levels_follow_from_the_place_of_a_process(tmp_path: Path) -> None:
    args = parts.arguments(tmp_path, log_level="warning", log_level_replica="error")
    assert args.should_log
    assert args.get_process_log_level() == logging.WARNING
    with pytest.raises(ValueError, match="log_level"):
        parts.arguments(tmp_path, log_level="loud")


# ---- 17 and 18: randomness


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_17_resuming_restores_the_dice_of_python_numpy_and_torch(step: int, tmp_path: Path) -> None:
    common = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 1}
    rows = parts.Rows(12)
    straight = parts.build(tmp_path / "a", parts.seeded(parts.NoisyNet), rows, **common)
    straight.train()
    parts.build(tmp_path / "b", parts.seeded(parts.NoisyNet), rows, callbacks=[parts.stopper(step)], **common).train()
    resumed = parts.build(tmp_path / "b", parts.seeded(parts.NoisyNet), rows, **common)
    assert [torch.rand(3), np.random.rand(3), random.random()]  # the dice have rolled on meanwhile
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(parts.weights(resumed.model), parts.weights(straight.model))


def test_18_full_determinism_is_off_until_asked_for(tmp_path: Path) -> None:
    assert not parts.arguments(tmp_path).full_determinism
    try:
        found = []
        for _ in range(2):
            trainer = parts.build(tmp_path, parts.seeded(parts.NoisyNet, 0.2), full_determinism=True, seed=5)
            assert torch.are_deterministic_algorithms_enabled()
            trainer.train()
            found.append(parts.weights(trainer.model))
        assert torch.equal(*found)
    finally:
        torch.use_deterministic_algorithms(False)


# ---- 20, 21 and 27: devices


def test_20_no_visible_device_means_the_cpu(tmp_path: Path) -> None:
    code = (
        f"from {door.__name__} import TrainingArguments; args = TrainingArguments('out'); "
        "print(args.device, args.n_gpu, args.train_batch_size)"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["cpu", "0", "8"]


def test_21_several_devices_in_one_process_share_a_batch(tmp_path: Path) -> None:
    args = parts.arguments(tmp_path, per_device_train_batch_size=4, per_device_eval_batch_size=3)
    assert (args.n_gpu, args.train_batch_size, args.eval_batch_size) == (0, 4, 3)
    args._n_gpu = 2
    assert (args.train_batch_size, args.eval_batch_size) == (8, 6)


def test_27_a_mac_s_gpu_is_used_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    world.forget()  # an earlier test may have looked at this machine
    try:
        assert str(parts.arguments(tmp_path, use_cpu=False).device).startswith("mps")
        assert str(parts.arguments(tmp_path, use_cpu=True).device) == "cpu"
    finally:
        world.forget()


# ---- 23, 26 and 29: sharding and DeepSpeed, as far as one process can tell


def test_22_an_unknown_word_of_fsdp_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="full_shart"):
        parts.arguments(tmp_path, fsdp="full_shart auto_wrap")


def test_22_fsdp_needs_several_processes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="(?i)distributed|processes|torchrun"):
        parts.build(tmp_path, fsdp="full_shard")


def test_23_keys_of_fsdp_may_have_their_prefix_and_be_words(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plain = {
        "transformer_layer_cls_to_wrap": ["BertLayer"],
        "activation_checkpointing": True,
        "forward_prefetch": False,
    }
    words = {"fsdp_transformer_layer_cls_to_wrap": "BertLayer", "fsdp_activation_checkpointing": "True",
             "fsdp_forward_prefetch": "false"}  # fmt: skip
    (tmp_path / "fsdp.json").write_text(json.dumps(words), encoding="utf-8")
    told = [
        parts.arguments(tmp_path, fsdp="full_shard auto_wrap", fsdp_config=given).fsdp_options()
        for given in (plain, words, str(tmp_path / "fsdp.json"))
    ]
    assert told[0] == told[1] == told[2]
    parts.arguments(tmp_path, fsdp="full_shard", fsdp_config={"transformer_layer_clss_to_wrap": "BertLayer"})
    assert "transformer_layer_cls_to_wrap" in "".join(capfd.readouterr())


def test_26_xla_without_torch_xla_is_refused_with_a_hint(tmp_path: Path) -> None:
    config = {"xla": True, "xla_fsdp_settings": {"compute_dtype": "bfloat16"}, "xla_fsdp_grad_ckpt": True}
    with pytest.raises(ImportError, match="torch_xla"):
        parts.build(tmp_path, fsdp="full_shard", fsdp_config=config)


DEEPSPEED = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto", "total_num_steps": "auto"}},
    "bf16": {"enabled": "auto"},
}


def test_29_what_deepspeed_leaves_open_is_filled_from_the_arguments(tmp_path: Path) -> None:
    args = parts.arguments(tmp_path, deepspeed=DEEPSPEED, gradient_accumulation_steps=2, weight_decay=0.1, bf16=True)
    config = args.deepspeed_config()
    assert config["train_micro_batch_size_per_gpu"] == 4
    assert (config["train_batch_size"], config["gradient_accumulation_steps"]) == (8, 2)
    assert config["gradient_clipping"] == 1.0
    assert config["optimizer"]["params"]["lr"] == 0.01
    assert config["optimizer"]["params"]["weight_decay"] == 0.1
    assert config["bf16"]["enabled"] is True


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is not None, reason="deepspeed is here")
def test_29_without_deepspeed_the_error_names_the_package(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="pip install deepspeed"):
        parts.build(tmp_path, deepspeed=DEEPSPEED)


# ---- 30: NEFTune


def test_30_noise_is_on_while_training_and_gone_after(tmp_path: Path) -> None:
    alpha, seen = 5.0, []

    class Probe(door.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            table = model.get_input_embeddings()
            ids = torch.arange(6)[None]
            training = [table(ids) for _ in range(2)]
            table.eval()
            still = [table(ids) for _ in range(2)]
            table.train()
            seen.append((training, still))

    trainer = parts.build(
        tmp_path, parts.tiny_bert(), parts.token_rows(), neftune_noise_alpha=alpha, callbacks=[Probe()]
    )
    trainer.train()
    (first, second), (third, fourth) = seen[-1]
    bound = alpha / (6 * 16) ** 0.5
    assert not torch.equal(first, second)
    assert torch.equal(third, fourth)
    assert 0.8 * bound < (first - third).abs().max() <= bound * 1.0001
    table = trainer.model.get_input_embeddings()
    assert not table._forward_hooks
    assert torch.equal(table.train()(torch.arange(6)), table.eval()(torch.arange(6)))


def test_30_noise_is_gone_after_a_training_that_failed(tmp_path: Path) -> None:
    class Fails(door.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("as asked")

    trainer = parts.build(tmp_path, parts.tiny_bert(), parts.token_rows(), neftune_noise_alpha=5.0, callbacks=[Fails()])
    with pytest.raises(RuntimeError, match="as asked"):
        trainer.train()
    assert not trainer.model.get_input_embeddings()._forward_hooks


# ---- 31: the command of the documents (it runs in journeys/trainer/test_examples.py)


def test_31_the_words_of_the_documented_command_are_understood(tmp_path: Path) -> None:
    @dataclass
    class Script:
        model_name_or_path: str
        task_name: str
        max_seq_length: int = 64

    words = (
        "--model_name_or_path google-bert/bert-base-cased --task_name mrpc --do_train --do_eval --max_seq_length 128 "
        "--per_device_train_batch_size 32 --learning_rate 2e-5 --num_train_epochs 3 "
        f"--output_dir {tmp_path}/mrpc/ --overwrite_output_dir"
    ).split()
    script, args = door.HfArgumentParser((Script, door.TrainingArguments)).parse_args_into_dataclasses(words)
    assert (script.task_name, script.max_seq_length) == ("mrpc", 128)
    assert (args.do_train, args.do_eval, args.per_device_train_batch_size) == (True, True, 32)
    assert (args.learning_rate, args.num_train_epochs, args.overwrite_output_dir) == (2e-5, 3.0, True)


# ---- 32: trainers above this one


def test_32_a_higher_trainer_may_override_what_such_trainers_do(tmp_path: Path) -> None:
    calls: list[str] = []

    class Higher(door.Trainer):  # type: ignore[misc, name-defined]
        def __init__(self, model: Any = None, args: Any = None, peft: Any = None, **options: Any) -> None:
            self.peft = peft
            super().__init__(model=model, args=args, **options)
            self.model_accepts_loss_kwargs = False

        def _set_signature_columns_if_needed(self) -> None:
            if self._signature_columns is None:
                self._signature_columns = ["x", "labels"]

        def _prepare_inputs(self, inputs: Any) -> Any:
            calls.append("_prepare_inputs")
            return super()._prepare_inputs(inputs)

        def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
            calls.append("get_batch_samples")
            return super().get_batch_samples(epoch_iterator, num_batches, device)

        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            calls.append("compute_loss")
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

        def _get_train_sampler(self, dataset: Any = None) -> Any:
            calls.append("_get_train_sampler")
            return super()._get_train_sampler(dataset)

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            calls.append("_save_checkpoint")
            super()._save_checkpoint(model, trial)

        def _save(self, output_dir: Any = None, state_dict: Any = None) -> None:
            calls.append("_save")
            super()._save(output_dir, state_dict)

    trainer = Higher(
        parts.seeded(), parts.arguments(tmp_path, save_strategy="epoch"), peft=1, train_dataset=parts.Rows(8)
    )
    trainer.train()
    assert {name: calls.count(name) for name in set(calls)} == {
        "_prepare_inputs": 2, "get_batch_samples": 2, "compute_loss": 2, "_get_train_sampler": 1, "_save_checkpoint": 1,
        "_save": 1,
    }  # fmt: skip
    assert trainer.accelerator is not None


# ---- 33 and 34: documents


def test_33_the_page_on_troubles_says_how_cuda_extensions_are_built() -> None:
    page = (REPOSITORY / "docs/trainer.md").read_text(encoding="utf-8")
    assert all(word in page for word in ("nvcc", "PATH", "LD_LIBRARY_PATH", "gcc"))


CLASSES = ("Trainer", "Seq2SeqTrainer", "TrainingArguments", "Seq2SeqTrainingArguments", "TrainerCallback",
           "TrainerState", "TrainerControl", "HfArgumentParser")  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_34_every_public_name_says_what_it_is(name: str) -> None:
    kind = getattr(door, name)
    members = inspect.getmembers(kind, lambda value: inspect.isfunction(value) or isinstance(value, property))
    ours = [member for member, value in members if getattr(value, "fget", value).__module__.startswith("xdpx")]
    bare = [member for member in ours if not member.startswith("_") and not inspect.getdoc(getattr(kind, member))]
    assert inspect.getdoc(kind)
    assert not bare


def test_34_every_argument_says_what_it_does() -> None:
    assert not [field.name for field in fields(door.Seq2SeqTrainingArguments) if not field.metadata.get("help")]


def test_34_the_reference_has_no_gaps() -> None:
    spec = importlib.util.spec_from_file_location("build_reference", REPOSITORY / "docs/build_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = "\n".join(module.trainer_page(title) for title in module.TRAINER_PAGES)
    names = [field.name for field in fields(door.Seq2SeqTrainingArguments)]
    for kind in (door.Trainer, door.Seq2SeqTrainer, door.TrainingArguments):
        names += [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    assert not [name for name in names if f"`{name}" not in page]


def test_34_every_public_method_of_the_original_is_here_with_its_parameters() -> None:
    original = importlib.import_module("transformers")
    lacking = []
    for name in ("Trainer", "Seq2SeqTrainer", "TrainingArguments", "TrainerCallback", "TrainerState"):
        theirs = inspect.getmembers(getattr(original, name), inspect.isfunction)
        for method, function in theirs:
            if (method.startswith("_") and method != "__init__") or method == "create_accelerator_and_postprocess":
                continue  # the last one makes an object of accelerate's, which there is none of here
            ours = getattr(getattr(door, name), method, None)
            wanted = [p for p in inspect.signature(function).parameters if p not in {"kwargs", "args", "self"}]
            has = inspect.signature(ours).parameters if ours else {}
            loose = any(parameter.kind == parameter.VAR_KEYWORD for parameter in getattr(has, "values", list)())
            lacking += [f"{name}.{method}({p})" for p in wanted if p not in has and not loose]
            lacking += [] if ours else [f"{name}.{method}"]
    assert not lacking
