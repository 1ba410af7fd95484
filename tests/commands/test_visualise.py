import json
from pathlib import Path

import pytest

from xdpx import run as door
from xdpx.commands.visualise import Visualise, expand
from xdpx.config.faults import ConfigError
from xdpx.config.loading import load

LOG = "epoch\tstep\ttrain_loss\tvalid_acc\tvalid_loss\tbest_score\n1\t50\t1\t0.5\t1\t0.5\n1\t100\t1\t0.6\t1\t0.6\n"


@pytest.fixture
def runs(tmp_path):
    for name in ("one", "two", "deep/three"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "valid.log.tsv").write_text(LOG)
        (tmp_path / name / "args.py").write_text(repr({"batch_size": 8, "major_metric": "acc"}))
    (tmp_path / "notes").mkdir()
    return tmp_path


def visualise(folder, **keys):
    (folder / "viz.hjson").write_text(json.dumps(keys, default=str))
    run = load(str(folder / "viz"), "x-viz", inspect=lambda run: Visualise(run).check())[0]
    Visualise(run).run()


def figures(folder):
    return sorted(path.name for path in (folder / "plots").glob("*"))


def test_one_run_is_drawn_into_its_own_folder(runs, capsys):
    visualise(runs, save_dir=runs / "one")
    assert figures(runs / "one") == ["acc.png", "loss.png"]
    assert "2 figures in" in capsys.readouterr().out


def test_a_log_that_holds_nothing_to_draw_is_said_to(runs, capsys):
    (runs / "one" / "valid.log.tsv").write_bytes(b"\xff\xfe\x00")
    visualise(runs, save_dir=runs / "one")
    assert "plots: its logs contain no row that can be drawn" in capsys.readouterr().out


def test_a_star_draws_every_run_of_a_folder_and_two_those_below(runs):
    assert expand(f"{runs}/*") == [str(runs / "one"), str(runs / "two")]
    assert expand(f"{runs}/**/*") == [str(runs / "deep/three"), str(runs / "one"), str(runs / "two")]
    visualise(runs, save_dir=f"{runs}/**/*", figext="svg")
    assert figures(runs / "deep/three") == ["acc.svg", "loss.svg"]


def test_references_may_be_a_folder_a_list_or_labelled(runs):
    for reference in (runs / "two", [runs / "two", runs / "deep/three"], {"变体": runs / "two"}):
        visualise(runs, save_dir=runs / "one", ref_dir=reference, label="mine")
    assert figures(runs / "one") == ["acc.png", "loss.png"]


def test_wall_time_can_be_the_axis(runs):
    visualise(runs, save_dir=runs / "one", walltime=True)
    assert len(figures(runs / "one")) == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"save_dir": "nowhere"}, "save_dir.*'nowhere' contains no logs. Give the folder of a run"),
        ({"save_dir": "{runs}"}, "contains no logs. For all runs below it, write '.*/[*][*]/[*]'"),
        ({"save_dir": "{runs}/one", "ref_dir": "nowhere"}, "ref_dir.*'nowhere' contains no logs"),
        ({"save_dir": "{runs}/one", "ref_dir": ["a", "b", "c", "d", "e"]}, "ref_dir.*names 5 runs"),
        ({"save_dir": "{runs}/one", "figext": "pgn"}, "figext.*Did you mean 'png'"),
        ({"save_dir": "{runs}/one", "figext": "mp3"}, "figext.*Use one of"),
        ({"save_dir": "{runs}/one", "wall_time": True}, "wall_time.*walltime"),
    ],
)
def test_what_cannot_be_drawn_is_refused(runs, keys, message):
    with pytest.raises(ConfigError, match=message):
        visualise(runs, **{**keys, "save_dir": keys["save_dir"].format(runs=runs)})


def test_the_formats_are_those_of_matplotlib():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from xdpx.reports.references import FORMATS

    assert set(FigureCanvasAgg.get_supported_filetypes()) - {"avif", "gif"} == set(FORMATS)


def test_naming_a_figure_needs_no_matplotlib():
    source = Path(__file__).resolve().parents[2] / "xdpx" / "commands" / "visualise.py"
    assert "import matplotlib" not in source.read_text()


def test_folders_on_the_line_become_one_page(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    assert door.main(["x-viz", "one", "two", "--html"]) == 0
    assert "2 on the page runs.html" in capsys.readouterr().out
    assert '"name": "two"' in (runs / "runs.html").read_text()
    assert door.main(["x-viz", "one", "--html"]) == 0
    assert (runs / "one/plots/page.html").is_file()
    assert figures(runs / "one") == ["page.html"]


def test_a_folder_on_the_line_is_drawn(runs, monkeypatch):
    monkeypatch.chdir(runs)
    assert door.main(["x-viz", "one", "deep/*"]) == 0
    assert figures(runs / "one") == figures(runs / "deep/three") == ["acc.png", "loss.png"]


def test_a_page_of_what_is_no_run_is_refused(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs)
    assert door.main(["x-viz", "one", "notes", "--html"]) == 2
    assert "'notes' contains no run" in capsys.readouterr().err
    assert door.main(["x-viz", "deep", "--html"]) == 2
    assert "write 'deep/**/*'" in capsys.readouterr().err
    assert door.main(["x-viz", "save_dir=one", "page=x.html"]) == 2
    assert "html" in capsys.readouterr().err
