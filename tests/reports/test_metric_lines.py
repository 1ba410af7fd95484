"""metrics.jsonl: lines of two phases in one file, a resumed run, a kill in the middle of a line, a full disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xdpx.reports.growing_table import GrowingTable
from xdpx.reports.metric_lines import MetricLines


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_row_of_both_tables_is_a_line_and_what_is_not_finite_is_text(tmp_path: Path) -> None:
    lines = MetricLines(str(tmp_path / "metrics.jsonl"))
    train = GrowingTable(str(tmp_path / "train.log.tsv"), lines=lines, phase="train")
    valid = GrowingTable(str(tmp_path / "valid.log.tsv"), lines=lines, phase="valid")
    train.append({"step": 1, "loss": 0.5}, more={"example": "a text\twith a tab"})
    valid.append({"step": 1, "valid_loss": float("nan"), "empty": None})
    first, second = read(tmp_path / "metrics.jsonl")
    assert (first["phase"], first["step"], first["loss"], first["example"]) == ("train", 1, 0.5, "a text\twith a tab")
    assert (second["phase"], second["valid_loss"], "empty" in second) == ("valid", "nan", False)
    assert "example" not in (tmp_path / "train.log.tsv").read_text()


def test_a_resumed_run_drops_later_lines_of_each_phase_by_itself(tmp_path: Path) -> None:
    """Evaluated at 2 and 4, saved at 3: training goes on behind 3, and the evaluation of 4 comes again."""
    path = tmp_path / "metrics.jsonl"
    lines = MetricLines(str(path))
    for step in (1, 2, 3, 4):
        lines.append("train", {"step": step})
        if step % 2 == 0:
            lines.append("valid", {"step": step})
    path.write_text(path.read_text() + '{"phase": "train", "ste')
    again = MetricLines(str(path))
    again.drop_after("train", 3)
    again.drop_after("valid", 2)
    assert [(each["phase"], each["step"]) for each in read(path)] == [
        ("train", 1), ("train", 2), ("valid", 2), ("train", 3)
    ]  # fmt: skip
    again.append("train", {"step": 4})
    assert read(path)[-1]["step"] == 4
    again.drop_after(None, -1)
    assert read(path) == []


def test_lines_of_another_program_in_a_file_of_this_name_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"acc": 1}\nnotes of mine\n')
    lines = MetricLines(str(path))
    lines.append("train", {"step": 1})
    path.write_text(path.read_text() + '{"acc": 2}')
    MetricLines(str(path)).drop_after(None, -1)
    assert path.read_text() == '{"acc": 1}\nnotes of mine\n{"acc": 2}\n'


def test_lines_of_a_remote_folder_are_there_after_a_flush() -> None:
    from xdpx.utils import io

    memory_folder = "memory://metric-lines"
    lines = MetricLines(f"{memory_folder}/metrics.jsonl")
    lines.append("train", {"step": 1})
    lines.flush()
    again = MetricLines(f"{memory_folder}/metrics.jsonl")
    again.append("train", {"step": 2})
    again.flush()
    with io.open(f"{memory_folder}/metrics.jsonl") as file:
        assert [json.loads(line)["step"] for line in file] == [1, 2]


def test_a_file_that_cannot_be_written_is_said_once_and_ends_nothing(tmp_path: Path, caplog, capsys) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    lines = MetricLines(str(tmp_path / "metrics.jsonl"))
    for step in (1, 2):
        lines.append("train", {"step": step})
    assert capsys.readouterr().err.count("Nothing more is written to") == 1


@pytest.fixture(autouse=True)
def _quiet_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDPX_CACHE_PATH", str(tmp_path / "cache"))
