import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from xdpx.reports.run_logs import LogTable, read_run, read_table


def table_of(folder: Path, text: str) -> LogTable:
    (folder / "train.log.tsv").write_text(text)
    return read_table(str(folder / "train.log.tsv"))


def test_a_run_is_read_from_its_folder(make_run):
    run = read_run(make_run())
    assert run.valid["step"].tolist() == [50, 100, 150, 200, 250, 300, 350, 400]
    assert run.samples_per_step == 32
    assert run.valid.row(0)["valid_acc"] == 0.5


def test_the_first_of_equally_good_evaluations_is_best(make_run):
    assert read_run(make_run(scores=(0.5, 0.9, 0.9))).best_row == 1
    assert read_run(make_run("down", scores=(0.5, 0.2, 0.9), ascending_metric=False)).best_row == 1


def test_a_score_that_is_not_a_number_is_never_best(make_run):
    assert read_run(make_run(scores=(0.5, float("nan"), 0.4))).best_row == 0
    assert read_run(make_run("none", scores=(float("nan"),))).best_row is None


def test_the_best_evaluation_is_one_since_the_best_score_was_reset_as_the_best_weights_are(make_run):
    folder = Path(make_run(scores=(0.5, 0.9, 0.4, 0.6, 0.6)))
    text = (folder / "valid.log.tsv").read_text()
    lines = [line.rpartition("\t")[0] for line in text.splitlines()]
    so_far = ("best_score", 0.5, 0.9, 0.4, 0.6, 0.6)
    rows = [f"{line}\t{best}\n" for line, best in zip(lines, so_far, strict=True)]
    (folder / "valid.log.tsv").write_text("".join(rows))
    assert read_run(str(folder)).best_row == 3


def test_the_best_evaluation_is_one_since_the_reset_even_if_one_before_it_was_as_good(tmp_path):
    rows = ["epoch\tstep\tbest_score\tbest_step", "1\t10\t0.9\t", "1\t20\t0.9\t20", "1\t30\t0.9\t20"]
    (tmp_path / "valid.log.tsv").write_text("".join(f"{row}\n" for row in rows))
    assert read_run(str(tmp_path)).best_row == 1


def test_a_run_without_logs_is_empty_and_not_an_error(tmp_path):
    run = read_run(str(tmp_path))
    assert (len(run.train), len(run.valid), run.best_row, run.samples_per_step) == (0, 0, None, None)


def test_a_line_that_is_still_being_written_is_left_out(tmp_path):
    table = table_of(tmp_path, "epoch\tstep\tloss\n1\t10\t0.5\n1\t20\t0.2")
    assert table["step"].tolist() == [10]


def test_a_cell_nobody_wrote_is_nan_and_does_not_shift_its_row(tmp_path):
    table = table_of(tmp_path, "epoch\tstep\tloss\tacc\n1\t10\t\t0.5\n1\t20\t0.2\n1\t30\tx\t0.6\n")
    assert np.isnan(table["loss"]).tolist() == [True, False, True]
    assert np.isnan(table["acc"]).tolist() == [False, True, False]
    assert table.row(0) == {"epoch": 1, "step": 10, "acc": 0.5}


def test_a_second_header_adds_columns_from_there_on(tmp_path):
    table = table_of(tmp_path, "epoch\tstep\tloss\n1\t10\t0.5\nepoch\tstep\tlate\tloss\n1\t20\t7\t0.4\n")
    assert table["loss"].tolist() == [0.5, 0.4]
    assert np.isnan(table["late"][0])
    assert table["late"][1] == 7


def test_steps_walked_again_after_a_resume_replace_the_first_ones(tmp_path):
    table = table_of(tmp_path, "epoch\tstep\tloss\n1\t10\t1\n1\t20\t2\n1\t30\t3\n1\t20\t4\n1\t30\t5\n")
    assert table["loss"].tolist() == [1, 4, 5]


