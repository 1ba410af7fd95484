"""Evaluating and predicting with models and metrics of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from xdpx import EvalPrediction, Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments
from xdpx.reports.results import wanted_metric

Batch = dict[str, Any]


class Tagger(nn.Module):
    """Gives logits of shape (B, T, 3) for tokens (B, T); the loss is the mean over labels that are not -100."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 3)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        logits = self.table(input_ids)
        if labels is None:
            return (logits,)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def tagged(lengths: tuple[int, ...]) -> list[Batch]:
    dice = torch.Generator().manual_seed(1)
    rows = [torch.randint(0, 10, (length,), generator=dice) for length in lengths]
    return [{"input_ids": row, "labels": torch.where(row > 6, -100, row % 3)} for row in rows]


def padded(rows: list[Batch]) -> Batch:
    fill = {"input_ids": 0, "labels": -100}
    pad = nn.utils.rnn.pad_sequence
    return {name: pad([row[name] for row in rows], batch_first=True, padding_value=fill[name]) for name in rows[0]}


def trainer(folder: Path, model: nn.Module | None = None, **changes: Any) -> Trainer:
    own = {name: changes.pop(name) for name in ("compute_metrics", "preprocess_logits_for_metrics") if name in changes}
    torch.manual_seed(0)
    args = TrainingArguments(str(folder), use_cpu=True, disable_tqdm=True, **changes)
    return Trainer(
        model or Tagger(), args, changes.pop("collator", padded), eval_dataset=tagged((4, 6, 2, 5, 3)), **own
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_loss_is_the_mean_over_all_targets_whatever_the_batches(tmp_path: Path, size: int) -> None:
    toy = trainer(tmp_path, per_device_eval_batch_size=size)
    with torch.no_grad():
        expected = toy.model(**padded(toy.eval_dataset))[0].item()
    assert toy.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-6)


def test_a_batch_without_any_target_does_not_spoil_the_loss(tmp_path: Path) -> None:
    toy = trainer(tmp_path, per_device_eval_batch_size=1)
    empty = [{"input_ids": torch.tensor([1, 2]), "labels": torch.tensor([-100, -100])}]
    assert toy.evaluate(toy.eval_dataset + empty)["eval_loss"] == toy.evaluate()["eval_loss"]
    assert np.isnan(toy.evaluate(empty)["eval_loss"])


def test_ragged_predictions_are_filled_up(tmp_path: Path) -> None:
    output = trainer(tmp_path, per_device_eval_batch_size=2).predict(tagged((4, 6, 2, 5, 3)))
    assert output.predictions.shape == (5, 6, 3)
    assert (output.label_ids[2, 2:] == -100).all()


def test_the_metrics_see_what_they_ask_for(tmp_path: Path) -> None:
    seen: list[EvalPrediction] = []

    def compute(prediction: EvalPrediction) -> dict[str, Any]:
        seen.append(prediction)
        return {"rows": np.float32(len(prediction.predictions)), "eval_named": torch.tensor(2.0)}

    toy = trainer(
        tmp_path, compute_metrics=compute, include_for_metrics=["inputs", "loss"], per_device_eval_batch_size=2
    )
    metrics = toy.evaluate()
    predictions, labels, inputs, losses = seen[0]
    assert (predictions.shape, labels.shape, inputs.shape, losses.shape) == ((5, 6, 3), (5, 6), (5, 6), (5,))
    assert (metrics["eval_rows"], metrics["eval_named"]) == (5.0, 2.0)
    assert all(type(value) in {int, float} for value in metrics.values())


