"""Fine-tuning a BERT of MiniLM's size beside the Hugging Face Trainer: samples per second at equal settings."""

from __future__ import annotations

import csv
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

from benchmarks.report import Row, spread
from benchmarks.work import DATA, WORK, command, minilm, peer, write_config

REPEATS = 3
SETS = {
    "sst2": {"max_len": 128, "promised": 1.8, "steps": 150},
    "chnsenticorp": {"max_len": 256, "promised": 2.5, "steps": 60},
}
BATCH_SIZE = 8  # the Trainer's default
SHARED = {"learning_rate": 5e-5, "weight_decay": 0.0, "seed": 1}


def prepare(name: str, max_len: int) -> Path:
    """Preprocess a set once; give its data_dir."""
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
        }
        command("x-prepro", write_config(f"{name}_prepro", values))
    return folder


def ours(name: str, data_dir: Path, *, steps: int | None, epochs: int) -> dict[str, Any]:
    """Train with x-train and read speed and score out of its logs."""
    save_dir = WORK / f"{name}_run"
    shutil.rmtree(save_dir, ignore_errors=True)
    values = {
        "__parent__": f"{data_dir}/meta",
        "data_dir": str(data_dir),
        "save_dir": str(save_dir),
        "model": "bert_classification",
        "pretrained_model": str(minilm()),
        "loss": "cross_entropy",
        "optimizer": "adam",
        "adam_eps": 1e-8,
        "clip_norm": 1.0,
        "lr_scheduler": "one_cycle",
        "warmup_steps": 0.0,
        "output_dropout_prob": 0.1,
        "batch_size": BATCH_SIZE,
        "batch_by_len": True,
        "eval_interval": -1,
        "log_interval": 500 if steps is None else steps,
        "major_metric": "acc",
        "save": steps is None,
        "max_epoch": epochs,
        **SHARED,
    }
    if steps is not None:
        values |= {"max_update": steps}
    command("x-train", write_config(f"{name}_train", values))
    with (save_dir / "valid.log.tsv").open(encoding="utf-8") as file:
        last = list(csv.DictReader(file, delimiter="\t"))[-1]
    samples = int(last["step"]) * BATCH_SIZE
    return {"samples_per_second": samples / float(last["train_wall"]), "accuracy": float(last["valid_acc"])}
