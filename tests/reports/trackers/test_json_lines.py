from __future__ import annotations

import json
from datetime import datetime
from types import SimpleNamespace

import numpy as np
import torch

from xdpx.reports.trackers.json_lines import JsonLines
from xdpx.utils.io_utils import io


def _state(step=1, first=True):
    return SimpleNamespace(is_world_process_zero=first, global_step=step)


def _rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_log_is_a_line_with_its_time_and_step(tmp_path):
    args = SimpleNamespace(output_dir=str(tmp_path))
    for step in (5, 10):
        JsonLines().on_log(args, _state(step), None, logs={"loss": 1 / step})
    rows = _rows(tmp_path / "logs.jsonl")
    assert [(row["step"], row["loss"]) for row in rows] == [(5, 0.2), (10, 0.1)]
    assert datetime.fromisoformat(rows[0]["time"]).tzinfo is not None


def test_what_strict_json_does_not_know_is_text(tmp_path):
    logs = {"a": float("nan"), "b": float("-inf"), "c": np.float32(0.5), "d": torch.tensor(2), "e": [1], "f": None}
    JsonLines(tmp_path / "mine.jsonl").on_log(None, _state(), None, logs=logs)
    (row,) = _rows(tmp_path / "mine.jsonl")
    assert [row[name] for name in "abcdef"] == ["nan", "-inf", 0.5, 2, "[1]", None]


def test_a_remote_file_grows_too():
    tracker = JsonLines("memory://trackers/logs.jsonl")
    for step in (1, 2):
        tracker.on_log(None, _state(step), None, logs={})
    with io.open("memory://trackers/logs.jsonl") as file:
        assert [json.loads(line)["step"] for line in file] == [1, 2]


def test_only_the_first_process_writes(tmp_path):
    JsonLines(tmp_path / "logs.jsonl").on_log(None, _state(first=False), None, logs={"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_said_once_and_training_goes_on(tmp_path, capsys):
    tracker = JsonLines(tmp_path)
    for _ in range(2):
        tracker.on_log(None, _state(), None, logs={"loss": 1.0})
    assert capsys.readouterr().err.count(f"Nothing more is written to {tmp_path}") == 1
