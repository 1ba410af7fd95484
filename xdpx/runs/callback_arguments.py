"""What callbacks written for the Trainer read as `args` in `x-train`: its settings, by the names of the Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.runs.parameters import TrainParameters
from xdpx.trainer.hooks.arguments import CallbackArguments


class RunArguments(CallbackArguments):
    """Arguments of a Trainer that say what a run of `x-train` does. Every key of the run can be read from it as well.

    Args:
        settings: of the run.
        values: all of its keys.
        total: updates of the whole schedule.
    """

    def __init__(self, settings: TrainParameters, values: Mapping[str, Any], total: int) -> None:
        known = translated(settings, values, total)
        super().__init__(settings.save_dir, values, known, door="this run of x-train")


def translated(settings: TrainParameters, values: Mapping[str, Any], total: int) -> dict[str, Any]:
    """Return the settings of a run as arguments of a Trainer, by the table of `docs/trainer.md` where one corresponds.

    Args:
        settings: of the run.
        values: all of its keys.
        total: updates of the whole schedule.
    """
    betas = values.get("adam_betas") or (0.9, 0.999)
    return {
        "num_train_epochs": settings.max_epoch,
        "max_steps": -1 if settings.max_update is None else settings.max_update,
        "per_device_train_batch_size": settings.batch_size,
        "per_device_eval_batch_size": settings.batch_size,
        "gradient_accumulation_steps": settings.update_freq,
        "seed": settings.seed,
        "learning_rate": settings.learning_rate,
        "max_grad_norm": settings.clip_norm,
        "optim": settings.optimizer,
        "nonfinite_steps": settings.nonfinite_steps,
        "ema_decay": settings.ema_decay,
        "swa_start": settings.swa_start,
        "swa_interval": settings.swa_interval,
        "adam_beta1": betas[0],
        "adam_beta2": betas[1],
        "adam_epsilon": values.get("adam_eps", 1e-8),
        "weight_decay": values.get("weight_decay", 0.0),
        "lr_scheduler_type": settings.lr_scheduler,
        "warmup_steps": values.get("warmup_steps") or 0,
        "bf16": settings.precision == "bf16",
        "fp16": settings.precision == "fp16",
        "use_cpu": settings.cuda is False,
        **_when(settings, total),
    }


def _when(settings: TrainParameters, total: int) -> dict[str, Any]:
    """Return the arguments for when to log, evaluate and save, and which metric decides the best."""
    evaluates = settings.eval_interval if settings.eval_interval > 0 else total
    best_only = settings.save_best_only and not settings.save_last_only
    return {
        "logging_strategy": "steps",
        "logging_steps": settings.log_interval,
        "eval_strategy": "steps",
        "eval_steps": evaluates,
        "metric_for_best_model": settings.major_metric,
        "greater_is_better": settings.ascending_metric,
        "save_strategy": "no" if not settings.save else "best" if best_only else "steps",
        "save_steps": settings.save_interval or evaluates,
        "load_best_model_at_end": settings.save,  # not loaded, but kept, and found by <best>
    }
