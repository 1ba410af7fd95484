import pytest

from xdpx.commands.script import main
from xdpx.config.faults import ConfigError


def run_with(folder, **settings):
    folder.mkdir()
    (folder / "args.py").write_text(repr(settings))
    return str(folder)


def test_two_runs_are_told_apart_line_by_line(tmp_path, capsys):
    left = run_with(tmp_path / "left", learning_rate=1e-3, seed=1, kl_alpha=0.5)
    right = run_with(tmp_path / "right", learning_rate=1e-4, seed=1, tolerance=3)
    assert main(["diff_params", left, right]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "-- kl_alpha: 0.5",
        "+- learning_rate: 0.001 -> 0.0001",
        "++ tolerance: 3",
    ]


def test_equal_runs_are_said_to_be_equal(tmp_path, capsys):
    left = run_with(tmp_path / "left", seed=1)
    assert main(["diff_params", left, left + "/args.py"]) == 0
    assert capsys.readouterr().out == "no parameter differs\n"


def test_a_folder_without_parameters_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no args\.py"):
        main(["diff_params", str(tmp_path), str(tmp_path)])
