"""A tiny text classification task, preprocessed by x-prepro, and training on it in this process."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

from xdpx import run as door

TRAIN: dict[str, Any] = {
    "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8, "hidden_size": 8, "max_epoch": 2,
    "batch_size": 16, "learning_rate": 0.01, "eval_interval": 6, "major_metric": "acc", "log_interval": 1,
}  # fmt: skip


def prepare(folder: Path, *, seed: int = 0, words: int = 40) -> Path:
    """Write raw text of two classes, preprocess it, and return the data_dir."""
    drawn = random.Random(seed)
    raw, data = folder / "raw", folder / "data"
    raw.mkdir(parents=True)
    for split, count in (("train", 96), ("dev", 24)):
        rows = []
        for _ in range(count):
            label = drawn.randint(0, 1)
            text = " ".join(f"w{drawn.randrange(words) + words // 2 * label}" for _ in range(drawn.randint(2, 12)))
            rows.append(f"{text}\t{'ab'[label]}\n")
        (raw / f"{split}.txt").write_text("".join(rows))
    config = {"data_source": str(raw), "data_dir": str(data), "processor": "single", "loader": "single"}
    (folder / "prepro.json").write_text(json.dumps(config | {"tokenizer": "space", "max_len": 16}))
    assert door.main(["x-prepro", str(folder / "prepro.json")]) == 0
    return data


def train(data: Path, save_dir: Path, **keys: Any) -> int:
    """Run x-train, and return its exit code; keys with value None are left out."""
    values = {"__parent__": f"{data}/meta", "data_dir": str(data), "save_dir": str(save_dir), **TRAIN, **keys}
    config = save_dir.with_suffix(".json")
    config.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return door.main(["x-train", str(config)])


def rows(save_dir: Path, name: str = "train.log.tsv") -> dict[int, dict[str, str]]:
    """Return step -> row of a log."""
    with (save_dir / name).open() as table:
        return {int(row["step"]): row for row in csv.DictReader(table, delimiter="\t")}
