import numpy as np

from xdpx.reports.following import Place, ends_of, follow

HEADER = "epoch\tstep\tloss\tlr\n"


def rows(first, last):
    return "".join(f"1\t{step}\t{1 / step:.6g}\t0.1\n" for step in range(first, last + 1))


def test_only_what_was_added_is_read_the_second_time(tmp_path):
    path = tmp_path / "train.log.tsv"
    path.write_text(HEADER + rows(1, 3) + "1\t4\t0.2")
    first = follow(str(path), {"loss"})
    assert first.anew
    assert list(first.columns) == ["epoch", "step", "loss"]
    assert first.columns["step"].tolist() == [1, 2, 3]
    path.write_text(HEADER + rows(1, 5))
    second = follow(str(path), {"loss"}, Place.read(str(first.place)))
    assert not second.anew
    assert second.columns["step"].tolist() == [4, 5]
    third = follow(str(path), {"loss"}, second.place)
    assert third.place == second.place
    assert not third.columns


def test_a_log_that_was_cut_back_or_got_a_column_is_read_anew(tmp_path):
    path = tmp_path / "train.log.tsv"
    path.write_text(HEADER + rows(1, 9))
    place = follow(str(path), {"loss"}).place
    path.write_text(HEADER + rows(1, 4) + rows(5, 12).replace("0.1\n", "0.2\n"))
    again = follow(str(path), {"loss"}, place)
    assert again.anew
    assert again.columns["step"].tolist() == list(range(1, 13))
    wider = HEADER.replace("\n", "\tusage\n") + rows(1, 13).replace("\n", "\t7\n")
    path.write_text(wider)
    again = follow(str(path), {"usage"}, again.place)
    assert again.anew
    assert again.columns["usage"].tolist() == [7] * 13


def test_steps_that_were_walked_again_replace_the_first_ones(tmp_path):
    path = tmp_path / "train.log.tsv"
    path.write_text(HEADER + rows(1, 6) + rows(4, 8))
    assert follow(str(path), ()).columns["step"].tolist() == list(range(1, 9))


def test_a_second_header_holds_for_the_rows_after_it(tmp_path):
    path = tmp_path / "valid.log.tsv"
    path.write_text("epoch\tstep\tacc\n1\t1\t0.5\nepoch\tstep\tloss\tacc\n1\t2\t3\t0.6\n")
    first = follow(str(path), {"acc"})
    assert first.columns["acc"].tolist() == [0.5, 0.6]
    with path.open("a") as file:
        file.write("1\t3\t2\t0.7\n")
    assert follow(str(path), {"acc"}, first.place).columns["acc"].tolist() == [0.7]


def test_a_long_log_is_thinned_and_keeps_its_spike(tmp_path):
    path = tmp_path / "train.log.tsv"
    lines = [f"1\t{step}\t{100 if step == 31_313 else 1}\t0.1\n" for step in range(1, 60_001)]
    path.write_text(HEADER + "".join(lines))
    found = follow(str(path), {"loss"})
    assert len(found.columns["step"]) < 30_000
    assert found.columns["loss"].max() == 100
    with path.open("a") as file:
        file.write("1\t60001\t2\t0.1\n")
    assert follow(str(path), {"loss"}, found.place).columns["step"].tolist() == [60_001]


def test_a_file_that_is_no_log_has_no_rows(tmp_path):
    path = tmp_path / "train.log.tsv"
    path.write_bytes(bytes(range(256)) * 40)
    assert not follow(str(path), {"loss"}).columns
    assert ends_of(str(path)) == ([], [])


def test_a_cell_that_is_no_number_is_nan(tmp_path):
    path = tmp_path / "train.log.tsv"
    path.write_text(HEADER + "1\t1\tzork\t0.1\n1\t2\n")
    assert np.isnan(follow(str(path), {"loss"}).columns["loss"]).all()


def test_the_ends_of_a_log_are_its_header_and_its_last_whole_row(tmp_path):
    path = tmp_path / "train.log.tsv"
    path.write_text(HEADER + rows(1, 9000) + "1\t9001")
    names, cells = ends_of(str(path), most=4096)
    assert names == ["epoch", "step", "loss", "lr"]
    assert cells[1] == "9000"
    path.write_text(HEADER)
    assert ends_of(str(path)) == (names, [])


def test_an_end_that_begins_within_a_row_is_looked_at_further_back(tmp_path):
    path = tmp_path / "train.log.tsv"
    path.write_text(HEADER + rows(1, 9) + "1\t9\t0.125\t" + "0" * 5000 + "7.5\n1\t10")
    assert ends_of(str(path))[1][:3] == ["1", "9", "0.125"]
    path.write_text(HEADER + "1\t2\t3\t4" * 2000 + "\n1\t10")
    assert ends_of(str(path), most=4096)[1] == []


def test_a_place_that_means_nothing_reads_from_the_beginning():
    assert Place.read("") is Place.read("1-2") is Place.read("a-b-c") is None
    assert Place.read("12-0-ff") == Place(12, 0, 255)
