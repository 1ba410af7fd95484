from pathlib import Path

from xdpx.reports.growing_table import GrowingTable


def test_a_column_that_comes_later_shifts_no_cell(tmp_path: Path) -> None:
    path = tmp_path / "log.tsv"
    table = GrowingTable(str(path))
    table.append({"step": 1, "loss": 0.5})
    table.append({"step": 2, "loss": 0.25, "gate": 7.0})
    table.append({"step": 3, "loss": 0.125})
    assert path.read_text() == "step\tloss\tgate\n1\t0.5\t\n2\t0.25\t7\n3\t0.125\t\n"


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
