"""A byte that went wrong: in what a result depends on it is named and refused, in what it does not it is set aside."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import tiers
from xdpx.run import main

TRAIN: dict[str, Any] = {
    "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8, "hidden_size": 8, "max_epoch": 2,
    "batch_size": 16, "learning_rate": 0.01, "eval_interval": 7, "major_metric": "acc", "log_interval": 3,
    "resume": "auto", "save_full_checkpoint": True, "seed": 1,
}  # fmt: skip


def text(count: int, seed: int) -> str:
    drawn, rows = random.Random(seed), []
    for _ in range(count):
        label = drawn.randint(0, 1)
        words = [f"w{drawn.randint(20 * label, 39 + 20 * label)}" for _ in range(drawn.randint(2, 12))]
        rows.append(f"{' '.join(words)}\t{'ab'[label]}\n")
    return "".join(rows)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with raw text, preprocessed data, and a run that was stopped in the middle."""
    top = tmp_path_factory.mktemp("damaged")
    (top / "raw").mkdir()
    for name, count in (("train", 200), ("dev", 40)):
        (top / "raw" / f"{name}.txt").write_text(text(count, count))
    prepro = {"data_source": str(top / "raw"), "data_dir": str(top / "data"), "processor": "single"}
    prepro |= {"loader": "single", "tokenizer": "space", "max_len": 16}
    (top / "prepro.json").write_text(json.dumps(prepro))
    config = {"__parent__": f"{top}/data/meta", "data_dir": f"{top}/data", **TRAIN}
    (top / "train.json").write_text(json.dumps(config))
    assert main(["x-prepro", str(top / "prepro.json")]) == 0
    assert main(["x-train", str(top / "train.json"), f"save_dir={top}/half", "train_steps=9"]) == 0
    assert main(["x-train", str(top / "train.json"), f"save_dir={top}/whole"]) == 0
    (top / "half" / "plots").mkdir(exist_ok=True)
    return top


@pytest.fixture
def world(finished: Path, tmp_path: Path) -> Path:
    """A copy of `finished`, whose configs name the copy."""
    for name in ("raw", "data", "half"):
        shutil.copytree(finished / name, tmp_path / name)
    for name in ("prepro.json", "train.json", "half/args.py"):
        content = (finished / name).read_text().replace(str(finished), str(tmp_path))
        if not name.endswith(".py"):
            (tmp_path / name).write_text(content)
    return tmp_path


def resumed(world: Path, *more: str) -> int:
    return main(["x-train", str(world / "train.json"), f"save_dir={world}/half", *more])