def test_metrics_by_batches_are_told_which_is_the_last(tmp_path: Path) -> None:
    lasts: list[bool] = []

    def compute(prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        lasts.append(compute_result)
        return {"batches": len(lasts)} if compute_result else {}

    toy = trainer(tmp_path, compute_metrics=compute, batch_eval_metrics=True, per_device_eval_batch_size=2)
    assert toy.evaluate()["eval_batches"] == 3
    assert lasts == [False, False, True]


def test_metrics_by_batches_get_all_inputs_of_a_batch_as_in_the_original(tmp_path: Path) -> None:
    seen: list[Any] = []

    def compute(prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        seen.append(prediction.inputs)
        return {}

    more = {"include_for_metrics": ["inputs"], "batch_eval_metrics": True, "per_device_eval_batch_size": 2}
    toy = trainer(tmp_path, compute_metrics=compute, **more)
    toy.evaluate()
    toy.predict(tagged((4, 6)))
    assert [{name: len(value) for name, value in batch.items()} for batch in seen] == [
        {"input_ids": rows, "labels": rows} for rows in (2, 2, 1, 2)
    ]


def test_logits_are_reduced_before_they_are_kept(tmp_path: Path) -> None:
    toy = trainer(tmp_path, preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1))
    assert toy.predict(tagged((4, 6))).predictions.shape == (2, 6)


def test_several_sets_are_scored_each_under_its_name(tmp_path: Path) -> None:
    toy = trainer(tmp_path)
    toy.eval_dataset = {"short": tagged((2, 3)), "long": tagged((9, 8))}
    assert {"eval_short_loss", "eval_long_loss"} <= set(toy.evaluate())
    assert "eval_loss" in toy.evaluate("short")
    assert "eval_other_loss" in toy.evaluate({"other": tagged((4,))})


def test_sets_may_be_numbered_and_none_at_all_is_told(tmp_path: Path, capsys: Any) -> None:
    toy = trainer(tmp_path)
    toy.eval_dataset = {0: tagged((3,)), 1: tagged((2, 2))}
    assert {"eval_0_loss", "eval_1_loss"} <= toy.evaluate().keys()
    toy.eval_dataset = {}
    assert toy.evaluate() == {}
    assert "eval_dataset: is an empty dict, so nothing is evaluated" in capsys.readouterr().err


def test_only_the_loss_is_kept_when_nothing_else_is_wanted(tmp_path: Path) -> None:
    output = trainer(tmp_path, prediction_loss_only=True).predict(tagged((4, 6)))
    assert output.predictions is None
    assert output.metrics is not None
    assert "test_loss" in output.metrics


def test_data_without_labels_are_predicted_without_a_loss(tmp_path: Path) -> None:
    rows = [{"input_ids": row["input_ids"]} for row in tagged((4, 4))]

    def stacked(batch: list[Batch]) -> Batch:
        return {"input_ids": torch.stack([row["input_ids"] for row in batch])}

    toy = trainer(tmp_path)
    toy.data_collator = stacked
    output = toy.predict(rows)
    assert output.predictions.shape == (2, 4, 3)
    assert output.label_ids is None
    assert output.metrics is not None
    assert "test_loss" not in output.metrics


@pytest.mark.parametrize("form", [tuple, lambda both: dict(zip(("loss", "logits"), both, strict=True))])
def test_a_loss_that_is_none_without_labels_is_no_prediction(form: Any, tmp_path: Path) -> None:
    class Usual(Tagger):
        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            return form((None, self.table(input_ids)))

    rows = [{"input_ids": row["input_ids"]} for row in tagged((4, 4))]
    toy = Trainer(Usual(), TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True), padded)
    assert toy.predict(rows).predictions.shape == (2, 4, 3)


@pytest.mark.parametrize(("outputs", "kept"), [(1, (5, 6, 3)), (2, (5, 6, 1))])
def test_outputs_of_an_own_loss_that_do_not_begin_with_it_are_kept_or_warned_of(
    outputs: int, kept: tuple[int, ...], tmp_path: Path, capsys: Any
) -> None:
    class Own(Trainer):
        def compute_loss(self, model: Any, inputs: Batch, return_outputs: bool = False) -> Any:
            loss, logits = model(**inputs)
            return (loss, (logits, logits[..., :1])[:outputs]) if return_outputs else loss

    args = TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True)
    assert Own(Tagger(), args, padded).predict(tagged((4, 6, 2, 5, 3))).predictions.shape == kept
    warned = (
        "the first of the outputs that it returned, of shape (5, 6, 3), stands in the place" in capsys.readouterr().err
    )
    assert warned == (outputs == 2)


