"""The loss of every step compared with the original Trainer: same seeds, data and arguments; float32 on a CPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks.report import Row
from benchmarks.trainer_work import Points, Square, bert, folder, libraries, padded, sentences, settings

Builder = Callable[[Any, list[Any]], Any]
"""(arguments, callbacks) -> Trainer."""

TOLERANCE = 1e-6
STEPS = {"toy": 30, "MiniLM": 8}
LEARNING_RATES = {"toy": 1e-2, "MiniLM": 5e-5}
SETTINGS: dict[str, dict[str, Any]] = {
    "linear schedule": {},
    "constant schedule": {"lr_scheduler_type": "constant"},
    "accumulation of 4": {"gradient_accumulation_steps": 4},
    "constant schedule, accumulation of 4": {"lr_scheduler_type": "constant", "gradient_accumulation_steps": 4},
    "weight decay": {"weight_decay": 0.1, "warmup_steps": 3},
    "early stopping": {"early": True},
    "resume": {"resume": True},
}
ONLY_BERT: dict[str, dict[str, Any]] = {
    "label smoothing": {"label_smoothing_factor": 0.1},
    "label smoothing, accumulation of 4": {"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 4},
    "NEFTune": {"neftune_noise_alpha": 5.0},
    "grouping by length": {"train_sampling_strategy": "group_by_length"},
}


def measure() -> list[Row]:
    """Compare all settings with the toy model, then with MiniLM on sst2."""
    both = libraries()
    rows = [row(both, "toy", name, changes) for name, changes in SETTINGS.items()]
    return rows + [row(both, "MiniLM", name, changes) for name, changes in (SETTINGS | ONLY_BERT).items()]


def row(both: dict[str, ModuleType], model: str, name: str, changes: dict[str, Any]) -> Row:
    """Compare the losses with one setting."""
    ours, theirs = (losses(library, model, f"{model}-{name}", changes) for library in both.values())
    same_length = len(ours) == len(theirs) > 0
    apart = max((abs(a - b) for a, b in zip(ours, theirs, strict=False)), default=float("inf"))
    steps = f"{len(ours)} steps" if same_length else f"{len(ours)} steps against {len(theirs)}"
    return Row(f"largest difference between two losses, {model}, {name}", f"{apart:.1e} over {steps}",
               f"<= {TOLERANCE:.0e}", same_length and apart <= TOLERANCE)  # fmt: skip


def losses(library: ModuleType, model: str, name: str, changes: dict[str, Any]) -> list[float]:
    """Train, and return the logged loss of every step, including evaluations."""
    place = folder(f"{library.__name__}-{name}".replace(" ", "-"))
    shutil.rmtree(place, ignore_errors=True)
    changes = {"learning_rate": LEARNING_RATES[model], **changes}
    trainer = trained(library, partial(build, library, model), place, changes, steps=STEPS[model])
    shutil.rmtree(place, ignore_errors=True)
    return logged_losses(trainer)


def trained(library: ModuleType, build: Builder, place: Path, changes: Mapping[str, Any], *, steps: int) -> Any:
    """Train with one of the settings, and return the Trainer; with `resume`, the one that resumed halfway.

    Args:
        library: ours or the original.
        build: returns a Trainer for arguments and callbacks, the same one each time.
        place: output folder of the run.
        changes: of the arguments; the extra key `early` enables early stopping, `resume` resuming halfway.
        steps: total number of steps.
    """
    changes = dict(changes)
    early, resume = changes.pop("early", False), changes.pop("resume", False)
    # BERT accepts num_items_in_batch but ignores it, so with accumulation the original would log too large a loss
    # without a corrected model_accepts_loss_kwargs.
    accumulates, smooths = "gradient_accumulation_steps" in changes, "label_smoothing_factor" in changes
    changes |= {"max_steps": steps, "logging_steps": 1}
    callbacks = []
    if early:
        changes |= {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss"}
        callbacks = [library.EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=0.05)]
    if resume:
        changes |= {"save_strategy": "steps", "save_steps": steps // 2}
    trainer = build(settings(library, place, **changes), callbacks)
    trainer.model_accepts_loss_kwargs &= not (accumulates and not smooths)
    trainer.train()
    if resume:
        trainer = build(settings(library, place, **changes), callbacks)
        trainer.train(resume_from_checkpoint=str(place / f"checkpoint-{steps // 2}"))
    return trainer


def logged_losses(trainer: Any) -> list[float]:
    """Return every loss in a Trainer's history in order, including evaluations."""
    return [
        value for entry in trainer.state.log_history for key, value in entry.items() if key in {"loss", "eval_loss"}
    ]


def build(library: ModuleType, model: str, args: Any, callbacks: list[Any]) -> Any:
    """Return a Trainer with fresh weights that are the same each time."""
    torch.manual_seed(1)
    if model == "toy":
        data: Any = Points(130)
        return library.Trainer(Square(0.1), args, train_dataset=data, eval_dataset=data, callbacks=callbacks)
    return library.Trainer(bert(), args, padded, sentences(64), sentences(16, "dev"), callbacks=callbacks)
