"""Scripts that were written for the Hugging Face Trainer, with ours in its place."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import xdpx


class Line(nn.Module):
    """y = w x; gives a loss where there are labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        y = self.layer(x).squeeze(-1)
        return {"logits": y} if labels is None else {"loss": ((y - labels) ** 2).mean(), "logits": y}


def rows(count: int = 12) -> list[dict[str, Any]]:
    dice = torch.Generator().manual_seed(3)
    return [{"x": torch.randn(2, generator=dice), "labels": float(index % 3)} for index in range(count)]


def trainer(folder: Path, model: nn.Module | None = None, **changes: Any) -> Any:
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "use_cpu": True, "disable_tqdm": True, "max_steps": 4, "logging_steps": 1, "per_device_train_batch_size": 2,
        **changes,
    }  # fmt: skip
    given = {name: options.pop(name) for name in ("callbacks", "compute_metrics") if name in options}
    args = xdpx.TrainingArguments(str(folder), **options)
    return xdpx.Trainer(model or Line(), args, train_dataset=rows(), eval_dataset=rows(), **given)


def test_our_set_seed_in_the_place_of_the_original_s_does_not_call_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers.trainer_utils as original

    monkeypatch.setattr(original, "set_seed", xdpx.set_seed)
    xdpx.set_seed(1)
    first = (random.random(), np.random.rand(), float(torch.rand(())))
    original.set_seed(1)
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == first


def test_every_name_of_ours_in_the_place_of_the_original_s_still_trains(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = trainer(tmp_path / "before", eval_strategy="steps", full_determinism=False).train().training_loss
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "transformers"]
    for module in modules:
        for name in set(xdpx.__all__) & vars(module).keys() - {"__version__"}:
            monkeypatch.setattr(module, name, getattr(xdpx, name))
    after = trainer(tmp_path / "after", eval_strategy="steps", lr_scheduler_type="linear").train().training_loss
    assert after == before


@pytest.mark.parametrize("name", ["accelerator_config", "fsdp_config", "lr_scheduler_kwargs"])
def test_settings_in_a_file_may_be_given_as_a_path(name: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"even_batches": false}' if name == "accelerator_config" else "{}")
    args = xdpx.TrainingArguments(str(tmp_path / "out"), use_cpu=True, **{name: file})
    assert name != "accelerator_config" or not args.accelerator_config.even_batches
    assert args.to_json_string() == xdpx.TrainingArguments(**args.to_dict()).to_json_string()


@pytest.mark.parametrize("stage", ["eval", "test"])
def test_evaluating_and_predicting_report_their_memory_and_the_first_also_that_of_the_beginning(
    stage: str, tmp_path: Path
) -> None:
    made = trainer(tmp_path, skip_memory_metrics=False)
    call = made.evaluate if stage == "eval" else lambda: made.predict(rows()).metrics
    first, second = call(), call()
    assert {f"{stage}_mem_cpu_alloc_delta", "init_mem_cpu_alloc_delta"} <= first.keys()
    assert f"{stage}_mem_cpu_peaked_delta" in second
    assert "init_mem_cpu_alloc_delta" not in second