@pytest.mark.parametrize("text", ["", "epoch\tstep\tloss\n", "epoch\tste", "noise\n\n"])
def test_a_log_without_rows_is_an_empty_table(tmp_path, text):
    assert len(table_of(tmp_path, text)) == 0


def test_a_log_that_grew_is_read_again(tmp_path):
    path = tmp_path / "valid.log.tsv"
    path.write_text("epoch\tstep\n1\t10\n")
    assert len(read_table(str(path))) == 1
    path.write_text("epoch\tstep\n1\t10\n1\t20\n")
    assert len(read_table(str(path))) == 2


def test_logs_are_read_from_a_store_as_from_a_disk(make_run):
    from xdpx.utils import io

    io.copytree(make_run(), "memory://reports/run")
    run = read_run("memory://reports/run")
    assert run.best_row == 3
    assert run.settings["clip_norm"] == 5.0


def long_log(path, rows, *, columns=("loss", "acc"), seed=0):
    drawn = np.random.default_rng(seed).normal(size=(rows, len(columns)))
    head = "\t".join(["epoch", "step", *columns])
    lines = [f"{1 + row // 1000}\t{row + 1}\t" + "\t".join(f"{v:.9g}" for v in drawn[row]) for row in range(rows)]
    path.write_text("\n".join([head, *lines, ""]))
    return drawn


def test_a_long_log_is_thinned_to_rows_that_hold_every_extreme(tmp_path, monkeypatch):
    monkeypatch.setattr("xdpx.reports.run_logs.BLOCK", 10_000)
    path = tmp_path / "train.log.tsv"
    drawn = long_log(path, 60_000)
    exact, thinned = read_table(str(path)), read_table(str(path), thinned=True)
    assert len(exact) == 60_000
    assert len(thinned) < 30_000
    assert set(thinned["step"]) <= set(exact["step"])
    for column, name in enumerate(("loss", "acc")):
        for stretch in np.array_split(np.arange(60_000), 100):
            values = thinned[name][np.isin(thinned["step"], stretch + 1)]
            inside = drawn[stretch[60:-60], column]  # beyond, a row of the next stretch may stand for it
            assert values.min() <= inside.min() + 1e-6
            assert values.max() >= inside.max() - 1e-6
    begins = np.flatnonzero(np.diff(thinned["epoch"]))
    assert (thinned["step"][begins + 1] - thinned["step"][begins]).tolist() == [1] * 59
    assert (thinned["step"][0], thinned["step"][-1]) == (1, 60_000)


def test_a_short_log_is_never_thinned(tmp_path):
    path = tmp_path / "train.log.tsv"
    long_log(path, 500)
    assert read_table(str(path), thinned=True)["step"].tolist() == list(range(1, 501))


def test_a_long_log_is_read_in_bounded_memory(tmp_path):
    path = tmp_path / "train.log.tsv"
    path.write_text("epoch\tstep\tloss\tacc\n" + "".join(f"1\t{step}\t0.5\t0.{step}\n" for step in range(1, 200_001)))
    tracemalloc.start()
    table = read_table(str(path), thinned=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table["step"][-1] == 200_000
    assert peak < 40 << 20


def test_a_byte_that_is_no_text_costs_its_cell_only(tmp_path):
    path = tmp_path / "train.log.tsv"
    path.write_bytes(b"epoch\tstep\tloss\n1\t1\t0.\xff5\n1\t2\t0.25\n")
    table = read_table(str(path))
    assert np.isnan(table["loss"]).tolist() == [True, False]


def test_damaged_settings_do_not_hide_the_logs(make_run, capsys):
    folder = make_run()
    with open(f"{folder}/args.py", "ab") as args_file:
        args_file.write(b"\xff")
    run = read_run(folder)
    assert (len(run.valid), run.settings) == (8, {})
    assert "args.py is not used" in capsys.readouterr().err
