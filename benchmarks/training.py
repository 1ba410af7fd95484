"""Fine-tuning a BERT of MiniLM's size compared with the Hugging Face Trainer: samples per second, and final score."""

from __future__ import annotations

import csv
import os
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import Row, spread
from benchmarks.work import DATA, WORK, command, minilm, peer, write_config

REPEATS = 2
MAX_LEN = {"sst2": 128, "chnsenticorp": 256}
PROMISED = {"sst2": 1.8, "chnsenticorp": 2.5}
STEPS = {"sst2": 100, "chnsenticorp": 40}
"""Updates per timing, alternating with the peer: enough to leave out its first steps."""
EPOCHS = {"sst2": 2, "chnsenticorp": 1}
BATCH_SIZE = 8  # the Trainer's default
LEARNING_RATE = 5e-5


def prepare(name: str, max_len: int) -> Path:
    """Preprocess a data set once, and return its data_dir."""
    folder = WORK / f"{name}_bert"
    if not (folder / "meta.hjson").exists():
        values = {
            "data_source": str(DATA / name),
            "data_files": {"train.tsv": "train", "dev.tsv": "dev"},
            "data_dir": str(folder),
            "vocab_file": str(minilm() / "vocab.txt"),
            "processor": "bert_single",
            "loader": "single",
            "tokenizer": "bert",
            "target_type": "index",
            "max_len": max_len,
            "workers": 2,
            "ignore_findings": ["unknown_tokens"],  # an English vocabulary for Chinese: only speed matters here
        }
        command("x-prepro", write_config(f"{name}_prepro", values))
    return folder


def train_values(name: str, data_dir: Path, *, save: bool) -> dict[str, Any]:
    """Return a config with the Trainer's defaults: AdamW, linear decay, clipping at 1, classifier dropout."""
    return {
        "__parent__": f"{data_dir}/meta",
        "data_dir": str(data_dir),
        "save_dir": str(WORK / f"{name}_run"),
        "overwrite": True,
        "model": "bert_classification",
        "pretrained_model": str(minilm()),
        "output_dropout_prob": 0.1,
        "loss": "cross_entropy",
        "optimizer": "adam",
        "adam_eps": 1e-8,
        "learning_rate": LEARNING_RATE,
        "clip_norm": 1.0,
        "lr_scheduler": "one_cycle",
        "warmup_steps": 0,
        "batch_size": BATCH_SIZE,
        "batch_by_len": True,
        "eval_interval": -1,
        "log_interval": 500,
        "major_metric": "acc",
        "max_epoch": EPOCHS[name],
        "save": save,
    }


def ours(name: str, changes: dict[str, Any]) -> dict[str, float]:
    """Train with x-train; return speed and score from its log."""
    values = train_values(name, prepare(name, MAX_LEN[name]), save=False) | changes
    command("x-train", write_config(f"{name}_train", values))
    with (Path(values["save_dir"]) / "valid.log.tsv").open(encoding="utf-8") as file:
        last = list(csv.DictReader(file, delimiter="\t"))[-1]
    samples = int(last["step"]) * BATCH_SIZE
    return {"samples_per_second": samples / float(last["train_wall"]), "accuracy": float(last["valid_acc"])}


def theirs(name: str, *, steps: int, group_by_length: bool) -> dict[str, Any]:
    """Train with the Hugging Face Trainer in its own process."""
    spec = {
        "train": str((DATA / name / "train.tsv").resolve()),
        "dev": str((DATA / name / "dev.tsv").resolve()),
        "model": str(minilm()),
        "max_len": MAX_LEN[name],
        "batch_size": BATCH_SIZE,
        "epochs": EPOCHS[name],
        "max_steps": steps,
        "learning_rate": LEARNING_RATE,
        "warmup_ratio": 0.0,
        "weight_decay": 0.0,
        "seed": 1,
        "group_by_length": group_by_length,
    }
    return peer("hf_trainer.py", write_config(f"{name}_trainer", spec))


def measure() -> Iterator[Row]:
    """Time both in turn; with XDPX_BENCH_SCORES=1, also train to the end and compare scores (takes about an hour)."""
    for name in PROMISED:
        yield from speeds(name)
    if os.environ.get("XDPX_BENCH_SCORES"):
        yield from (scores(name) for name in PROMISED)


def speeds(name: str) -> list[Row]:
    """Compare samples per second over the first updates."""
    default, grouped = [], []
    for _ in range(REPEATS):
        mine = ours(name, {"max_update": STEPS[name]})["samples_per_second"]
        default.append(mine / theirs(name, steps=STEPS[name], group_by_length=False)["samples_per_second"])
        grouped.append(mine / theirs(name, steps=STEPS[name], group_by_length=True)["samples_per_second"])
    promised = PROMISED[name]
    return [
        Row(f"samples/s over the Trainer's defaults, {name}", f"{spread(default)}x", f">= {promised}x",
            statistics.median(default) >= promised),
        Row(f"samples/s over the Trainer grouping by length, {name}", f"{spread(grouped)}x", ">= 1.0x",
            statistics.median(grouped) >= 1.0),
    ]  # fmt: skip


def scores(name: str) -> Row:
    """Compare the dev accuracy after complete trainings."""
    mine = ours(name, {})["accuracy"]
    other = theirs(name, steps=-1, group_by_length=False)["accuracy"]
    shutil.rmtree(WORK / f"{name}_run", ignore_errors=True)
    epochs = f"{EPOCHS[name]} epoch{'s' if EPOCHS[name] > 1 else ''}"
    return Row(f"accuracy on dev after {epochs}, {name}: ours, the Trainer's", f"{mine:.4f}, {other:.4f}",
               "not lower than 0.01 below", mine >= other - 0.01)  # fmt: skip
