"""Decide whether a run begins or continues: what exists already, what has changed since, where exactly it resumes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from xdpx.checkpoints import layout
from xdpx.checkpoints.checkpointer import Checkpointer, NoCheckpoint
from xdpx.config.args_file import ARGS_FILE, newest_args, write_args, write_starter_config
from xdpx.config.faults import THIS_RUN, ConfigError, Fault, first_few, refusal
from xdpx.config.loading import Run, fingerprint
from xdpx.config.stored_args import read_args
from xdpx.datasets.store import rebuilt
from xdpx.logger import log
from xdpx.runs import run_folder
from xdpx.runs.changed_keys import lasting
from xdpx.runs.parameters import TrainParameters
from xdpx.training.progress import Progress
from xdpx.training.status import Status, read_status
from xdpx.utils import io
from xdpx.utils.distributed_utils import is_master

_OF_A_RESUME = re.compile(r"(?:args|starter_config|snapshot)\.resume-(\d+)\.(?:py|hjson|zip)")
"""Files that a resumed run wrote; the number is the step that it continued from."""


def step_to_continue(run: Run, settings: TrainParameters, checkpointer: Checkpointer) -> int | None:
    """Return the step to continue from; None to begin.

    Raises:
        NoCheckpoint: there should be a full state, but none is valid. A run never restarts over existing checkpoints,
            except over those that the same command wrote before it had saved its first full state.
    """
    if not settings.resume:
        return None
    step = checkpointer.newest_state()
    if step is not None:
        return step
    status = read_status(settings.save_dir)
    begun = status is not None and status.status != "finished" and status.fingerprint == fingerprint(run)
    nothing_there = not checkpointer.state_steps() and (begun or not checkpointer.weight_steps())
    if settings.resume == "auto" and nothing_there:
        return None
    raise NoCheckpoint(_nothing_to_resume(settings.save_dir, checkpointer))


def _nothing_to_resume(folder: str, checkpointer: Checkpointer) -> str:
    states = checkpointer.state_steps()
    if states:
        return f"{folder}: none of the states of steps {states} is intact, so there is nothing to resume from."
    return (
        f"{folder}: contains no checkpoint-<step>.pts to resume from. It is written with resume: auto or "
        "save_full_checkpoint: true. To train on from weights alone, set pretrained_model to a checkpoint-<step>.pt "
        "and use a new save_dir."
    )


def not_finite(folder: str, step: int) -> str:
    """Return the message for a state with weights that are NaN or infinite, from which training cannot resume."""
    name = layout.state_file(step)
    return (
        f"{folder}: weights in {name} are NaN or infinite, so there is nothing to train on from. Move {name} and what "
        "is newer away to continue from the state before, or begin a new run in a new save_dir."
    )


def already_done(run: Run, settings: TrainParameters) -> str | None:
    """Return a message if this very command has already finished; None if there is work left.

    Raises:
        ConfigError: it has, but its data are others by now.
    """
    status = _finished(run, settings) if settings.resume == "auto" else None
    if status is None:
        return None
    if fault := data_fault(run, settings):
        raise ConfigError(THIS_RUN, [fault])
    return f"{settings.save_dir}: already finished at step {status.step} ({status.reason})."


def data_fault(run: Run, settings: TrainParameters) -> Fault | None:
    """Return a fault if this very command has finished, and x-prepro has rebuilt its data since; else None."""
    status = _finished(run, settings)
    changed = rebuilt(settings.data_dir, status.data or {}) if status is not None else []
    if not changed:
        return None
    files, folder = first_few(changed, 4), settings.save_dir
    problem = f"is '{settings.data_dir}', where {files} was rebuilt after {folder} had been trained and scored."
    return Fault("data_dir", problem, "Train again, with overwrite: true or another save_dir; or restore the old data.")


def _finished(run: Run, settings: TrainParameters) -> Status | None:
    """Return the status of save_dir if this very command has finished there; None if there is work left."""
    status = read_status(settings.save_dir)
    if status is None or status.status != "finished" or status.fingerprint != fingerprint(run):
        return None
    return None if status.train_steps != settings.train_steps and status.step < status.total_steps else status


def record_parameters(run: Run, folder: str, step: int | None) -> None:
    """Write args.py and the starter config; for a resumed run only if they changed, with the step in their names.

    Files written at a later step belong to updates that will be repeated, and are removed.
    """
    if step is not None:
        for name in io.listdir(folder):
            written = _OF_A_RESUME.fullmatch(name)
            if written and int(written[1]) > step:
                io.remove(io.join(folder, name))
    before = newest_args(folder) if step is not None else None
    if before is None:
        write_args(run, io.join(folder, ARGS_FILE))
        write_starter_config(run, io.join(folder, run_folder.STARTER_CONFIG), run.meta_keys)
    elif lasting(read_args(before)) != lasting(run.values):
        write_args(run, io.join(folder, f"args.resume-{step}.py"))
        write_starter_config(run, io.join(folder, f"starter_config.resume-{step}.hjson"), run.meta_keys)


def same_data(data_dir: str, saved: Mapping[str, Any]) -> dict[str, str]:
    """Check that the training data is unchanged since the checkpoint, and return the digests of its files.

    Added or removed shards are allowed; so is another data_dir, since that was chosen on purpose.

    Args:
        data_dir: the data to train on now.
        saved: metadata of the state to continue from.

    Raises:
        ConfigError: a file of the same name has another content.
    """
    if saved["plan"]["data_dir"] != data_dir:
        return {}
    trained_on: dict[str, str] = saved["data"]
    if changed := rebuilt(data_dir, trained_on):
        problem = f"is '{data_dir}', where {first_few(changed, 4)} was rebuilt after this run was trained on it."
        remedy = "Restore the old data, or start a new run. To continue on other data, put them in their own folder."
        raise refusal("data_dir", problem, remedy)
    return trained_on


def warn_of_splits(before: Collection[str], now: Collection[str], *, total: int) -> None:
    """Warn if a pattern in train_subset selects other files than at the checkpoint, so that an epoch is another one.

    Args:
        before: names of the files that the checkpoint was trained on.
        now: of those that training goes on with.
        total: updates of the whole schedule, which stays as it is.
    """
    changes = {
        "new": [each for each in now if each not in before],
        "gone": [each for each in before if each not in now],
    }
    told = "; ".join(f"{first_few(names, 4)}: {what}" for what, names in changes.items() if names)
    if told and before and is_master():
        log.warning(
            f"train_subset selects other splits than at the checkpoint ({told}). The rest of the epoch comes in "
            "another order, so that some of its rows are trained on again or left out, and the run keeps its "
            f"{total} updates, whatever max_epoch says. List the splits by name in train_subset to count them anew."
        )


def with_own_architecture(run: Run, folder: str) -> Run:
    """Return the run with the architecture of config.json in its own folder, if there is one.

    All weights come from the state; the pretrained model they once started from may be gone or have changed.
    """
    start = run.values.get("pretrained_model")
    if not start and not run.values.get("auto_model"):
        return run
    values = {**run.values, **({"from_tf": False} if "from_tf" in run.values else {})}
    if io.isfile(io.join(folder, "config.json")):
        return replace(run, values={**values, "pretrained_model": folder, "auto_model": None})
    return replace(run, values={**values, "pretrained_model": start if start and io.exists(start) else None})


def stage_end(before: Status | None, *, now: int, total: int, train_steps: float | None) -> int:
    """Return the last update of this stretch.

    An interrupted stretch keeps its end: the same command leads to the same step, however often it was killed.

    Args:
        before: how the run stood; None when it is new.
        now: updates taken so far.
        total: updates of the whole schedule.
        train_steps: an int counts from now, a float is a share of `total`; None is for all.
    """
    if train_steps is None:
        return total
    if before is not None and before.status != "finished" and before.train_steps == train_steps:
        return min(before.until, total)
    length = max(1, round(train_steps * total)) if isinstance(train_steps, float) else train_steps
    return min(now + length, total)


def progress_of(saved: Mapping[str, Any], *, group_size: int) -> Progress:
    """Return the saved progress, or that of a new run if nothing is saved."""
    if not saved:
        return Progress(group_size=group_size)
    progress = Progress.from_dict(saved["progress"])
    carry_over(progress, group_size=group_size)
    return progress


def carry_over(progress: Progress, *, group_size: int) -> None:
    """Convert the position in the epoch to the new number of samples per update, if that has changed."""
    if progress.group_size != group_size:
        done = progress.group * progress.group_size
        progress.group = -(-done // group_size)
        log.info(
            f"samples per update changed from {progress.group_size} to {group_size}: {done} of this epoch are done"
        )
        progress.group_size = group_size


def load(checkpointer: Checkpointer, step: int) -> dict[str, Any]:
    """Return the full state of a step.

    Raises:
        ConfigError: it was not written by x-train.
        OSError: it cannot be read.
    """
    saved = checkpointer.load_state(step)
    missing = {"engine", "progress", "callbacks", "saving", "metadata"} - set(saved)
    if missing:
        problem = f"the state of step {step} lacks {', '.join(sorted(missing))}."
        raise ConfigError(checkpointer.folder, [Fault("resume", problem, "It was not written by x-train.")])
    return saved