def test_arguments_of_the_original_are_refused_with_what_to_import(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    with pytest.raises(TypeError, match=r"must be an xdpx.TrainingArguments.*stand_in_for_transformers"):
        xdpx.Trainer(Line(), transformers.TrainingArguments(str(tmp_path), use_cpu=True), train_dataset=rows())


# ---- what is said


def test_metrics_are_printed_where_scripts_of_the_original_read_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    made, metrics = trainer(tmp_path), {"eval_loss": 0.123456, "eval_runtime": 61.5, "epoch": 1.0, "total_flos": 5e8}
    capsys.readouterr()
    made.log_metrics("eval", metrics)
    ours = capsys.readouterr()
    made.is_world_process_zero = lambda: True
    transformers.Trainer.log_metrics(made, "eval", metrics)
    assert ours.out == capsys.readouterr().out
    assert not ours.err


@pytest.mark.parametrize(
    "changes", [{}, {"eval_strategy": "steps", "debug": "underflow_overflow", "lr_scheduler_type": "cosine"}]
)
def test_arguments_look_as_those_of_the_original(changes: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    ours, theirs = (library.TrainingArguments("out", use_cpu=True, **changes) for library in (xdpx, transformers))
    lines = [line.replace(", 'use_configured_state': False", "") for line in repr(theirs).splitlines()]
    assert repr(ours).splitlines() == str(ours).splitlines() == lines


def test_a_logger_that_users_of_the_original_silence_is_silent_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger, best = logging.getLogger("transformers.trainer_callback"), {"metric_for_best_model": "loss"}
    for level, told in ((logging.ERROR, 0), (logging.NOTSET, 1)):
        logger.setLevel(level)
        stopping = xdpx.EarlyStoppingCallback(early_stopping_patience=9)
        trainer(tmp_path, callbacks=[stopping], eval_strategy="steps", save_strategy="no", **best).train()
        said = capsys.readouterr().err
        assert said.count("Using EarlyStoppingCallback without load_best_model_at_end=True") == told


def test_old_arguments_are_future_warnings_of_the_user_s_own_line_also_on_a_command_line() -> None:
    words = ["--output_dir", "out", "--use_cpu", "--evaluation_strategy", "epoch", "--gradient_checkpointing"]
    with pytest.warns(FutureWarning) as told:
        xdpx.HfArgumentParser(xdpx.TrainingArguments).parse_args_into_dataclasses(words)
    first, second = (str(each.message) for each in told)
    assert first.startswith("`evaluation_strategy` is deprecated")
    assert first.endswith("Use `eval_strategy` instead.")
    assert second.startswith("`gradient_checkpointing` is deprecated")
    assert {each.filename for each in told} == {__file__}


def test_states_of_callbacks_come_back_by_the_method_that_subclasses_of_the_original_override(tmp_path: Path) -> None:
    class Mine(xdpx.Trainer):
        def _load_callback_state(self) -> None:
            self.counted = self.state.stateful_callbacks["EarlyStoppingCallback"]["attributes"]
            super()._load_callback_state()

    def made(patience: int) -> Any:
        torch.manual_seed(0)
        args = xdpx.TrainingArguments(
            str(tmp_path), use_cpu=True, disable_tqdm=True, max_steps=4, eval_strategy="steps", eval_steps=1,
            save_steps=2, metric_for_best_model="loss", greater_is_better=True,
            restore_callback_states_from_checkpoint=True,
        )  # fmt: skip
        stopping = xdpx.EarlyStoppingCallback(early_stopping_patience=patience)
        return Mine(Line(), args, train_dataset=rows(), eval_dataset=rows(), callbacks=[stopping])

    made(9).train()
    again = made(5)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again.counted == {"early_stopping_patience_counter": 1}
    assert again.callback_handler.callbacks[1].early_stopping_patience == 9


# ---- losses that are not finite


class Explodes(Line):
    """Gives NaN as its third loss, with a gradient that is whole."""

    calls = 0

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        found = super().forward(x, labels)
        if self.training:
            self.calls += 1
            found["loss"] = found["loss"] + (float("nan") if self.calls == 3 else 0.0)
        return found


@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_filter_of_nan_that_was_asked_for_logs_as_the_original_and_shows_the_truth_beside_it(
    every: int, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    import transformers

    def logged(library: Any) -> Any:
        torch.manual_seed(0)
        args = library.TrainingArguments(
            str(tmp_path), use_cpu=True, disable_tqdm=True, max_steps=4, logging_steps=every, save_strategy="no",
            logging_nan_inf_filter=True, per_device_train_batch_size=2,
        )  # fmt: skip
        made = library.Trainer(Explodes(), args, train_dataset=rows())
        made.train()
        return made.state.log_history

    ours, theirs = logged(xdpx), logged(transformers)
    assert [line.get("loss") for line in ours] == [line.get("loss") for line in theirs]
    assert ours[-1]["train_loss"] == theirs[-1]["train_loss"]
    touched = [line for line in ours if "loss_unfiltered" in line]
    assert touched
    assert all(math.isnan(line["loss_unfiltered"]) and line["nonfinite_steps"] for line in touched)
    assert math.isnan(ours[-1]["train_loss_unfiltered"])


@pytest.mark.parametrize(("words", "asked"), [([], False), (["--logging_nan_inf_filter"], True),
                                              (["--logging_nan_inf_filter", "true"], True),
                                              (["--no_logging_nan_inf_filter"], False)])  # fmt: skip
def test_a_filter_is_asked_for_only_where_the_command_line_says_so(words: list[str], asked: bool) -> None:
    parser = xdpx.HfArgumentParser(xdpx.TrainingArguments)
    (args,) = parser.parse_args_into_dataclasses(["--output_dir", "out", "--use_cpu", *words])
    assert args.filters_losses is asked
    assert args.logging_nan_inf_filter is (asked or not words)
    assert "logging_nan_inf_filter" in args.to_dict()
    assert xdpx.TrainingArguments("out", use_cpu=True).set_logging(nan_inf_filter=True).filters_losses


def test_a_copy_of_arguments_asks_for_no_filter_and_the_parser_of_the_original_reads_ours() -> None:
    transformers = pytest.importorskip("transformers")
    args = xdpx.TrainingArguments("out", use_cpu=True)
    parser = transformers.HfArgumentParser(xdpx.TrainingArguments)
    (parsed,) = parser.parse_args_into_dataclasses(["--output_dir", "out", "--use_cpu"])
    for copied in (parsed, dataclasses.replace(args, seed=1), xdpx.TrainingArguments(**args.to_dict())):
        assert copied.logging_nan_inf_filter
        assert not copied.filters_losses


# ---- checkpoints that users changed


def checkpoint_of(folder: Path) -> Path:
    trainer(folder, save_steps=2).train()
    return folder / "checkpoint-2"


def average_weights(place: Path) -> None:
    weights = load_file(place / "model.safetensors")
    save_file({name: (value + value) / 2 + 1 for name, value in weights.items()}, place / "model.safetensors")


def reshard(place: Path) -> None:
    weights, index = load_file(place / "model.safetensors"), {}
    for number, (name, value) in enumerate(weights.items(), start=1):
        index[name] = f"model-{number:05}-of-{len(weights):05}.safetensors"
        save_file({name: value}, place / index[name])
    (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (place / "model.safetensors").unlink()


CHANGES = {
    "optimizer.pt": lambda place: (place / "optimizer.pt").unlink(),
    "model.safetensors": average_weights,
    "model.safetensors: it is missing": reshard,
}


@pytest.mark.parametrize("named", CHANGES)
@pytest.mark.parametrize("by_path", [True, False])
def test_a_checkpoint_that_was_changed_on_purpose_is_named_and_used_when_so_asked(
    named: str, by_path: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = checkpoint_of(tmp_path)
    shutil.rmtree(tmp_path / "checkpoint-4")
    CHANGES[named](place)
    wanted: Any = str(place) if by_path else True
    with pytest.raises(ValueError, match=r"resume_changed='weights'"):
        trainer(tmp_path).train(resume_from_checkpoint=wanted)
    assert named in capsys.readouterr().err or by_path
    again = trainer(tmp_path, resume_changed="weights")
    again.train(resume_from_checkpoint=wanted)
    said = capsys.readouterr().err
    assert f"{place} is used as it is now: {named}" in said
    assert [line["step"] for line in again.state.log_history if "loss" in line] == [1, 2, 3, 4]


def test_averaged_weights_are_those_that_training_goes_on_with(tmp_path: Path) -> None:
    place = checkpoint_of(tmp_path)
    average_weights(place)
    again = trainer(tmp_path, resume_changed="weights", max_steps=2)
    again.train(resume_from_checkpoint=str(place))
    expected = load_file(place / "model.safetensors")
    assert all(torch.equal(value, expected[name]) for name, value in again.model.state_dict().items())


@pytest.mark.parametrize("file", ["trainer_state.json", "optimizer.pt", "model.safetensors"])
def test_damage_is_refused_also_where_changes_are_not(file: str, tmp_path: Path) -> None:
    place = checkpoint_of(tmp_path)
    content = bytearray((place / file).read_bytes())
    content = content[: len(content) // 2] if file == "model.safetensors" else content.replace(b"2", b"3", 1)
    (place / file).write_bytes(content)
    with pytest.raises(ValueError, match=f"Can't find a valid checkpoint at .*{file}"):
        trainer(tmp_path, resume_changed="weights").train(resume_from_checkpoint=str(place))


def test_the_state_of_a_run_may_not_be_removed(tmp_path: Path) -> None:
    place = checkpoint_of(tmp_path)
    (place / "trainer_state.json").unlink()
    with pytest.raises(ValueError, match=r"trainer_state.json: it is missing"):
        trainer(tmp_path, resume_changed="weights").train(resume_from_checkpoint=str(place))
