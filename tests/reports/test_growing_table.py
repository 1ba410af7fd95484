import tracemalloc
from pathlib import Path

import pytest

from xdpx.reports.growing_table import BLOCK, GrowingTable
from xdpx.reports.run_tables import train_row, valid_row
from xdpx.reports.windows import Window


def test_a_column_that_comes_later_shifts_no_cell(tmp_path: Path) -> None:
    path = tmp_path / "log.tsv"
    table = GrowingTable(str(path))
    table.append({"step": 1, "loss": 0.5})
    table.append({"step": 2, "loss": 0.25, "gate": 7.0})
    table.append({"step": 3, "loss": 0.125})
    assert path.read_text() == "step\tloss\tgate\n1\t0.5\t\n2\t0.25\t7\n3\t0.125\t\n"


def test_a_name_or_a_text_of_a_user_makes_no_further_cells(tmp_path: Path) -> None:
    path = tmp_path / "log.tsv"
    table = GrowingTable(str(path))
    table.append({"step": 1, "my\tmetric": 0.5, "a\nb": "x\ty\r\nz"})
    table.append({"step": 2, "my\tmetric": 0.25})
    assert path.read_text() == "step\tmy metric\ta b\n1\t0.5\tx y z\n2\t0.25\t\n"


def test_a_number_of_a_user_takes_no_column_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    window = Window()
    metrics = {"loss": 1.0, "step": 9.0, "share": 0.5}
    row = train_row(1, 7, window, metrics=metrics, last={"learning_rate": 0.1})
    assert (row["step"], row["own_step"], row["share"], row["lr"]) == (7, 9.0, 0.5, 0.1)
    more = {"valid_acc": 0.0, "best_score": 0.0, "mine": 2.0}
    row = valid_row(1, 7, window, train_wall=0.0, train=metrics, valid={"acc": 0.75}, more=more, best_score=0.75)
    assert (row["step"], row["valid_acc"], row["best_score"], row["mine"]) == (7, 0.75, 0.75, 2.0)
    assert (row["own_valid_acc"], row["own_best_score"]) == (0.0, 0.0)
    assert "logging best_score as own_best_score, valid_acc as own_valid_acc" in capsys.readouterr().err


def test_rows_of_later_steps_are_dropped_and_a_torn_last_line_too(tmp_path: Path) -> None:
    path = tmp_path / "log.tsv"
    path.write_text("step\tloss\n1\t0.5\n2\t0.4\n3\t0.3\n4\t0.")
    table = GrowingTable(str(path))
    assert table.drop_after(2) == 1
    table.append({"step": 3, "loss": 0.35})
    assert path.read_text() == "step\tloss\n1\t0.5\n2\t0.4\n3\t0.35\n"


def test_a_table_on_a_store_is_whole_after_a_flush() -> None:
    table = GrowingTable("memory://tables/log.tsv")
    table.append({"step": 1})
    table.append({"step": 2})
    table.flush()
    assert GrowingTable("memory://tables/log.tsv").columns == ["step"]
    assert GrowingTable("memory://tables/log.tsv").drop_after(0) == 2


def test_a_long_log_is_continued_from_its_end_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "log.tsv"
    path.write_text("epoch\tstep\tloss\n" + "".join(f"1\t{step}\t0.123456789\n" for step in range(1, 300_001)))
    tracemalloc.start()
    table = GrowingTable(str(path))
    assert table.drop_after(299_990) == 10
    table.append({"epoch": 1, "step": 299_991, "loss": 0.5})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * BLOCK
    with path.open() as log_file:
        lines = log_file.readlines()
    assert (len(lines), lines[-2], lines[-1]) == (299_992, "1\t299990\t0.123456789\n", "1\t299991\t0.5\n")


def test_rows_are_dropped_across_the_borders_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xdpx.reports.growing_table.BLOCK", 7)
    for kept in range(12):
        path = tmp_path / f"{kept}.tsv"
        rows = [f"{step}\t{'x' * step}\n" for step in range(1, 12)]
        path.write_text("".join(["step\tname\n", *rows, "12\tto"]))
        assert GrowingTable(str(path)).drop_after(kept) == 11 - kept
        assert path.read_text() == "".join(["step\tname\n", *rows[:kept]])


def test_a_log_with_a_byte_that_is_no_text_goes_on_with_its_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "log.tsv"
    path.write_bytes(b"step\tloss\n1\t0.5\n2\t0.\xff4\n3\t0.3\n4\t\x00\n")
    table = GrowingTable(str(path))
    table.append({"step": 5, "loss": 0.1})
    assert path.read_text() == "step\tloss\n1\t0.5\n3\t0.3\n5\t0.1\n"
    assert (tmp_path / "log.tsv.damaged-1").read_bytes().endswith(b"4\t\x00\n")


def test_a_log_with_letters_of_any_language_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xdpx.reports.growing_table.BLOCK", 3)
    path = tmp_path / "log.tsv"
    path.write_text("step\t准确率\n1\t0.5\n", encoding="utf-8")
    assert GrowingTable(str(path)).columns == ["step", "准确率"]
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_log_that_is_a_link_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("step\tloss\n1\t0.5\n2\t0.4\n")
    (tmp_path / "log.tsv").symlink_to(tmp_path / "victim")
    table = GrowingTable(str(tmp_path / "log.tsv"))
    assert table.drop_after(0) == 0
    table.append({"step": 7})
    assert (tmp_path / "log.tsv").read_text() == "step\n7\n"
    assert (tmp_path / "victim").read_text() == "step\tloss\n1\t0.5\n2\t0.4\n"