def test_an_own_loss_that_needs_no_labels_is_evaluated_when_the_trainer_is_told(tmp_path: Path, capsys: Any) -> None:
    class Own(Trainer):
        def compute_loss(self, model: Any, inputs: Batch, return_outputs: bool = False) -> Any:
            (logits,) = model(**inputs)
            return (logits.mean(), {"logits": logits}) if return_outputs else logits.mean()

    args = TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, label_names=[])
    toy = Own(Tagger(), args, eval_dataset=[{"input_ids": torch.tensor([1, 2])}])
    assert "eval_loss" not in toy.evaluate()
    assert "set can_return_loss = True on the Trainer" in capsys.readouterr().err
    toy.can_return_loss = True
    assert "eval_loss" in toy.evaluate()


def test_logits_before_the_loss_are_warned_of(tmp_path: Path, capsys: Any) -> None:
    class Turned(Tagger):
        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            return super().forward(input_ids, labels)[::-1]

    trainer(tmp_path, Turned()).evaluate()
    assert "the model: its loss, the first of its outputs" in (told := capsys.readouterr().err)
    assert "a tensor of shape (5, 6, 3) in an evaluation, whose mean counts as the loss" in told


def test_scores_and_predictions_see_the_order_of_the_data_where_training_is_by_length(tmp_path: Path) -> None:
    rows, seen = tagged((2, 6, 3, 5, 4, 7)), list[Any]()

    def compute(found: EvalPrediction) -> dict[str, float]:
        seen.append(found.label_ids)
        return {}

    changes: Any = {"train_sampling_strategy": "group_by_length", "per_device_eval_batch_size": 2}
    toy = trainer(tmp_path, compute_metrics=compute, **changes)
    toy.evaluate(rows)
    seen.append(toy.predict(rows).label_ids)
    for labels in seen:
        assert [row[: len(sample["labels"])].tolist() for row, sample in zip(labels, rows, strict=True)] == [
            sample["labels"].tolist() for sample in rows
        ]


def test_an_unknown_word_for_the_metrics_is_named(tmp_path: Path, capsys: Any) -> None:
    trainer(tmp_path, include_for_metrics=["losses"]).evaluate()
    assert "include_for_metrics: has losses, which has no effect. Use 'inputs' or 'loss'" in capsys.readouterr().err


def test_an_evaluation_that_gives_nothing_names_the_labels_it_looked_for(tmp_path: Path, capsys: Any) -> None:
    trainer(tmp_path, label_names=["labels", "tags"]).evaluate()
    assert "gave neither a loss nor a metric. Labels are inputs named labels, tags" in capsys.readouterr().err


