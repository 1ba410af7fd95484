import struct
from pathlib import Path

import pytest

from tests.reports.conftest import write_run
from xdpx.reports import fonts
from xdpx.reports.figures import _drawn_runs, draw_run


def size_of(path):
    return struct.unpack(">II", Path(path).read_bytes()[16:24])


def names(files):
    return sorted(Path(path).name for path in files)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Return the folder of a run, and the files of its figures with their bytes."""
    run = write_run(tmp_path_factory.mktemp("drawn") / "run")
    return run, {path: Path(path).read_bytes() for path in draw_run(run)}


def test_every_column_of_a_run_gets_its_figure(drawn):
    _, files = drawn
    expected = ["acc.png", "clip.png", "f1.png", "gnorm.png", "loss.png", "lr.png", "usage.png"]
    assert names(files) == expected
    assert all(size_of(path)[0] >= 800 for path in files)
    assert all("/plots/" in path for path in files)


def test_references_change_the_figures_and_a_reference_without_logs_is_left_out(drawn, make_run, tmp_path):
    (own, alone), other = drawn, make_run("other", batch_size=64)
    beside = draw_run(own, label="mine", references={"twice": other, "nothing": str(tmp_path / "no")})
    assert all(Path(path).read_bytes() != before for path, before in zip(beside, alone.values(), strict=True))


def test_drawing_the_same_logs_twice_gives_the_same_bytes(drawn):
    run, first = drawn
    assert {path: Path(path).read_bytes() for path in draw_run(run)} == first


@pytest.mark.parametrize("options", [{"walltime": True, "figext": "svg"}, {"figext": "pdf"}])
def test_every_option_draws(make_run, options):
    files = draw_run(make_run(), references={"base": make_run("base")}, **options)
    assert len(files) == 7
    assert all(path.endswith(options.get("figext", "png")) for path in files)


def test_a_run_before_its_first_evaluation_shows_its_training(make_run):
    run = make_run()
    (Path(run) / "valid.log.tsv").unlink()
    assert names(draw_run(run)) == ["clip.png", "gnorm.png", "loss.png", "lr.png", "usage.png"]


def test_a_run_with_a_single_row_or_no_logs_does_not_stop_anybody(make_run, tmp_path):
    assert names(draw_run(make_run(scores=(0.5,))))
    (tmp_path / "empty").mkdir()
    assert draw_run(str(tmp_path / "empty")) == []


def test_labels_no_font_can_draw_are_replaced_without_noise(make_run, recwarn):
    draw_run(make_run("own"), label="\U0010fffd", references={"变体1": make_run("variant"), "a$b_{": make_run("b")})
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_runs_of_one_name_are_told_apart_in_the_legend(make_run):
    for first, second in (("a/run", "b/run"), (f"a/{'x' * 30}/{'y' * 30}/run", f"b/{'x' * 30}/{'y' * 30}/run")):
        own, other = make_run(first), make_run(second)
        labels = {run.label for run in _drawn_runs(own, None, {"run": other}, walltime=False)}
        assert len(labels) == 2


def test_a_label_falls_back_on_the_folder_and_then_on_a_number():
    assert fonts.drawable_label(["\U0010fffd", "folder"], otherwise="reference 1") == "folder"
    assert fonts.drawable_label(["\U0010fffd"], otherwise="reference 1") == "reference 1"
    assert len(fonts.drawable_label(["x" * 100], otherwise="")) <= 41


def test_a_summary_with_odd_letters_in_its_name_stays_inside_the_folder(make_run):
    run = Path(make_run())
    text = (run / "train.log.tsv").read_text().replace("usage", "../a b/c")
    (run / "train.log.tsv").write_text(text)
    files = draw_run(str(run))
    assert {Path(path).parent for path in files} == {run / "plots"}


def test_figures_are_written_to_a_store(make_run):
    from xdpx.utils import io

    io.copytree(make_run(), "memory://figures/run")
    files = draw_run("memory://figures/run")
    assert len(files) == 7
    assert io.size(files[0]) > 5000


def test_a_picture_of_runs_in_different_units_says_so(make_run, capsys):
    old = make_run("old", loss="cross_entropy")
    new = make_run("new", loss="cross_entropy", loss_unit="nats")
    (svg,) = [path for path in draw_run(new, references={"old": old}, figext="svg") if "loss" in path]
    assert "loss: this run is in nats, but old in bits" in capsys.readouterr().err
    alone = [path for path in draw_run(old, figext="svg") if "loss" in path]
    assert "<!-- bits -->" in Path(alone[0]).read_text()
    assert svg.endswith("loss.svg")


def test_a_metric_equal_to_another_in_every_evaluation_is_no_second_picture(make_run):
    run = make_run(scores=(0.5, 0.6, 0.7))
    log = Path(run) / "valid.log.tsv"
    header, *rows = log.read_text().splitlines()
    place = header.split("\t").index("valid_acc")
    lines = [f"{header}\tvalid_micro_f1", *(f"{row}\t{row.split(chr(9))[place]}" for row in rows)]
    log.write_text("".join(f"{line}\n" for line in lines))
    assert "micro_f1.png" not in names(draw_run(run))


def test_updates_that_were_never_clipped_are_no_picture(make_run):
    run = make_run()
    log = Path(run) / "train.log.tsv"
    header, *rows = [line.split("\t") for line in log.read_text().splitlines()]
    for row in rows:
        row[header.index("clip")] = "0"
    log.write_text("".join("\t".join(row) + "\n" for row in (header, *rows)))
    assert "clip.png" not in names(draw_run(run))


def test_names_of_summaries_that_no_font_can_draw_or_that_give_one_file_name_all_have_their_figure(make_run, recwarn):
    run = Path(make_run())
    header, *rows = (run / "train.log.tsv").read_text().splitlines()
    odd = ["a/b", "a_b", "\U0010fffd1", "\U0010fffd2"]
    lines = ["\t".join([header, *odd]), *("\t".join([row, "1", "2", "3", "4"]) for row in rows)]
    (run / "train.log.tsv").write_text("\n".join(lines) + "\n")
    files = draw_run(str(run))
    assert len(set(files)) == len(files)
    assert len([name for name in names(files) if name.startswith("a_b")]) == 2
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]
