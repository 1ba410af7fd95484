"""Trainer callbacks and trackers in the training of an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.spmd_keys import SPMD
from xdpx.experiments.fields import fields_of
from xdpx.experiments.running.parts import Parts
from xdpx.reports.trackers.choosing import own_trackers, tracker_for
from xdpx.trainer.hooks import listed
from xdpx.trainer.hooks.arguments import CallbackArguments

METRIC = "log_pplx"
"""The metric that decides which evaluation is best, without the prefix `eval_`."""


def user_callbacks_of(parts: Parts) -> list[Any]:
    """Return the callbacks and trackers that the experiment and its run options request.

    Raises:
        ConfigError: lists each that is unknown, cannot be created, or modifies a PyTorch model.
    """
    experiment, options = parts.experiment, parts.options
    entries = [*experiment.CALLBACKS, *options.callbacks]
    trackers = [*experiment.REPORT_TO, *options.report_to]
    faults = [*_faults(entries), *listed.faults_of_trackers(trackers)]
    if faults:
        raise ConfigError(type(experiment).__name__, faults)
    return [*own_trackers(trackers), *(_made(entry) for entry in entries)]


def _faults(entries: Sequence[Any]) -> Iterator[Fault]:
    """Yield the faults of each entry: a name, {name: {argument: value}}, a class, an object or a function."""
    for entry in entries:
        if isinstance(entry, str | Mapping):
            yield from listed.faults_of([entry], engine=SPMD)
        elif getattr(entry, "changes_model", False):
            name = entry.__name__ if isinstance(entry, type) else type(entry).__name__
            yield Fault("callbacks", f"{name} changes the model that PyTorch computes; here JAX does.", "Leave it out.")


def _made(entry: object) -> Any:
    return listed.build([entry])[0] if isinstance(entry, str | Mapping) else tracker_for(entry)


def arguments_of(parts: Parts) -> CallbackArguments:
    """Return what callbacks receive as `args`: the settings under the Trainer's names, plus every field."""
    experiment, train = parts.experiment, parts.train
    own = {name: getattr(experiment, name) for name in fields_of(type(experiment)) if hasattr(experiment, name)}
    evaluates = train.eval_interval_steps > 0 and parts.options.eval_on_test
    known = {
        "max_steps": int(train.num_train_steps),
        "num_train_epochs": 1,
        "per_device_train_batch_size": parts.rows // (train.accumulate_batches * parts.mesh.size) or 1,
        "gradient_accumulation_steps": train.accumulate_batches,
        "seed": train.random_seed,
        "logging_strategy": "steps",
        "logging_steps": train.log_train_output_interval_steps or train.summary_interval_steps,
        "eval_strategy": "steps" if evaluates else "no",
        "eval_steps": train.eval_interval_steps if evaluates else None,
        "metric_for_best_model": METRIC,
        "greater_is_better": False,
        "save_strategy": "steps" if parts.options.enable_checkpoint_saving else "no",
        "save_steps": train.save_interval_steps,
        "load_best_model_at_end": parts.options.enable_checkpoint_saving,  # not loaded, but not deleted either
    }
    return CallbackArguments(parts.folder, own, known, door=f"the experiment {type(experiment).__name__}")
