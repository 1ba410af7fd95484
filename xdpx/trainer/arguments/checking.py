"""Checks of whether the arguments are consistent with each other and the machine; all faults are found at once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

from xdpx.config.faults import Fault, did_you_mean
from xdpx.trainer.arguments.fields import LEVELS, NONFINITE, REFUSED_OR_TAKEN, SAVED_OR_GIVEN, Fields
from xdpx.trainer.arguments.hardware import has_bf16, has_tf32
from xdpx.utils import io
from xdpx.utils.decisions import TRUE_WORDS

SHARE = "a whole number, or a share of all updates below 1"


def faults_of(arguments: Fields) -> Iterator[Fault]:
    """Yield the faults of normalised arguments."""
    for check in CHECKS:
        yield from check(arguments)


def _intervals(arguments: Fields) -> Iterator[Fault]:
    """Check logging_steps, eval_steps and save_steps, and convert whole numbers to integers."""
    for what in ("logging", "eval", "save"):
        if getattr(arguments, f"{what}_strategy") != "steps":
            continue
        name, steps = f"{what}_steps", getattr(arguments, f"{what}_steps")
        if not steps or steps < 0:
            other = " or logging_steps" if what == "eval" else ""
            yield Fault(name, f"is {steps}, and {what}_strategy is 'steps'.", f"Give {name}{other} {SHARE}.")
        elif steps > 1 and steps != int(steps):
            yield Fault(name, f"is {steps}.", f"Use {SHARE}.")
        elif steps >= 1:
            setattr(arguments, name, int(steps))


def _best_model(arguments: Fields) -> Iterator[Fault]:
    """Check that evaluation and saving are both on. Their intervals may differ: a new best score is saved at once.

    A script may switch both off, as for a short trial; then, and where only callbacks ask for evaluations of
    save_strategy "best", a word at the end of training says that there is no best model.
    """
    evaluates, saves = arguments.eval_strategy != "no", arguments.save_strategy
    if not arguments.load_best_model_at_end or (not evaluates and saves in ("no", "best")):
        return
    if not evaluates or saves == "no":
        yield Fault(
            "load_best_model_at_end",
            f"needs scores and checkpoints: eval_strategy is '{arguments.eval_strategy}', save_strategy is '{saves}'.",
            f"Set {'save_strategy' if evaluates else 'eval_strategy'} to 'steps' or 'epoch'.",
        )


def _precision(arguments: Fields) -> Iterator[Fault]:
    if arguments.fp16 and arguments.bf16:
        yield Fault("bf16", "and fp16 are both true.", "Keep one; bf16 needs no loss scale.")
    if arguments.fp16_full_eval and arguments.bf16_full_eval:
        yield Fault("bf16_full_eval", "and fp16_full_eval are both true.", "Keep one.")
    on_cpu = arguments.use_cpu or os.environ.get("ACCELERATE_USE_CPU", "").lower() in TRUE_WORDS
    if (arguments.bf16 or arguments.bf16_full_eval) and not on_cpu and not has_bf16():
        yield Fault(
            "bf16" if arguments.bf16 else "bf16_full_eval",
            "is true, but no accelerator here computes in bfloat16 (NVIDIA: Ampere or newer).",
            "Set use_cpu=True for bfloat16 on the CPU, or leave it out.",
        )
    if arguments.tf32 and not has_tf32():
        yield Fault("tf32", "is true, but there is no NVIDIA GPU with TF32 here (Ampere or newer).", "Leave it out.")


def _epochs(arguments: Fields) -> Iterator[Fault]:
    """Check the number of epochs; scripts that give max_steps may say -1, since it does not count then."""
    if arguments.max_steps <= 0 and not arguments.num_train_epochs >= 0:
        yield Fault("num_train_epochs", f"is {arguments.num_train_epochs}.", "Use 0 or more, or set max_steps.")


def _schedule(arguments: Fields) -> Iterator[Fault]:
    if arguments.lr_scheduler_type in {"reduce_lr_on_plateau", "greedy"} and arguments.eval_strategy == "no":
        yield Fault(
            "lr_scheduler_type",
            f"is '{arguments.lr_scheduler_type}', which needs scores, but eval_strategy is 'no'.",
            "Set eval_strategy to 'steps' or 'epoch'.",
        )


def _loader(arguments: Fields) -> Iterator[Fault]:
    if arguments.dataloader_num_workers == 0 and arguments.dataloader_prefetch_factor is not None:
        yield Fault(
            "dataloader_prefetch_factor",
            f"is {arguments.dataloader_prefetch_factor}, but no workers load data: dataloader_num_workers is 0.",
            "Set dataloader_num_workers, or leave it out.",
        )
    if arguments.dataloader_num_workers == 0 and arguments.dataloader_persistent_workers:
        yield Fault(
            "dataloader_persistent_workers",
            "is true, but no workers load data: dataloader_num_workers is 0.",
            "Set dataloader_num_workers, or leave it out.",
        )


def _hub(arguments: Fields) -> Iterator[Fault]:
    if arguments.push_to_hub and arguments.output_dir and not io.islocal(arguments.output_dir):
        problem = f"is true, but uploads only from this machine; output_dir is '{arguments.output_dir}'."
        yield Fault("push_to_hub", problem, "Name a local output_dir, or upload it later: hf upload NAME FOLDER.")


def _average(arguments: Fields) -> Iterator[Fault]:
    start = arguments.swa_start
    if start is not None and arguments.ema_decay < 1:
        problem = "contradicts ema_decay: both choose the average of the weights that is kept."
        yield Fault("swa_start", problem, "Remove one of them.")
    elif start is not None and start > 1 and start != int(start):
        yield Fault("swa_start", f"is {start}.", f"Use {SHARE}.")
    elif start is None and arguments.swa_interval > 1:
        problem = f"is {arguments.swa_interval}, and swa_start is None: no weights are averaged."
        yield Fault("swa_interval", problem, "Set swa_start, or leave it out.")


ALLOWED: dict[str, tuple[Any, ...]] = {
    "log_level": LEVELS,
    "log_level_replica": LEVELS,
    "train_sampling_strategy": ("random", "sequential", "group_by_length", "batch_rebalance"),
    "dataloader_multiprocessing_context": (None, "fork", "spawn", "forkserver"),
    "include_num_input_tokens_seen": ("no", "all", "non_padding"),
    "nonfinite_steps": NONFINITE,
    "resume_hyperparameters": SAVED_OR_GIVEN,
    "resume_changed": REFUSED_OR_TAKEN,
}


def _choices(arguments: Fields) -> Iterator[Fault]:
    for name, allowed in ALLOWED.items():
        value = getattr(arguments, name)
        if value not in allowed:
            words = [word for word in allowed if word is not None]
            remedy = did_you_mean(str(value), words, rest=f"Choose one of: {', '.join(words)}.")
            yield Fault(name, f"no '{value}' is known.", remedy)


Bound = tuple[Callable[[Any], bool], str]
AT_LEAST_1: Bound = (lambda value: value >= 1, "1 or more")
NOT_NEGATIVE: Bound = (lambda value: value >= 0, "0 or more")
POSITIVE: Bound = (lambda value: value > 0, "more than 0")
SHARE_OF_ALL: Bound = (lambda value: 0 <= value <= 1, "from 0 to 1")
SEED: Bound = (lambda value: 0 <= value < 2**32, "from 0 to 4294967295")

BOUNDS: dict[str, Bound] = {
    "per_device_train_batch_size": AT_LEAST_1,
    "per_device_eval_batch_size": AT_LEAST_1,
    "gradient_accumulation_steps": AT_LEAST_1,
    "torch_empty_cache_steps": AT_LEAST_1,
    "eval_accumulation_steps": AT_LEAST_1,
    "swa_interval": AT_LEAST_1,
    "swa_start": POSITIVE,
    "ema_decay": (lambda value: 0 < value <= 1, "more than 0, up to 1"),
    "learning_rate": NOT_NEGATIVE,
    "warmup_steps": NOT_NEGATIVE,
    "weight_decay": NOT_NEGATIVE,
    "max_grad_norm": (lambda value: True, "a number, 0 for no clipping"),  # less than 0, too, as in the original
    "dataloader_num_workers": NOT_NEGATIVE,
    "ddp_timeout": POSITIVE,
    "hang_seconds": NOT_NEGATIVE,
    "memory_copy_interval": NOT_NEGATIVE,
    "label_smoothing_factor": SHARE_OF_ALL,
    "seed": SEED,
    "data_seed": SEED,
}


def _ranges(arguments: Fields) -> Iterator[Fault]:
    for name, (fits, allowed) in BOUNDS.items():
        value = getattr(arguments, name)
        if value is not None and (math.isnan(value) or not fits(value)):
            yield Fault(name, f"is {value}.", f"Use {allowed}.")


CHECKS: tuple[Callable[[Fields], Iterator[Fault]], ...] = (
    _ranges,
    _epochs,
    _choices,
    _intervals,
    _best_model,
    _precision,
    _schedule,
    _hub,
    _average,
    _loader,
)