def flipped(path: Path, place: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 4
    path.write_bytes(data)


def with_ff(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\xff" + data[len(data) // 2 :])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def folder_there(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
        path.write_text("a file where a folder was")
    else:
        path.unlink()
        path.mkdir()


SIDE_FILES = [
    "args.py", "log.txt", "metrics.jsonl", "plots", "prepro.args.py", "resources.manifest.json", "snapshot.zip",
    "starter_config.hjson", "status.json", "target_map.txt", "train.log.tsv", "valid.log.tsv", "vocab.txt",
]  # fmt: skip


def test_this_list_of_side_files_is_whole(finished: Path) -> None:
    there = {path.name for path in (finished / "half").iterdir() if not path.name.startswith("checkpoint-")}
    assert there == set(SIDE_FILES)


DAMAGES = [
    *((name, with_ff) for name in SIDE_FILES if name != "plots"),
    *((name, folder_there) for name in SIDE_FILES),
    *((name, damage) for name in ("args.py", "status.json", "valid.log.tsv") for damage in (cut, zeros, emptied)),
]
AS_FOLDERS = ("log.txt", "plots", "prepro.args.py", "snapshot.zip", "starter_config.hjson")
"""In the short form, each file is damaged once: a folder lies in place of these, and 0xFF in the others."""
SOME_DAMAGES = [
    *((name, folder_there if name in AS_FOLDERS else with_ff) for name in SIDE_FILES),
    *(("args.py", emptied), ("status.json", cut), ("valid.log.tsv", zeros), ("valid.log.tsv", folder_there)),
]


@pytest.mark.parametrize(("name", "damage"), tiers.some(DAMAGES, SOME_DAMAGES))
def test_no_damage_to_a_side_file_stops_a_resume(
    world: Path, finished: Path, name: str, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(world / "half" / name)
    code = resumed(world)
    told = capsys.readouterr().err
    assert code == 0, told
    assert "continuing at step 9" in told
    last = "checkpoint-24.pt"
    assert (world / "half" / last).read_bytes() == (finished / "whole" / last).read_bytes()
    if damage in (with_ff, folder_there) and name not in ("log.txt", "snapshot.zip", "starter_config.hjson"):
        assert f"{name}.damaged-1" in told
        assert (world / "half" / f"{name}.damaged-1").exists()


def test_many_damaged_files_at_once_are_done_without(world: Path, finished: Path) -> None:
    for name in SIDE_FILES:
        if name not in ("plots", "log.txt", "resources.manifest.json"):
            zeros(world / "half" / name)
    assert resumed(world) == 0
    last = "checkpoint-24.pt"
    assert (world / "half" / last).read_bytes() == (finished / "whole" / last).read_bytes()


def test_the_whole_rows_of_a_damaged_log_go_on_in_a_new_one(world: Path) -> None:
    before = (world / "half" / "train.log.tsv").read_bytes().splitlines()
    with_ff(world / "half" / "train.log.tsv")
    assert resumed(world) == 0
    after = (world / "half" / "train.log.tsv").read_bytes().splitlines()
    assert after[0] == before[0]
    assert sum(row in after for row in before) == len(before) - 1


def test_what_was_set_aside_goes_when_the_run_is_overwritten(world: Path) -> None:
    with_ff(world / "half" / "status.json")
    assert resumed(world) == 0
    assert resumed(world, "overwrite=true", "resume=false") == 0
    assert not list((world / "half").glob("*.damaged-*"))


@pytest.mark.parametrize("name", ["train.pt", "dev.pt"])
@pytest.mark.parametrize("place", [0.3, 0.5, 0.9])
def test_one_flipped_bit_in_the_data_is_refused_and_named(
    world: Path, name: str, place: float, capsys: pytest.CaptureFixture[str]
) -> None:
    flipped(world / "data" / name, place)
    assert main(["x-train", str(world / "train.json"), f"save_dir={world}/new"]) == 1
    told = capsys.readouterr().err
    assert f"{world}/data/{name} differs from what was written" in told
    assert "run x-prepro again" in told
    assert "Traceback" not in told
    assert not (world / "new").exists()
    assert main(["x-prepro", str(world / "prepro.json")]) == 0
    assert main(["x-train", str(world / "train.json"), f"save_dir={world}/new", "max_update=2"]) == 0


@pytest.mark.parametrize("name", ["vocab.txt", "target_map.txt"])
def test_one_flipped_bit_in_the_tokens_or_labels_is_refused_and_x_prepro_mends_it(
    world: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flipped(world / "data" / name, 0.2)
    assert main(["x-train", str(world / "train.json"), f"save_dir={world}/new"]) == 1
    assert f"{world}/data/{name} differs from what was written" in capsys.readouterr().err
    assert main(["x-prepro", str(world / "prepro.json")]) == 0
    assert main(["x-train", str(world / "train.json"), f"save_dir={world}/new", "max_update=2"]) == 0


def test_a_digit_that_changed_in_meta_is_refused_with_what_was_written(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = world / "data" / "meta.hjson"
    path.write_text(path.read_text().replace('"pad_index": 0', '"pad_index": 1'))
    assert main(["x-train", str(world / "train.json"), f"save_dir={world}/new"]) == 2
    told = capsys.readouterr().err
    assert "pad_index" in told
    assert f"is 1 in {path}, but x-prepro wrote 0" in told
    assert main(["x-prepro", str(world / "prepro.json")]) == 0
    assert main(["x-train", str(world / "train.json"), f"save_dir={world}/new", "max_update=2"]) == 0


@pytest.mark.parametrize("name", ["vocab.txt", "target_map.txt", "args.py"])
@pytest.mark.parametrize("command", ["x-pred", "x-eval"])
def test_one_flipped_bit_in_what_a_run_keeps_is_refused_before_predicting(
    finished: Path, tmp_path: Path, command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "whole"
    shutil.copytree(finished / "whole", run)
    asked = {"predict_file_map": {str(finished / "raw" / "dev.txt"): str(tmp_path / "out.tsv")}}
    asked = asked if command == "x-pred" else {"valid_subset": "dev"}
    (tmp_path / "ask.json").write_text(json.dumps({"save_dir": str(run), **asked}))
    assert main([command, str(tmp_path / "ask.json")]) == 0
    (tmp_path / "out.tsv").unlink(missing_ok=True)
    capsys.readouterr()
    flipped(run / name, 0.3)
    assert main([command, str(tmp_path / "ask.json")]) == 1
    told = capsys.readouterr().err
    assert f"{run}/{name} differs from what was written" in told
    assert "copy it again" in told
    assert not (tmp_path / "out.tsv").exists()


@pytest.mark.parametrize("damage", [with_ff, emptied, folder_there])
@pytest.mark.parametrize("name", ["all_results.json", "train_results.json", "trainer_state.json"])
def test_results_of_a_trainer_that_were_damaged_are_set_aside(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    from torch import nn

    from xdpx import Trainer, TrainingArguments
    from xdpx.trainer.files.state import TrainerState

    trainer = Trainer(nn.Linear(1, 1), TrainingArguments(str(tmp_path), use_cpu=True))
    trainer.state = TrainerState(global_step=3)
    for turn in range(2):
        trainer.save_metrics("train", {"loss": 0.5 + turn})
        trainer.save_state()
        assert json.loads((tmp_path / "all_results.json").read_text())["loss"] == 0.5 + turn
        assert json.loads((tmp_path / "train_results.json").read_text())["loss"] == 0.5 + turn
        assert json.loads((tmp_path / "trainer_state.json").read_text())["global_step"] == 3
        if not turn:
            damage(tmp_path / name)
    assert (tmp_path / f"{name}.damaged-1").exists() == (damage is folder_there or name == "all_results.json")