def test_several_labels_come_back_as_a_tuple(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def forward(self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
            y = self.layer(x).squeeze(-1)
            return {"loss": ((y - a) ** 2 + (y - b) ** 2).mean(), "y": y}

    rows = [{"x": torch.tensor([1.0]), "a": torch.tensor(float(i)), "b": torch.tensor(-1.0)} for i in range(3)]
    args = TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, label_names=["a", "b"])
    output = Trainer(Two(), args).predict(rows)
    assert isinstance(output.label_ids, tuple)
    assert output.label_ids[0].tolist() == [0.0, 1.0, 2.0]


def test_pieces_stay_apart_when_they_are_not_to_be_joined(tmp_path: Path) -> None:
    output = trainer(tmp_path, eval_do_concat_batches=False, per_device_eval_batch_size=2).predict(tagged((4, 6, 2)))
    assert [piece.shape for piece in output.predictions] == [(2, 6, 3), (1, 2, 3)]


def test_evaluating_leaves_the_random_numbers_of_training_alone(tmp_path: Path) -> None:
    toy = trainer(tmp_path)
    before = toy.model.training
    toy.evaluate()
    assert before
    assert not toy.model.training


class Regression(nn.Module):
    """Takes and gives floats; its loss is smooth in both."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 1))

    def forward(self, x: Any, labels: Any = None) -> Any:
        self.seen = x.dtype
        y = self.layers(x).squeeze(-1)
        return {"logits": y} if labels is None else {"loss": nn.functional.mse_loss(y, labels), "logits": y}


@pytest.mark.parametrize(("option", "dtype"), [("bf16_full_eval", torch.bfloat16), ("fp16_full_eval", torch.float16)])
def test_a_full_evaluation_in_half_precision_takes_float_inputs(option: str, dtype: Any, tmp_path: Path) -> None:
    dice = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(3, generator=dice), "labels": torch.tensor(0.1 * index)} for index in range(10)]
    common = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
    plain = Trainer(Regression(), TrainingArguments(str(tmp_path), **common))
    half = Trainer(Regression(), TrainingArguments(str(tmp_path), **common, **{option: True}), train_dataset=rows)
    assert half.evaluate(rows)["eval_loss"] == pytest.approx(plain.evaluate(rows)["eval_loss"], rel=0.02)
    assert half.model.seen == dtype
    output = half.predict(rows)
    assert output.predictions == pytest.approx(plain.predict(rows).predictions, rel=0.05, abs=0.02)
    assert output.label_ids.tolist() == [float(row["labels"]) for row in rows]  # as they were, not rounded


def test_weights_are_not_rounded_after_a_full_evaluation(tmp_path: Path) -> None:
    rows = [{"x": torch.ones(3), "labels": torch.tensor(1.0)}] * 8
    whole = Regression()
    whole.register_buffer("mean", torch.tensor([0.1]))
    before = {name: value.clone() for name, value in whole.state_dict().items()}
    args = TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, save_strategy="no", bf16_full_eval=True)
    toy = Trainer(whole, args, train_dataset=rows, eval_dataset=rows)
    toy.evaluate()
    toy.predict(rows)
    assert all(torch.equal(value, before[name]) for name, value in whole.state_dict().items())
    toy.train()
    assert {value.dtype for value in whole.state_dict().values()} == {torch.float32}


def test_preparing_the_model_is_no_part_of_the_time_of_a_later_evaluation(tmp_path: Path) -> None:
    rows = [{"x": torch.ones(3), "labels": torch.tensor(1.0)}] * 8
    toy = Trainer(Regression(), TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True), eval_dataset=rows)
    assert toy.evaluate()["eval_runtime"] >= 0
    toy._run.model_preparation_time = 60.0  # it was slow
    assert toy.evaluate().items() >= {"eval_model_preparation_time": 60.0}.items()
    assert 0 <= toy.predict(rows).metrics["test_runtime"] < 60


def test_an_evaluation_in_the_midst_of_training_stays_in_full_precision(tmp_path: Path) -> None:
    rows = [{"x": torch.ones(3), "labels": torch.tensor(1.0)}] * 8
    args = TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, save_strategy="no", bf16_full_eval=True,
                             eval_strategy="epoch", num_train_epochs=1)  # fmt: skip
    trainer = Trainer(Regression(), args, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    assert trainer.model.seen == torch.float32
    assert {each.dtype for each in trainer.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("answer", [None, 0.5, (1, 2), {1: 0.5}])
def test_metrics_that_are_no_dict_by_name_are_refused_in_words(answer: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"compute_metrics: returned .* Return a dict of metrics by name"):
        trainer(tmp_path, compute_metrics=lambda _: answer).evaluate()


def test_a_loss_of_the_metrics_is_the_loss_of_the_evaluation_as_in_the_original(tmp_path: Path) -> None:
    toy = trainer(tmp_path, compute_metrics=lambda _: {"loss": 7.0, "eval_f1": 0.5, "f1": 0.25})
    found = toy.evaluate()
    assert (found["eval_loss"], found["eval_f1"]) == (7.0, 0.25)


def test_metrics_that_are_arrays_are_saved_as_lists(tmp_path: Path) -> None:
    toy = trainer(tmp_path, compute_metrics=lambda _: {"each": np.array([0.5, 1.0]), "mean": np.array(0.75)})
    found = toy.evaluate()
    toy.save_metrics("eval", found)
    saved = json.loads((tmp_path / "eval_results.json").read_text())
    assert (saved["eval_each"], saved["eval_mean"]) == ([0.5, 1.0], 0.75)
    assert isinstance(found["eval_mean"], float)


@pytest.mark.parametrize("value", [None, "x", [1.0]])
def test_a_best_metric_that_is_no_number_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match="metric_for_best_model: eval_f1 is .*, and must be a number"):
        wanted_metric("f1", {"eval_f1": value})


def test_a_best_metric_that_is_nan_is_told_once_and_never_saved_as_the_best(tmp_path: Path, capsys: Any) -> None:
    args = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "best", "metric_for_best_model": "f1"}
    toy = trainer(tmp_path, max_steps=3, compute_metrics=lambda _: {"f1": float("nan")}, **args)
    toy.train_dataset = tagged((4, 6, 2, 5, 3))
    toy.train()
    assert capsys.readouterr().err.count("metric_for_best_model f1 is NaN on the held-out rows") == 1
    assert not list(tmp_path.glob("checkpoint-*"))


def test_an_input_for_the_metrics_that_batches_lack_is_named(tmp_path: Path) -> None:
    toy = trainer(tmp_path, include_for_metrics=["inputs"], compute_metrics=lambda _: {})
    toy.main_input_name = "pixels"
    with pytest.raises(KeyError, match="'pixels' of each batch, but a batch has only input_ids, labels"):
        toy.evaluate()


class Rowwise(Trainer):
    """Gives a loss for each row, and the logits alone as outputs."""

    def prediction_step(self, model: Any, inputs: Batch, *given: Any, **more: Any) -> tuple[Any, Any, Any]:
        with torch.no_grad():
            logits = model(inputs["input_ids"])[0]
        return torch.arange(1.0, 1 + len(logits)), logits, inputs["labels"]

    def compute_loss(self, model: Any, inputs: Batch, return_outputs: bool = False) -> Any:
        loss, logits = model(**inputs)
        return (loss, logits) if return_outputs else loss


def test_a_loss_for_each_row_counts_as_their_mean_and_reaches_the_metrics(tmp_path: Path) -> None:
    seen = []
    args = TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, include_for_metrics=["loss"])
    toy = Rowwise(Tagger(), args, padded, compute_metrics=lambda found: {"rows": len(seen.append(found.losses) or "x")})
    assert toy.evaluate(tagged((4, 4, 4)))["eval_loss"] == 2.0
    assert seen[0].tolist() == [1.0, 2.0, 3.0]


def test_outputs_that_are_one_tensor_are_predictions_with_all_their_rows(tmp_path: Path) -> None:
    class Alone(Rowwise):
        prediction_step = Trainer.prediction_step

    args = TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True)
    assert Alone(Tagger(), args, padded).predict(tagged((4, 4, 4))).predictions.shape == (3, 4, 3)


def test_a_loader_that_is_kept_is_that_of_the_data_asked_for(tmp_path: Path) -> None:
    toy = trainer(tmp_path, dataloader_persistent_workers=True, dataloader_num_workers=1)
    other = tagged((3,))
    assert toy.get_eval_dataloader() is toy.get_eval_dataloader(toy.eval_dataset)
    assert toy.get_eval_dataloader(other).dataset is other
    with pytest.raises(ValueError, match="eval_dataset: 'other' was requested, but it is not a dict of data sets"):
        toy.get_eval_dataloader("other")


class Asker(Trainer):
    """Scores samples that no collator has made tensors of, as a trainer that generates its own inputs does."""

    def prediction_step(self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None) -> Any:
        return torch.tensor(float(len(inputs))), None, None


def test_batches_that_are_lists_of_samples_are_scored_by_their_number(tmp_path: Path) -> None:
    args = TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, per_device_eval_batch_size=4)
    asker = Asker(Tagger(), args, list, eval_dataset=[{"input_ids": "a question"}] * 6)
    assert asker.evaluate()["eval_loss"] == pytest.approx((4 * 4 + 2 * 2) / 6)


class Caches(Tagger):
    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        loss, logits = super().forward(input_ids, labels)
        return {"loss": loss, "logits": logits, "past_key_values": logits}


def test_only_a_model_with_a_config_leaves_out_what_it_caches(tmp_path: Path) -> None:
    assert len(trainer(tmp_path, Caches()).predict(tagged((3, 3))).predictions) == 2


@pytest.mark.parametrize(("size", "left_out"), [(2, "1 of 5"), (3, "2 of 5"), (8, "5 of 5"), (5, "")])
def test_examples_that_drop_last_leaves_out_of_an_evaluation_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int, left_out: str
) -> None:
    toy = trainer(tmp_path, per_device_eval_batch_size=size, dataloader_drop_last=True)
    with caplog.at_level("WARNING", logger="xdpx"):
        toy.evaluate()
    assert caplog.messages == [
        f"dataloader_drop_last: is True, which also holds for evaluations and predictions: {left_out} examples are "
        f"left out, as they do not fill a batch of {size} on each process. Set it to False to see all examples."
    ] * bool(left_out)


class Stream(torch.utils.data.IterableDataset[Batch]):
    def __iter__(self) -> Any:
        return iter(tagged((4, 6, 2, 5, 3)))


def test_no_row_of_a_stream_is_left_out_of_a_prediction(tmp_path: Path) -> None:
    toy = trainer(tmp_path, per_device_eval_batch_size=3, dataloader_drop_last=True)
    assert len(toy.predict(Stream()).predictions) == 5


class Echo(Tagger):
    """Generates its input."""

    main_input_name = "input_ids"

    def __init__(self) -> None:
        super().__init__()
        self.generation_config = SimpleNamespace(max_length=6, max_new_tokens=None)

    def generate(self, input_ids: torch.Tensor, **given: Any) -> torch.Tensor:
        return input_ids


def test_the_loss_beside_generated_texts_is_that_of_an_own_compute_loss(tmp_path: Path) -> None:
    class Doubled(Seq2SeqTrainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **given: Any) -> Any:
            loss, logits = model(**inputs)
            return (2 * loss, (2 * loss, logits)) if return_outputs else 2 * loss

    def doubled(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        return 2 * nn.functional.cross_entropy(outputs[0].flatten(0, 1), labels.flatten())

    args = Seq2SeqTrainingArguments(
        str(tmp_path), use_cpu=True, disable_tqdm=True, predict_with_generate=True, per_device_eval_batch_size=5
    )
    given = {"eval_dataset": tagged((4, 6, 2, 5, 3)), "compute_metrics": lambda _: {},
             "processing_class": SimpleNamespace(pad_token_id=0)}  # fmt: skip
    model = Echo()
    plain, own, func = (
        kind(model, args, padded, **given, **more).evaluate()["eval_loss"]
        for kind, more in ((Seq2SeqTrainer, {}), (Doubled, {}), (Seq2SeqTrainer, {"compute_loss_func": doubled}))
    )
    assert (own, func) == pytest.approx((2 * plain, 2 * plain))


def test_settings_of_generation_are_told_of_if_nothing_is_generated(tmp_path: Path, capsys: Any) -> None:
    args = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, generation_max_length=9)
    toy = Seq2SeqTrainer(Echo(), args, padded)
    assert toy.predict(tagged((4, 6)), num_beams=2).predictions.shape == (2, 6, 3)
    told = "nothing is generated and num_beams, generation_max_length has no effect"
    assert told in capsys.readouterr().err
