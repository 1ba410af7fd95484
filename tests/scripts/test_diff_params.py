import json

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
        "++ tolerance: 3",
        "+- learning_rate: 0.001 -> 0.0001",
    ]


def test_equal_runs_are_said_to_be_equal(tmp_path, capsys):
    left = run_with(tmp_path / "left", seed=1)
    assert main(["diff_params", left, left + "/args.py"]) == 0
    assert capsys.readouterr().out == "no parameter differs\n"


def test_a_resumed_run_is_compared_with_what_it_trains_by_now(tmp_path, capsys):
    left, right = (run_with(tmp_path / name, seed=1, clip_norm=5.0) for name in ("left", "right"))
    (tmp_path / "right/args.resume-60.py").write_text(repr({"seed": 1, "clip_norm": 1.0}))
    assert main(["diff_params", left, right]) == 0
    assert capsys.readouterr().out == "+- clip_norm: 5.0 -> 1.0\n"


def test_a_folder_without_parameters_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"contains no args\.py"):
        main(["diff_params", str(tmp_path), str(tmp_path)])


def test_a_config_is_compared_with_its_defaults_filled_in(tmp_path, capsys):
    config = tmp_path / "train.hjson"
    keys = {
        "data_dir": "d",
        "save_dir": "s",
        "max_epoch": 1,
        "batch_size": 8,
        "eval_interval": 5,
        "processor": "single",
    }
    keys |= {"major_metric": "acc", "learning_rate": 0.1, "model": "cls_cnn", "loss": "cross_entropy", "max_len": 9}
    keys |= {"embedding_dim": 4, "hidden_size": 4, "vocab_size": 9, "num_classes": 2, "pad_index": 0}
    config.write_text(json.dumps(keys))
    assert main(["diff_params", run_with(tmp_path / "run", **keys, clip_norm=1.0), str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "+- clip_norm: 1.0 -> 5.0" in lines
    assert not [line for line in lines if "batch_size" in line]


def test_a_config_of_several_runs_is_refused(tmp_path):
    (tmp_path / "loop.hjson").write_text("[{seed: 1\n}\n{seed: 2\n}]")
    with pytest.raises(ConfigError, match="describes 2 runs"):
        main(["diff_params", str(tmp_path / "loop"), str(tmp_path / "loop")])
