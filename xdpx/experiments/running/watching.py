"""Modes `eval`, `decode`, `decode_once` and `infer`: process the checkpoints that a job writes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from xdpx.checkpoints import spmd_folders
from xdpx.config.faults import ConfigError, Fault
from xdpx.experiments.running import job_folder
from xdpx.experiments.running.callbacks import run_all
from xdpx.experiments.running.parts import Parts
from xdpx.experiments.running.programs import DecodeProgram, EvalProgram, InferProgram, Program
from xdpx.experiments.running.starting import checkpoint_in, load_weights, weights_in
from xdpx.experiments.running.vocabularies import refuse_unknown_vocabulary
from xdpx.logger import log
from xdpx.tasks.spmd.early_stopping import Mode, is_enough
from xdpx.training.status import read_status
from xdpx.utils import io


def look_at_checkpoints(parts: Parts) -> str:
    """Process one checkpoint, or each one as it appears, as the mode says; return a summary. Called on all processes.

    Raises:
        ConfigError: the experiment has no inputs for the mode, a folder contains something else than a job, or there is
            no checkpoint.
    """
    job_folder.refuse_another(parts, parts.folder)
    if parts.options.mode == "decode" and parts.options.restore_checkpoint_dir:
        job_folder.refuse_another(parts, parts.options.restore_checkpoint_dir, "restore_checkpoint_dir")
    programs = _programs(parts)
    if not programs:
        which = (
            "datasets() has no input with is_training=False" if parts.options.mode == "eval" else "decode_datasets()"
        )
        fault = Fault("mode", f"is '{parts.options.mode}', but {which} is empty.", "Give the experiment inputs.")
        raise ConfigError(type(parts.experiment).__name__, [fault])
    count = 0
    try:
        for checkpoint in _checkpoints(parts):
            if not count and parts.is_first:
                _warn_of_another_model(parts, checkpoint)
                job_folder.describe(parts)
            _look(parts, programs, checkpoint)
            count += 1
    finally:
        for program in programs:
            program.close()
    return f"{parts.options.mode}: evaluated {count} checkpoints"


def _programs(parts: Parts) -> list[Program]:
    mode = parts.options.mode
    if mode == "infer":
        return [InferProgram(parts, data, "infer") for data in parts.decode_inputs()]
    found: list[Program] = []
    if mode == "eval" or parts.options.eval_during_decode:
        found += [EvalProgram(parts, data, "eval_test") for data in parts.eval_inputs()]
    if mode != "eval":
        found += [DecodeProgram(parts, data, "decode_test") for data in parts.decode_inputs()]
    return found


def _warn_of_another_model(parts: Parts, checkpoint: str) -> None:
    job = io.parent(io.parent(checkpoint))
    found = job_folder.other_model(parts, job)
    if found:
        remedy = f"Unless this is on purpose, set them as they were: {job_folder.CLASS_VARS} there lists all fields."
        log.warning(f"the model is not the one that the job in {job} trained: {found} {remedy}")


def _look(parts: Parts, programs: Sequence[Program], checkpoint: str) -> None:
    step = int(spmd_folders.read_metadata(checkpoint)["step"])
    results, ask = results_at(parts, programs, checkpoint), parts.task.early_stopping
    mode: Mode = "eval" if parts.options.mode == "eval" else "decode"
    last = step >= parts.train.num_train_steps
    if ask is not None and is_enough(ask, results, mode, step, last=last, path=checkpoint):
        log.info(f"early_stopping_fn: step {step} reached the target")


def results_at(parts: Parts, programs: Sequence[Program], checkpoint: str) -> dict[str, float]:
    """Run programs on a checkpoint; its weights are only read if outputs are missing.

    Returns:
        `<program>/<name>` -> value of their metrics.

    Raises:
        ConfigError: the vocabulary of an input has changed since the weights were trained.
    """
    metadata, weights = spmd_folders.read_metadata(checkpoint), weights_in(checkpoint)
    step = int(metadata["step"])
    states: dict[int, Any] = {}
    results: dict[str, float] = {}
    for program in programs:
        refuse_unknown_vocabulary(parts, program.data, metadata["facts"], checkpoint)
        program.weights_of = lambda step: weights
        engine = parts.engine if isinstance(program, EvalProgram) else parts.decoding_engine
        if not program.is_done(step) and id(engine) not in states:
            states[id(engine)] = load_weights(parts, engine, checkpoint)
        results |= run_all([program], states.get(id(engine)), step)
    return results


def _checkpoints(parts: Parts) -> Iterator[str]:
    """Yield the checkpoints to process: a single one, or all existing and future ones, each once and in order."""
    options = parts.options
    folder = options.restore_checkpoint_dir or parts.folder
    if options.mode in {"decode_once", "infer"}:
        yield checkpoint_in(folder, options.restore_checkpoint_step, parts=parts)
        return
    parent = io.join(folder, spmd_folders.PARENT)
    seen, last, told = -1, int(parts.train.num_train_steps), False
    while True:
        # Read before the folder is listed, so that the checkpoints that an ending job writes are not missed.
        ended = parts.ranks.broadcast(_has_ended(folder))
        for step in parts.ranks.broadcast([step for step in spmd_folders.steps(parent) if step > seen]):
            path = io.join(parent, spmd_folders.folder_name(step))
            if parts.ranks.broadcast(not spmd_folders.problems(path) if parts.is_first else None):
                yield path
            seen = step
        if seen >= last or ended or not options.watch:
            return
        if seen < 0 and not told:
            told = True
            missing = "" if io.isdir(folder) else ", which does not exist yet"
            log.info(
                f"waiting for the first checkpoint of a job in {folder}{missing}: looks for it every "
                f"{options.poll_seconds:g} s until the job has ended. Ctrl-C ends the waiting"
            )
        time.sleep(options.poll_seconds)


def _has_ended(folder: str) -> bool:
    status = read_status(folder)
    return status is not None and status.status == "finished"
