"""Learning curves of a real space: each of 320 small CNN classifiers of SST-2, trained once to the end.

Training is deterministic, so a search that trains a config up to some number of samples would get exactly these scores.
Search algorithms are compared by replaying the curves (`tuning_real.py`), in seconds instead of days.
`python -m benchmarks.tuning_curves` trains all of them in one process and writes `tuning_curves.tsv`.
"""

from __future__ import annotations

import csv
import itertools
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.work import DATA, WORK

TABLE = Path(__file__).with_name("tuning_curves.tsv")
ROWS, EPOCHS, BATCH_SIZE = 864, 9, 48
POINTS = 27
"""Evaluations per run, at equal distances; the rungs 1/27, 1/9 (one epoch), 1/3 and 1 are among them."""

TOTAL = ROWS * EPOCHS
STEPS_BETWEEN = TOTAL // BATCH_SIZE // POINTS
OPTIMIZERS = ("adam", "sgd")
LOWEST_RATE = {"adam": 1e-4, "sgd": 1e-3}
GRID: dict[str, tuple[Any, ...]] = {
    "optimizer": OPTIMIZERS,
    "rate": tuple(range(10)),
    "dropout": (0.0, 0.2, 0.4, 0.6),
    "hidden_size": (4, 8, 16, 32),
}
SPACE = {
    "optimizer": {"type": "categorical", "values": list(OPTIMIZERS)},
    "rate": {"type": "int", "values": [0, 9]},
    "dropout": {"type": "categorical", "values": list(GRID["dropout"])},
    "hidden_size": {"type": "int", "values": [4, 32], "step": 2, "log": True},
}
"""The space in x-tune's format. `rate` counts steps of 10^(1/3) from the lowest learning rate of the optimizer."""

Curves = dict[tuple[Any, ...], list[float]]


def key_of(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the row of the table for a point of the space."""
    return tuple(values[name] for name in GRID)


def config_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the x-train config for a point of the space."""
    rate = LOWEST_RATE[values["optimizer"]] * 10 ** (values["rate"] / 3)
    return {
        "optimizer": values["optimizer"],
        "learning_rate": float(f"{rate:.4g}"),
        "dropout": values["dropout"],
        "hidden_size": values["hidden_size"],
    }


def read() -> Curves:
    """Return point of the space -> best accuracy so far at each of `POINTS` positions."""
    with TABLE.open(encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t"))[1:]
    kinds = [type(choices[0]) for choices in GRID.values()]
    return {
        tuple(kind(text) for kind, text in zip(kinds, row, strict=False)): [float(text) for text in row[len(GRID) :]]
        for row in rows
    }


def record() -> None:
    """Train every point of the space, and write the table."""
    import xdpx

    data, started = _data(), time.process_time()
    lines = ["\t".join([*GRID, *(str(TOTAL * (point + 1) // POINTS) for point in range(POINTS))])]
    points = [dict(zip(GRID, choices, strict=True)) for choices in itertools.product(*GRID.values())]
    for number, values in enumerate(points, start=1):
        folder = WORK / "tuning_run"
        xdpx.train(_config(data, folder) | config_of(values))
        lines.append("\t".join([*map(str, key_of(values)), *(f"{score:.4f}" for score in _scores(folder))]))
        TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{number} of {len(points)}, {time.process_time() - started:.0f} CPU s", file=sys.stderr, flush=True)


def _data() -> str:
    """Preprocess the first rows of SST-2 as words, with the whole dev set; return the data_dir."""
    import xdpx

    raw, folder = WORK / "tuning_raw", WORK / "tuning_words"
    if not (folder / "meta.hjson").exists():
        raw.mkdir(parents=True, exist_ok=True)
        for name, rows in (("train", ROWS), ("dev", None)):
            lines = (DATA / "sst2" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()[:rows]
            (raw / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        config = {
            "data_source": str(raw), "data_files": {"train.tsv": "train", "dev.tsv": "dev"}, "data_dir": str(folder),
            "processor": "single", "tokenizer": "space", "loader": "single", "target_type": "index", "max_len": 40,
        }  # fmt: skip
        xdpx.preprocess(config)
    return str(folder)


def _config(data: str, folder: Path) -> dict[str, Any]:
    return {
        "__parent__": f"{data}/meta", "data_dir": data, "save_dir": str(folder), "overwrite": True,
        "save_best_only": True, "model": "cls_cnn", "embedding_dim": 16, "encoder_layers": 1, "kernel_sizes": [3],
        "loss": "cross_entropy",
        "lr_scheduler": "one_cycle", "warmup_steps": 0.1, "batch_size": BATCH_SIZE, "batch_by_len": True,
        "max_epoch": EPOCHS, "eval_interval": STEPS_BETWEEN, "log_interval": 1000, "major_metric": "acc",
        "nonfinite_steps": "skip", "seed": 1,
    }  # fmt: skip


def _scores(folder: Path) -> list[float]:
    """Return the best accuracy so far at each position; after a divergence, it stays the same."""
    with (folder / "valid.log.tsv").open(encoding="utf-8") as file:
        seen = {int(row["step"]): float(row["valid_acc"]) for row in csv.DictReader(file, delimiter="\t")}
    raw = [seen[STEPS_BETWEEN * (point + 1)] for point in range(POINTS)]
    return list(itertools.accumulate(raw, max))


if __name__ == "__main__":
    record()
