"""Runs of the Trainer on tiny models: those that `benchmarks.trainer_parity` compares with the original, and more."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

import xdpx
from benchmarks.trainer_parity import LEARNING_RATES, ONLY_BERT, SETTINGS, STEPS, Builder, logged_losses, trained
from benchmarks.trainer_parity import build as build_of_benchmark
from benchmarks.trainer_work import Points, Square, padded
from tests.golden.record import Outcome, Runs, hash_of

WORDS = 40
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
MORE: dict[str, dict[str, Any]] = {
    "bf16": {"bf16": True},
    "short gradients": {"max_grad_norm": 0.1},
    "adafactor, cosine schedule": {"optim": "adafactor", "lr_scheduler_type": "cosine"},
}

OVERFLOWING: dict[str, dict[str, Any]] = {
    "fp32 that skips": {"nonfinite_steps": "skip"},
    "fp16": {"fp16": True},
    "fp16, accumulation of 2": {"fp16": True, "gradient_accumulation_steps": 2},
}


def train(folder: Path, name: str, build: Builder, steps: int, changes: dict[str, Any]) -> Outcome:
    """Train with one setting, and return the outcome."""
    trainer = trained(xdpx, build, folder / name.replace(" ", "_"), changes, steps=steps)
    return Outcome(logged_losses(trainer), hash_of(trainer.model.state_dict()))


def build_bert(args: Any, callbacks: list[Any]) -> Any:
    """Return a Trainer of a BERT with random weights that are the same each time."""
    torch.manual_seed(1)
    model = BertForSequenceClassification(BertConfig(vocab_size=WORDS, max_position_embeddings=32, **SIZES))
    return xdpx.Trainer(model, args, padded, sentences(64, seed=1), sentences(16, seed=2), callbacks=callbacks)


def sentences(count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows of 3 to 24 token ids, labelled by their first one."""
    dice = random.Random(seed)
    texts = [[dice.randrange(1, WORDS) for _ in range(dice.randint(3, 24))] for _ in range(count)]
    return [{"input_ids": text, "attention_mask": [1] * len(text), "labels": text[0] % 2} for text in texts]


class Overflowing(Square):
    """The toy model, with an infinite fifth gradient."""

    passes = 0

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Return the output of the toy model."""
        said = super().forward(x, labels)
        if self.training:
            self.passes += 1
            if self.passes == 5:
                said["loss"].register_hook(lambda gradient: gradient * torch.inf)
        return said


def build_overflowing(args: Any, callbacks: list[Any]) -> Any:
    """Return a Trainer of the toy model that overflows."""
    torch.manual_seed(1)
    return xdpx.Trainer(Overflowing(0.1), args, train_dataset=Points(130), callbacks=callbacks)


def runs_of(model: str, build: Builder, steps: int, settings: dict[str, dict[str, Any]], rate: float) -> Runs:
    """Return one run per setting."""
    return {
        f"{model}, {name}": partial(
            train, name=f"{model}, {name}", build=build, steps=steps, changes={"learning_rate": rate, **changes}
        )
        for name, changes in settings.items()
    }


RUNS: Runs = {
    **runs_of("toy", partial(build_of_benchmark, xdpx, "toy"), STEPS["toy"], SETTINGS, LEARNING_RATES["toy"]),
    **runs_of("toy with an overflow planted", build_overflowing, 12, OVERFLOWING, LEARNING_RATES["toy"]),
    **runs_of("BERT", build_bert, STEPS["MiniLM"], SETTINGS | ONLY_BERT | MORE, 1e-3),
}
