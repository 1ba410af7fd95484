from __future__ import annotations

import importlib
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from xdpx.reports.trackers import tensorboard
from xdpx.reports.trackers.tensorboard import TensorBoardCallback


class Writer:
    """Keeps what TensorBoard's SummaryWriter would write."""

    def __init__(self, log_dir: str = "given") -> None:
        self.log_dir, self.rows, self.open = log_dir, [], True

    def add_scalar(self, *row: Any) -> None:
        self.rows.append(row)

    add_text = add_scalar

    def flush(self) -> None:
        self.rows.append("flushed")

    def close(self) -> None:
        self.open = False


@pytest.fixture(autouse=True)
def _writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    monkeypatch.setattr(tensorboard, "_find_writer", lambda: Writer)


def _state(**changes: Any) -> Any:
    first = {"is_world_process_zero": True, "is_hyper_param_search": False, "trial_name": None, "global_step": 7}
    return SimpleNamespace(**{**first, **changes})


ARGS = SimpleNamespace(output_dir="out", to_json_string=lambda: "{}")


def test_numbers_and_texts_are_written_below_their_phase():
    tracker = TensorBoardCallback(Writer())
    logs = {"loss": 1.5, "eval_f1": np.float32(0.5), "test_n": 3, "lr": torch.tensor([0.1]), "note": "warm"}
    tracker.on_log(ARGS, _state(), None, logs=logs)
    assert tracker.tb_writer.rows == [
        ("train/loss", 1.5, 7), ("eval/f1", 0.5, 7), ("test/n", 3, 7), ("train/lr", pytest.approx(0.1), 7),
        ("train/note", "warm", 7), "flushed",
    ]  # fmt: skip


def test_what_is_neither_is_named_once_and_left_out(capsys):
    tracker = TensorBoardCallback(Writer())
    for _ in range(2):
        tracker.on_log(ARGS, _state(), None, logs={"table_of_test": [1, 2]})
    assert capsys.readouterr().err.count("train/table_of_test is a list, not a number or text") == 1
    assert tracker.tb_writer.rows == ["flushed", "flushed"]


def test_training_begins_with_the_arguments_and_the_config_of_the_model():
    tracker = TensorBoardCallback(Writer())
    model = SimpleNamespace(config=SimpleNamespace(to_json_string=lambda: "[]"))
    tracker.on_train_begin(ARGS, _state(), None, model=model)
    assert tracker.tb_writer.rows == [("args", "{}"), ("model_config", "[]")]


def test_the_files_lie_in_the_output_folder_under_date_and_host_also_after_training():
    tracker = TensorBoardCallback()
    tracker.on_train_begin(ARGS, _state(), None)
    first = tracker.tb_writer
    assert first.log_dir.startswith("out/runs/")
    assert first.log_dir.endswith(socket.gethostname())
    tracker.on_train_end(ARGS, _state(), None)
    tracker.on_log(ARGS, _state(), None, logs={})
    assert not first.open
    assert tracker.tb_writer.log_dir == first.log_dir


def test_the_environment_names_another_folder(monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "elsewhere")
    tracker = TensorBoardCallback()
    tracker.on_log(ARGS, _state(), None, logs={})
    assert tracker.tb_writer.log_dir == "elsewhere"


def test_the_logging_dir_of_older_arguments_is_used():
    tracker = TensorBoardCallback()
    tracker.on_log(SimpleNamespace(output_dir="out", logging_dir="old"), _state(), None, logs={})
    assert tracker.tb_writer.log_dir == "old"


def test_each_trial_of_a_search_has_its_folder():
    tracker = TensorBoardCallback()
    tracker.on_train_begin(ARGS, _state(is_hyper_param_search=True, trial_name="third"), None)
    assert tracker.tb_writer.log_dir.endswith("/third")


def test_only_the_first_process_writes():
    tracker = TensorBoardCallback()
    tracker.on_train_begin(ARGS, _state(is_world_process_zero=False), None)
    tracker.on_log(ARGS, _state(is_world_process_zero=False), None, logs={"loss": 1.0})
    assert tracker.tb_writer is None


def test_without_the_package_it_is_refused_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(tensorboard, "WRITERS", ("there_is_no_such_package",))
    with pytest.raises(RuntimeError, match="pip install tensorboard"):
        TensorBoardCallback()


def test_the_real_files_hold_the_scalars(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    args = SimpleNamespace(output_dir=str(tmp_path), to_json_string=lambda: "{}")
    tracker = TensorBoardCallback()
    tracker.on_train_begin(args, _state(), None)
    tracker.on_log(args, _state(), None, logs={"eval_loss": 0.25})
    tracker.on_train_end(args, _state(), None)
    (folder,) = (tmp_path / "runs").iterdir()
    found = reading.EventAccumulator(str(folder)).Reload()
    assert [(one.step, one.value) for one in found.Scalars("eval/loss")] == [(7, 0.25)]


def test_files_are_written_without_importing_tensorflow() -> None:
    pytest.importorskip("tensorboard")
    tensorboard._spare_tensorflow()
    if "tensorflow" not in sys.modules:
        assert importlib.import_module("tensorboard.compat").tf.__version__ == "stub"


def test_the_writer_without_torch_writes_what_torch_would(tmp_path, monkeypatch) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    writing = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    torchs = pytest.importorskip("torch.utils.tensorboard").SummaryWriter
    # Files of one second are read by their number in this process, as text: the tenth before the ninth.
    monkeypatch.setattr(writing, "_global_uid", writing.AtomicCounter(0))
    found = []
    for name, kind in (("plain", tensorboard.PlainWriter), ("torch", torchs)):
        for purge_step, value in ((None, 0.25), (4, 0.5)):  # a job, and its restart from step 3
            writer = kind(str(tmp_path / name), purge_step=purge_step)
            for step in (3, 4) if purge_step is None else (4,):
                writer.add_scalar("loss", value, step)
            writer.add_text("Model", "a `layer`", 4)
            writer.flush()
            writer.close()
        read = reading.EventAccumulator(str(tmp_path / name)).Reload()
        texts = [(one.step, one.tensor_proto.string_val[:]) for one in read.Tensors("Model/text_summary")]
        plugin = read.SummaryMetadata("Model/text_summary").plugin_data.plugin_name
        found.append(([(one.step, one.value) for one in read.Scalars("loss")], texts, plugin))
    assert found[0] == found[1]
    assert found[0][0] == [(3, 0.25), (4, 0.5)]


def test_summaries_of_a_job_do_not_load_torch(tmp_path) -> None:
    pytest.importorskip("tensorboard")
    code = (
        "import sys; from xdpx.reports.trackers.tensorboard import new_writer\n"
        f"writer = new_writer({str(tmp_path)!r}); writer.add_scalar('loss', 1.0, 1); writer.add_text('a', 'b', 1)\n"
        "writer.close(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
