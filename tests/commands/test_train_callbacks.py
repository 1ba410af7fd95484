"""x-train with callbacks that were written for the Trainer, as a user lists them in a config."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xdpx import TrainerCallback
from xdpx import run as door
from xdpx.trainer.hooks import callbacks, listed, register
from xdpx.training.status import read_status

BASE: dict[str, Any] = {
    "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8, "hidden_size": 8, "max_update": 12,
    "batch_size": 16, "update_freq": 2, "learning_rate": 0.01, "eval_interval": 6, "major_metric": "acc",
    "log_interval": 3,
}  # fmt: skip
MODULE = """
from xdpx import TrainerCallback
from xdpx.trainer.hooks import register


@register("thrifty")
class Thrifty(TrainerCallback):
    def __init__(self, steps=5):
        self.steps = steps

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= self.steps:
            control.should_training_stop = True


class Failing(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        raise RuntimeError("the tracker is gone")
"""


Start = Callable[..., int]


@pytest.fixture
def start(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start x-train with the given keys in `tmp_path`, where a user's module lies; gives its exit code."""
    monkeypatch.chdir(tmp_path)
    name = f"mine_{abs(hash(tmp_path))}"
    (tmp_path / "user/modules").mkdir(parents=True)
    (tmp_path / f"user/modules/{name}.py").write_text(MODULE)

    def train(save_dir: str = "run", **keys: Any) -> int:
        keys = json.loads(json.dumps(keys).replace("mine:", f"{name}:"))
        config = {**BASE, "data_dir": str(data), "save_dir": save_dir, "__parent__": f"{data}/meta", **keys}
        Path("train.json").write_text(json.dumps(config))
        return door.main(["x-train", "train.json"])

    yield train
    callbacks._loaded.pop("thrifty", None)  # each test brings the module again


def step_of(folder: str = "run") -> int:
    status = read_status(folder)
    assert status is not None
    return status.step


def test_a_registered_callback_is_listed_by_its_name_or_with_arguments(start: Start) -> None:
    assert start(callbacks=["thrifty"]) == 0
    assert step_of() == 5
    assert start("other", callbacks=[{"thrifty": {"steps": 3}}]) == 0
    assert step_of("other") == 3


@pytest.mark.parametrize("name", ["freeze", "neftune", "xdpx.tasks.fine_tuning:NoisyEmbeddings"])
def test_what_changes_the_model_is_refused_where_jax_computes_it(name: str) -> None:
    entry = {name: {"until": {"top": None}}} if name == "freeze" else name
    assert not list(listed.faults_of([entry, "jsonl"], engine="pytorch"))
    (fault,) = listed.faults_of([entry, "jsonl"], engine="spmd")
    assert fault.key == "callbacks"
    assert str(fault).count(name) == 1
    assert "engine: pytorch" in str(fault)


def test_a_class_in_any_module_is_listed_by_its_dotted_name(start: Start) -> None:
    assert start(callbacks=[{"xdpx:EarlyStoppingCallback": {"early_stopping_threshold": 9.0}}], eval_interval=2) == 0
    assert step_of() == 4


def test_shipped_trackers_write_what_is_logged(start: Start) -> None:
    assert start(callbacks=["jsonl"]) == 0
    rows = [json.loads(line) for line in Path("run/logs.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == [3, 6, 9, 12]
    assert [row["step"] for row in rows if "eval_acc" in row] == [6, 12]


def test_an_error_in_a_callback_names_it_and_its_event(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(callbacks=["mine:Failing"]) == 1
    assert "Failing.on_log" in capsys.readouterr().err


@pytest.mark.parametrize(("entry", "says"), [
    ("thrfity", "Did you mean 'thrifty'"),
    ({"thrifty": {"stepps": 3}}, "unexpected keyword argument 'stepps'"),
    ("nowhere.at_all:Thing", "nowhere.at_all is not one of your modules"),
    ("xdpx.nowhere:Thing", "xdpx.nowhere cannot be imported"),
    ("mine:Missing", "has no 'Missing'"),
    ("json:JSONDecoder", "json is not one of your modules"),
    ("xdpx:TrainingArguments", "has no event"),
    ({"thrifty": {}, "jsonl": {}}, "one name per entry"),
])  # fmt: skip
def test_what_cannot_be_a_callback_is_refused_before_anything_is_trained(
    start: Start, capsys: pytest.CaptureFixture[str], entry: Any, says: str
) -> None:
    assert start(callbacks=[entry]) == 2
    assert says in capsys.readouterr().err
    assert not Path("run").exists()


def test_a_callback_named_as_a_tracker_is_told_where_it_belongs(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(report_to=["thrifty"]) == 2
    assert "no tracker is called 'thrifty'" in (told := capsys.readouterr().err)
    assert "List thrifty under callbacks, where it is registered." in told


class Reader(TrainerCallback):
    """Keeps what it was given."""

    seen: dict[str, Any] = {}

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        gradients = [weight.grad is not None for weight in kwargs["model"].parameters()]
        type(self).seen |= {"args": args, "optimizer": kwargs["optimizer"], "gradients": all(gradients)}

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        type(self).seen["substeps"] = type(self).seen.get("substeps", 0) + 1


def test_callbacks_read_arguments_model_and_optimizer_as_in_the_trainer(start: Start) -> None:
    if "reader" not in callbacks:
        register("reader")(Reader)
    assert start(callbacks=["reader"], max_update=4) == 0
    seen, args = Reader.seen, Reader.seen["args"]
    assert (args.per_device_train_batch_size, args.gradient_accumulation_steps, args.max_steps) == (16, 2, 4)
    assert (args.output_dir, args.metric_for_best_model, args.greater_is_better) == ("run", "acc", True)
    assert (args.eval_steps, args.logging_steps, args.hidden_size) == (6, 3, 8)
    assert json.loads(args.to_json_string())["learning_rate"] == 0.01
    assert seen["gradients"]
    assert seen["substeps"] == 4
    assert seen["optimizer"].param_groups[0]["lr"] > 0
    with pytest.raises(AttributeError, match="hiden_size"):
        _ = args.hiden_size


def test_a_run_with_callbacks_is_resumed_exactly(start: Start) -> None:
    stop = [{"early_stopping": {"early_stopping_patience": 50}}]
    common = {"callbacks": stop, "save_full_checkpoint": True, "eval_interval": 2}
    assert start("straight", **common) == 0
    assert start("broken", train_steps=6, **common) == 0
    assert start("broken", resume=True, **common) == 0
    straight, broken = (Path(f"{name}/valid.log.tsv").read_text().splitlines() for name in ("straight", "broken"))
    columns = straight[0].split("\t")
    wanted = [columns.index(name) for name in ("step", "valid_acc", "valid_loss", "best_score")]
    assert [[row.split("\t")[at] for at in wanted] for row in broken] == [
        [row.split("\t")[at] for at in wanted] for row in straight
    ]
