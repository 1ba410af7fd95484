"""Fields of the training of a task: length, intervals of saving, logging and evaluating, and initial weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import jax

from xdpx.config.faults import Fault
from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.optimizers.spmd.learner import Learner

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


class CheckpointLoadingRules(BaseHParams):
    """Which variables of a new run are initialised from a checkpoint of another run.

    Attributes:
        load_rules: (regular expression, template) pairs. A variable whose whole name, `params/<path>`, one matches
            begins as the variable whose name the template gives, with `{}` for each group. The first that matches wins.
        ignore_rules: regular expressions of whole names that no rule touches.
        safe_load: a rule that matches nothing is an error, not just a warning.
        step: of the checkpoint; None for the newest.
        load_step: also go on counting updates from there.
        load_opt_states: also take over the optimizer's state, whole.
        load_ema_states: take averaged weights, where the checkpoint has them, instead of the last ones.
    """

    load_rules: list[tuple[str, str]] | tuple[tuple[str, str], ...] = ((r"(.*)", "{}"),)
    ignore_rules: list[str] | tuple[str, ...] = ()
    safe_load: bool = False
    step: int | None = None
    load_step: bool = False
    load_opt_states: bool = False
    load_ema_states: bool = True


class TrainHParams(BaseHParams):
    """How a task is trained. Intervals are in updates.

    Attributes:
        learner: updates the weights from their gradients.
        num_train_steps: updates of the whole run.
        accumulate_batches: batches of the input in one update.
        random_seed: decides initial weights, dropout and noise.
        matmul_precision: of products of float32 (`highest`, `bfloat16`, ...); None leaves what the backend finds best.
        save_interval_steps: between checkpoints.
        save_max_to_keep: how many of the newest stay; None for all.
        save_keep_interval_duration: beside them, one per so much time stays, e.g. `12h`; None for none.
        max_inflight_steps: updates that may wait on the device.
        summary_interval_steps: between summaries for TensorBoard.
        log_train_output_interval_steps: between rows of the log; None for `summary_interval_steps`.
        summary_accumulate_interval_steps: for compatibility with Pax; None or 1: losses, metrics and what layers
            record are means over all updates since the last summaries; what `learning/` has is of the last update.
        variable_norm_summary: whether summaries have the size of each weight.
        eval_interval_steps: between evaluations within training; 0 for none.
        eval_skip_train: do not evaluate on the next batch of the training input.
        eval_use_ema_states: evaluate averaged weights.
        decode_interval_steps: between decodings within training; None for none but the last.
        decode_start_after_n_steps: no decoding within training before.
        decode_use_ema_states: decode with averaged weights.
        enforce_input_specs: refuse a first batch of other shapes or types than `input_specs` says, and any later one
            that lacks an array or has one with more or fewer dimensions; evaluated ones too, if they have such arrays.
        enable_input_checkpointing: keep the place in the training data in checkpoints.
        init_from_checkpoint_rules: job folder of another run -> which variables begin as there. Only for a new run.
        profiler_capture_step: number of updates after which a trace is begun; None for none.
        profiler_num_steps: updates in the trace, at least.
        profiler_min_duration_sec: seconds in the trace, at least.
        gc_interval_steps: updates between collections of garbage, which is left alone otherwise; 0 leaves it to Python.
        always_use_train_for_model_init: trace the model for training when it is built, else for evaluation.
    """

    learner: Any = sub_config_field(Learner.HParams)
    num_train_steps: int = 10_000_000
    accumulate_batches: int = 1
    random_seed: int = 1234
    matmul_precision: str | None = None
    save_interval_steps: int = 5000
    save_max_to_keep: int | None = 10
    save_keep_interval_duration: str | None = "12h"
    max_inflight_steps: int = 2
    summary_interval_steps: int = 100
    log_train_output_interval_steps: int | None = None
    summary_accumulate_interval_steps: int | None = None
    variable_norm_summary: bool = True
    eval_interval_steps: int = 100
    eval_skip_train: bool = False
    eval_use_ema_states: bool = False
    decode_interval_steps: int | None = None
    decode_start_after_n_steps: int = 0
    decode_use_ema_states: bool = False
    enforce_input_specs: bool = True
    enable_input_checkpointing: bool = True
    init_from_checkpoint_rules: dict[str, Any] | None = None
    profiler_capture_step: int | None = None
    profiler_num_steps: int = 2
    profiler_min_duration_sec: float = 1.0
    gc_interval_steps: int = 0
    always_use_train_for_model_init: bool = True


LEAST = {
    "num_train_steps": 1, "accumulate_batches": 1, "max_inflight_steps": 1, "save_max_to_keep": 0,
    "save_interval_steps": 0, "summary_interval_steps": 0, "log_train_output_interval_steps": 0,
    "eval_interval_steps": 0, "decode_interval_steps": 0, "decode_start_after_n_steps": 0, "gc_interval_steps": 0,
}  # fmt: skip
"""The smallest value of each field that has one."""


def faults_of(train: Any, learner: Learner) -> Iterator[Fault]:
    """Yield the faults of `TrainHParams`, also where the learner built from them lacks what they need."""
    for name, least in LEAST.items():
        value = getattr(train, name)
        if value is not None and value < least:
            yield Fault(f"train.{name}", f"is {value}.", f"Use {least} or more.")
    if train.summary_accumulate_interval_steps not in {None, 1}:
        problem = f"is {train.summary_accumulate_interval_steps}; summaries are means over all updates since the last."
        yield Fault("train.summary_accumulate_interval_steps", problem, "Leave it out, or set it to 1.")
    if train.save_keep_interval_duration is not None:
        try:
            duration(train.save_keep_interval_duration)
        except ValueError as error:
            yield Fault("train.save_keep_interval_duration", str(error))
    try:
        with jax.default_matmul_precision(train.matmul_precision):
            pass
    except ValueError as error:
        yield Fault("train.matmul_precision", f"is '{train.matmul_precision}'.", f"JAX says: {error}")
    if learner.hparams.optimizer.ema_decay or type(learner).averaged is not Learner.averaged:
        return
    for name in ("eval_use_ema_states", "decode_use_ema_states"):
        if getattr(train, name):
            remedy = "Set ema_decay in the learner's optimizer, e.g. 0.999, or leave this out."
            yield Fault(f"train.{name}", "is True, but the learner averages no weights.", remedy)


def duration(text: str) -> timedelta:
    """Return the length of time in a text: `12h`, `30m`, `1d12h`. Raises ValueError for other texts."""
    parts = _DURATION.findall(text.replace(" ", ""))
    if not parts or "".join(number + unit for number, unit in parts) != text.replace(" ", ""):
        raise ValueError(f"'{text}' is not a length of time. Write numbers with s, m, h, d or w, e.g. 12h or 1d12h.")
    return sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta())
