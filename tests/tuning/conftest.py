"""A tiny data set, the three configs of a search on it, and trials in processes forked off the tests."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xdpx.config.loading import load
from xdpx.run import main
from xdpx.tuning.plan import Plan, make_plan

SPACE = {
    "learning_rate": {"type": "float", "values": [1e-3, 1e-1], "log": True},
    "batch_size": {"type": "categorical", "values": [8, 16]},
}
BASE: dict[str, Any] = {
    "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8, "hidden_size": 8, "max_update": 12,
    "batch_size": 16, "learning_rate": 0.01, "lr_scheduler": "one_cycle", "warmup_steps": 0.1, "eval_interval": 4,
    "major_metric": "acc", "log_interval": 8, "weight_decay": 0.01,
}  # fmt: skip
TUNE: dict[str, Any] = {"max_trials": 3, "parallel_runs": 3, "assess_interval": 4, "available_rss": 3}


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preprocessed data with two classes of words."""
    folder, drawn = tmp_path_factory.mktemp("tuning"), random.Random(0)
    for name, count in (("train", 96), ("other", 96), ("dev", 40)):
        labels = [drawn.randint(0, 1) for _ in range(count)]
        rows = [
            f"{' '.join(f'w{drawn.randint(15 * each, 25 + 15 * each)}' for _ in range(6))}\t{each}" for each in labels
        ]
        (folder / f"{name}.txt").write_text("\n".join(rows) + "\n")
    keys = {"data_source": str(folder), "data_dir": str(folder / "data"), "processor": "single", "loader": "single"}
    (folder / "prepro.json").write_text(json.dumps({**keys, "tokenizer": "space", "max_len": 8}))
    assert main(["x-prepro", str(folder / "prepro.json")]) == 0
    return folder / "data"


@pytest.fixture
def search(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Write the configs of a search, and return its command line."""
    monkeypatch.setattr("xdpx.tuning.executors.local.START", "fork")
    monkeypatch.setattr("xdpx.tuning.outputs._draw_run", lambda folders: None)

    def write(*, space: Any = SPACE, base: Any = None, **keys: Any) -> list[str]:
        own = {
            "__parent__": f"{data_dir}/meta",
            "data_dir": str(data_dir),
            "save_dir": "unused",
            **BASE,
            **(base or {}),
        }
        (tmp_path / "train.json").write_text(json.dumps({key: one for key, one in own.items() if one is not None}))
        (tmp_path / "space.json").write_text(json.dumps(space))
        tune = {
            "space_config": "./space",
            "base_config": "./train",
            "save_dir": str(tmp_path / "tuned"),
            **TUNE,
            **keys,
        }
        (tmp_path / "tune.json").write_text(json.dumps(tune))
        return ["x-tune", str(tmp_path / "tune.json")]

    return write


@pytest.fixture
def planned(search: Callable[..., list[str]]) -> Callable[..., Plan]:
    """Return a function that returns the plan of a search."""

    def make(**keys: Any) -> Plan:
        return make_plan(load(search(**keys)[1], "x-tune")[0])

    return make
