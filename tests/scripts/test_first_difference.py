"""The first step, checkpoint and tensor in which two runs differ are named, whichever door trained them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from xdpx.checkpoints import trusted
from xdpx.commands.script import main
from xdpx.config.faults import ConfigError
from xdpx.utils import io

Weights = Mapping[int, Mapping[str, torch.Tensor]]
ONES = {"layer.weight": torch.ones(2, 3), "layer.bias": torch.zeros(2)}
CHANGED = {**ONES, "layer.weight": torch.tensor([[1.0, 1, 1], [1, 1.25, 1]])}


def x_train_run(folder: Path, losses: Mapping[int, str], weights: Weights) -> str:
    folder.mkdir()
    rows = [f"1\t{step}\t{loss}\t{step * 1.7}" for step, loss in losses.items()]
    (folder / "train.log.tsv").write_text("\n".join(["epoch\tstep\tloss\twps", *rows, ""]))
    for step, tensors in weights.items():
        with io.open(folder / f"checkpoint-{step}.pt", "wb") as file:
            trusted.save_tensors(dict(tensors), file)
    return str(folder)


def trainer_run(folder: Path, losses: Mapping[int, float], weights: Weights) -> str:
    history = [{"step": step, "epoch": 1.0, "loss": loss} for step, loss in losses.items()]
    for step, tensors in weights.items():
        checkpoint = folder / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        save_file(dict(tensors), checkpoint / "model.safetensors")
        (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    return str(folder)


def test_the_first_step_and_tensor_that_differ_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = x_train_run(tmp_path / "a", {1: "0.5", 2: "0.25", 3: "0.125"}, {2: ONES, 4: ONES, 6: ONES})
    right = x_train_run(tmp_path / "b", {1: "0.5", 2: "0.2500001", 3: "7"}, {2: ONES, 4: CHANGED, 6: ONES})
    assert main(["first_difference", left, right]) == 1
    told = capsys.readouterr().out
    assert "train: the first difference is at step 2; the same until step 1\n  loss: 0.25 -> 0.2500001" in told
    assert "checkpoints: the first that differs is that of step 4; the same at 2" in told
    assert (
        "checkpoint-4.pt/layer.weight float32 (2, 3): 1 of 6 elements, by up to 0.25, the first at [1, 1]: 1.0 -> 1.25"
    ) in told
    assert "wps" not in told


def test_a_run_is_the_same_as_itself_where_numbers_are_nan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nan = {"weight": torch.tensor([float("nan"), -0.0]).to(torch.bfloat16)}
    left = x_train_run(tmp_path / "a", {1: "nan"}, {2: nan})
    assert main(["first_difference", left, x_train_run(tmp_path / "b", {1: "nan"}, {2: nan})]) == 0
    other = x_train_run(tmp_path / "c", {1: "nan"}, {2: {"weight": nan["weight"].abs()}})
    assert main(["first_difference", left, other]) == 1
    assert "1 of 2 elements" in capsys.readouterr().out  # -0.0 is not 0.0


def test_steps_of_checkpoints_that_are_the_same_do_not_read_as_a_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left, right = (x_train_run(tmp_path / name, {}, {300: ONES}) for name in "ab")
    assert main(["first_difference", left, right]) == 0
    assert "checkpoints: that of step 300 is bit-identical" in capsys.readouterr().out
    left, right = (x_train_run(tmp_path / name, {}, {2: ONES, 4: ONES}) for name in "cd")
    assert main(["first_difference", left, right]) == 0
    assert "checkpoints: those of steps 2, 4 are bit-identical" in capsys.readouterr().out


def test_folders_of_a_trainer_are_compared_and_what_one_lacks_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = trainer_run(tmp_path / "a", {1: 0.5, 2: 0.25}, {2: ONES})
    right = trainer_run(tmp_path / "b", {1: 0.5, 2: 0.5}, {2: {"layer.weight": torch.ones(3, 2)}})
    assert main(["first_difference", left, right]) == 1
    told = capsys.readouterr().out
    assert "train: the first difference is at step 2" in told
    assert "weights/layer.weight: float32 (2, 3) -> float32 (3, 2)" in told
    assert "weights/layer.bias: only in the first" in told


def test_parameters_that_differ_are_told_of_runs_of_every_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [trainer_run(tmp_path / name, {1: 0.5}, {2: ONES}) for name in "ab"]
    folders += [x_train_run(tmp_path / name, {1: "0.5"}, {2: ONES}) for name in "cd"]
    for rate, folder in zip((0.1, 0.2) * 2, folders, strict=True):
        place = Path(folder) / "checkpoint-2/training_args.json"
        place = place if place.parent.is_dir() else Path(folder) / "model_params.txt"
        place.write_text(json.dumps({"rate": rate}) if place.suffix == ".json" else f"task.rate : {rate}\nseed : 1\n")
    for pair, line in ((folders[:2], "rate: 0.1 -> 0.2"), (folders[2:], "task.rate: '0.1' -> '0.2'")):
        assert main(["first_difference", *pair]) == 0
        assert f"parameters: 1 differ\n  +- {line}\ntrain: 1 logged" in capsys.readouterr().out
        assert main(["diff_params", *pair]) == 0
        assert capsys.readouterr().out == f"+- {line}\n"
    (Path(folders[0]) / "checkpoint-2/training_args.json").unlink()
    assert main(["first_difference", *folders[:2]]) == 0
    assert "parameters: not recorded by both runs, so not compared" in capsys.readouterr().out


def test_what_was_not_compared_is_not_passed_over_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = x_train_run(tmp_path / "a", {1: "0.5"}, {2: ONES})
    assert main(["first_difference", left, x_train_run(tmp_path / "b", {1: "0.5"}, {3: CHANGED})]) == 0
    assert "checkpoints: no step is in both runs, so nothing was compared" in capsys.readouterr().out
    assert main(["first_difference", left, x_train_run(tmp_path / "c", {}, {2: ONES})]) == 0
    assert "logs: no step is in both runs, so nothing was compared" in capsys.readouterr().out


def test_where_nothing_can_be_compared_nothing_is_called_the_same(tmp_path: Path) -> None:
    left, right = x_train_run(tmp_path / "a", {}, {2: ONES}), x_train_run(tmp_path / "b", {1: "0.5"}, {3: ONES})
    with pytest.raises(ConfigError, match="the runs share no logged step and no checkpoint"):
        main(["first_difference", left, right])
    with pytest.raises(ConfigError, match="no such folder"):
        main(["first_difference", left, str(tmp_path / "c")])
