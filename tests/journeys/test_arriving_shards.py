"""Train on shards that a second process is still making."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROWS = 15_000
TRAIN: dict[str, Any] = {
    "__parent__": "data/meta", "data_dir": "data", "train_subset": "train*", "lazy_load": True, "max_epoch": 3,
    "model": "cls_cnn", "embedding_dim": 4, "hidden_size": 4, "loss": "cross_entropy", "learning_rate": 0.01,
    "batch_size": 300, "eval_interval": -1, "log_interval": 10, "max_eval_steps": 1, "major_metric": "acc",
    "cuda": False,
}  # fmt: skip


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    with (folder / f"{words[0]}.err").open("w") as errors:
        command = [sys.executable, "-m", "xdpx.run", *words]
        return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors, text=True)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        assert process.poll() is None, "the process ended too early"
        time.sleep(0.002)


def meta(folder: Path) -> dict[str, Any]:
    path = folder / "data/meta.hjson"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.fixture
def half_built(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A folder with an x-prepro at work there, held still when the first shard was ready and others were not."""
    drawn = random.Random(0)
    (tmp_path / "raw").mkdir()
    for name, rows in (("dev", 100), ("train0", ROWS), ("train1", ROWS), ("train2", ROWS)):
        lines = (f"{drawn.randint(0, 99)} {drawn.randint(0, 99)}\t{drawn.choice('ab')}\n" for _ in range(rows))
        (tmp_path / "raw" / f"{name}.txt").write_text("".join(lines))
    prepro = {"data_source": "raw", "data_dir": "data", "processor": "single", "loader": "single", "tokenizer": "space"}
    (tmp_path / "prepro.json").write_text(json.dumps({**prepro, "max_len": 4}))
    (tmp_path / "train.json").write_text(json.dumps(TRAIN))
    build = start(tmp_path, "x-prepro", "prepro")
    wait_until(lambda: "train0" in meta(tmp_path).get("data_size", {}), build)
    build.send_signal(signal.SIGSTOP)
    yield tmp_path, build
    if build.poll() is None:
        build.kill()
        build.wait()


def test_training_that_begins_while_shards_are_being_made_is_training_on_all_of_them(
    half_built: tuple[Path, subprocess.Popen[str]],
) -> None:
    folder, build = half_built
    assert meta(folder)["arriving"][-1] == "train2"
    early = start(folder, "x-train", "train", "save_dir=early")
    wait_until(lambda: "waiting for shard 'train" in text(folder / "early/log.txt"), early)
    build.send_signal(signal.SIGCONT)
    assert build.wait(300) == 0
    assert early.wait(300) == 0, text(folder / "x-train.err")
    assert "arriving" not in meta(folder)
    assert start(folder, "x-train", "train", "save_dir=late").wait(300) == 0
    last = f"checkpoint-{3 * ROWS // 300}.pt"
    assert (folder / "early" / last).read_bytes() == (folder / "late" / last).read_bytes()


def test_a_build_that_died_is_finished_by_the_same_command(half_built: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, build = half_built
    build.kill()
    build.wait()
    assert "train2" in meta(folder)["arriving"]
    again = start(folder, "x-prepro", "prepro")
    assert again.wait(300) == 0, text(folder / "x-prepro.err")
    assert "arriving" not in meta(folder)
    assert meta(folder)["data_size"] == {"dev": 100, "train0": ROWS, "train1": ROWS, "train2": ROWS}
