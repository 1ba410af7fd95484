"""Resume a run of the Trainer: find the checkpoint, report changed arguments, restore state and data position."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from xdpx.checkpoints import folders
from xdpx.datasets.plan import Position
from xdpx.engines.pytorch import nonfinite
from xdpx.engines.pytorch.strategies import shard_files
from xdpx.engines.pytorch.world import World
from xdpx.logger import log
from xdpx.optimizers.pytorch.given import Given
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.arguments.fields import OwnFields
from xdpx.trainer.data.plan import FOR_EVER
from xdpx.trainer.files import checkpoint_files as trainer_files
from xdpx.trainer.files import rng
from xdpx.trainer.files.checkpoint_files import TrainerCheckpoint
from xdpx.trainer.hooks.state import TrainerState, restore_states, states_of
from xdpx.trainer.parts import Continued, Midway, TrainerRun
from xdpx.utils import io

FREE = ("output_dir", "resume_from_checkpoint", "do_train", "do_eval", "do_predict", "overwrite_output_dir", "run_name",
        "resume_hyperparameters", "resume_changed", "hang_seconds", "memory_copy_interval")  # fmt: skip
"""Arguments that may change when a run is resumed, without a warning."""


def digest_of(args: TrainingArguments) -> str:
    """Return a digest of all arguments but those that may change when a run is resumed."""
    known = {name: value for name, value in args.to_dict().items() if name not in FREE}
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


def find(wanted: str | bool | None, parent: str, ranks: folders.Ranks, *, changed: bool = False) -> str | None:
    """Return the checkpoint to resume from, after checking its files; None to start over.

    Args:
        wanted: a path, True for the newest valid one, False or None.
        parent: the folder of the run.
        ranks: the processes that resume together.
        changed: also accept one whose weights were changed, or from which files were removed.

    Raises:
        ValueError: there is none, or the given one is damaged; the message says how.
    """
    if wanted is None or wanted is False:
        return None
    if wanted is not True:
        return TrainerCheckpoint.checked(wanted, ranks=ranks, changed=changed).path
    newest = ranks.broadcast(folders.newest(parent, changed=changed) if ranks.rank == 0 else None)
    if newest is None:
        raise ValueError(
            f"resume_from_checkpoint: is True, but there is no valid checkpoint in {parent}. Train without it "
            "first, or give the path of one, which may then have weights that are not finite. "
            "resume_changed='weights' also accepts one whose weights were changed, or whose files were removed."
        )
    return str(newest)


def warn_of_nonfinite(model: nn.Module, checkpoint: str) -> None:
    """Warn if the loaded weights are NaN or infinite, as they can be only when the checkpoint was given by path."""
    if not nonfinite.all_finite(model.parameters()):
        log.warning(
            f"{checkpoint}: ITS WEIGHTS ARE NAN OR INFINITE, and so will be all that is trained from them. Resume with "
            "True, which takes the newest checkpoint that is finite, and set nonfinite_steps='skip'."
        )


def read_state(checkpoint: str) -> TrainerState:
    """Read the state of the run; if the run was moved, update the path of the best checkpoint."""
    path = io.join(checkpoint, "trainer_state.json")
    if not io.isfile(path):
        raise ValueError(f"{checkpoint}: has no trainer_state.json: a model, but no run to continue.")
    state = TrainerState.load_from_json(path)
    best = folders.beside(state.best_model_checkpoint, io.parent(checkpoint))
    if best is None and state.best_model_checkpoint is not None:
        log.warning(
            f"The best checkpoint {state.best_model_checkpoint} recorded in the resumed state does not exist anymore. "
            "Ignoring it for this run: a new best one will be looked for.",
            under="transformers.trainer",
        )
    state.best_model_checkpoint = best
    return state


def warn_of_changes(run: TrainerRun, checkpoint: str) -> None:
    """Warn of every argument that differs from the checkpoint, and say which of the values apply."""
    saved = TrainerCheckpoint(checkpoint).arguments()
    usual = asdict(OwnFields())  # a checkpoint lists only those that were set
    changes = trainer_files.changed_arguments({**usual, **(saved or {})}, usual | run.args.to_dict(), ignore=FREE)
    if saved is None:
        changes = _changes_of_the_original(run, read_state(checkpoint))
    if changes:
        holds = (
            "so do learning rate, weight decay and betas, because resume_hyperparameters is 'given'."
            if run.args.resume_hyperparameters == "given"
            else "learning rate, weight decay and betas stay as they were, in the optimizer's state. To change those "
            "too, set resume_hyperparameters='given'."
        )
        if any(change.startswith(("seed:", "data_seed:")) for change in changes):
            holds = f"an epoch that has begun keeps its order; {holds}"
        log.warning(
            f"continuing {checkpoint} with other arguments: {'; '.join(changes)}. Settings of logging, evaluation and "
            f"saving take their new values; {holds}"
        )


def _changes_of_the_original(run: TrainerRun, state: TrainerState) -> list[str]:
    """Return the changed arguments among the few that the original saves in its state."""
    now = {name: getattr(run.args, name) for name in ("logging_steps", "eval_steps", "save_steps")}
    now["train_batch_size"] = run.batch_size
    before = {name: getattr(state, name) for name in now}
    return trainer_files.changed_arguments(before, {name: value for name, value in now.items() if value is not None})


def place(run: TrainerRun, checkpoint: str, global_step: int) -> Position:
    """Return the position in the data to resume at; set `run.continued`, and where the training of `run.plan` ends."""
    found = TrainerCheckpoint(checkpoint)
    progress = found.progress() or {}
    own = found.loader(run.parts.world.rank, run.parts.world.size)
    midway = Midway(**progress["midway"]) if progress.get("midway") else None
    run.continued = Continued(checkpoint, own, progress.get("open_epoch"), progress.get("unlogged") or {}, midway)
    if "position" in progress:
        position = run.plan.carried_over(Position(**progress["position"]), progress["samples_per_batch"])
    else:  # written by an older version, which kept the loader state, or by the original
        position = run.plan.position(global_step, own or progress.get("data"))
    left = progress.get("open_epoch")
    in_it = position.batches > 0 if left is None else position.epoch == left + 1  # None: saved at the end of the epoch
    if progress.get("leaves_epoch") and in_it:
        position = Position(position.epoch + 1)
    _move_end(run, checkpoint, progress, position, global_step)
    return Position(position.epoch) if run.args.ignore_data_skip else position


def _move_end(run: TrainerRun, checkpoint: str, saved: Mapping[str, Any], place: Position, global_step: int) -> None:
    """Set the last step of the resumed training, which changes if an epoch now has another number of steps."""
    plan = run.plan
    if plan.num_epochs == FOR_EVER:
        run.plan = plan.prolonged(place, global_step)
        return
    before, now = saved.get("steps_per_epoch", plan.steps_per_epoch), plan.steps_per_epoch
    if before == now:  # steps that are missing were left out by a callback, which ended an epoch early
        run.plan = plan.shifted(saved.get("offset", 0), run.args.max_steps)
        return
    run.plan = plan.shifted(global_step - plan.steps_to(place), run.args.max_steps)
    log.warning(
        f"{checkpoint}: an epoch had {before:,} steps when it was saved, and has {now:,} now. Training continues at "
        f"the same place, and ends at step {run.plan.max_steps:,}, in epoch {run.plan.num_epochs:,}."
    )


def load_training_state(run: TrainerRun, checkpoint: str) -> None:
    """Restore optimizer, schedule and scaler, each if it was saved; warn of what is missing."""
    saved, args, strategy = TrainerCheckpoint(checkpoint), run.args, run.parts.strategy
    given = Given(run.optimizer, run.lr_scheduler) if args.resume_hyperparameters == "given" else None
    optimizer, scheduler, scaler = saved.optimizer(), saved.scheduler(), saved.scaler()
    if shard_files.has_optimizer(checkpoint):
        strategy.sharded_load(checkpoint, optimizer=run.optimizer)
    elif optimizer is not None:
        strategy.load_optimizer_state(run.model_wrapped, run.optimizer, optimizer)
        _refuse_another_rule(run.optimizer, checkpoint)
    if scheduler is not None:
        _load_schedule(run.lr_scheduler, scheduler, checkpoint)
    if given is not None:
        before = (saved.arguments() or {}).get("learning_rate")
        given.put_back(args.learning_rate / before if before else 1.0)
    if scaler is not None and run.parts.precision.scaler is not None:
        run.parts.precision.scaler.load_state_dict(scaler)
    missing = saved.missing()
    if missing:
        log.warning(
            f"{checkpoint}: {' '.join(missing)} What is missing starts over, so training does not continue exactly."
        )


def _load_schedule(schedule: Any, saved: dict[str, Any], checkpoint: str) -> None:
    """Load the state of a learning rate schedule. Raises ValueError if it is that of another kind of schedule."""
    try:
        schedule.load_state_dict(saved)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{checkpoint}: the state of its learning rate schedule is not that of {type(schedule).__name__} "
            f"({type(error).__name__}: {error}). Resume with the original lr_scheduler_type; or remove its "
            "scheduler.pt and set resume_changed='weights' to start a new schedule."
        ) from error


def _refuse_another_rule(optimizer: Any, checkpoint: str) -> None:
    """Raise ValueError if the loaded state is that of another optimizer: its first step would fail."""
    needed = set(getattr(optimizer, "defaults", {})) - {"differentiable"}  # which torch adds when it loads a state
    lacking = sorted({name for group in optimizer.param_groups for name in needed - group.keys()})
    if lacking:
        raise ValueError(
            f"{checkpoint}: the state of its optimizer has no {', '.join(lacking)}, which {type(optimizer).__name__} "
            "needs: it belongs to another optimizer. Resume with the original `optim`; or remove its optimizer.pt and "
            "set resume_changed='weights' to start a new optimizer with these weights."
        )


def restore_callbacks(run: TrainerRun) -> None:
    """Restore the states of callbacks and control from the run's state if the arguments ask for it; else warn."""
    saved = run.state.stateful_callbacks
    if run.args.restore_callback_states_from_checkpoint:
        restore_states(run.exportable(), saved)
        return
    begun = states_of(each for each in run.exportable() if each is not run.control)
    for name in sorted(begun.keys() & saved.keys()):
        if _counted(saved[name]) != _counted(begun[name]):
            log.warning(
                f"{name}: begins anew, but had come to {_counted(saved[name])} when the run was stopped, which may "
                "therefore end elsewhere now. Set restore_callback_states_from_checkpoint=True to go on with what "
                "callbacks had counted."
            )


def _counted(states: Any) -> str:
    """Return what a callback, or each of several of a class, has counted: its state without its own arguments."""
    several = states if isinstance(states, list) else [states]
    counted = [each.get("attributes", each) if isinstance(each, Mapping) else each for each in several]
    return ", ".join(json.dumps(each, sort_keys=True, default=str) for each in counted)


def restore_randomness(world: World, checkpoint: str) -> None:
    """Restore the random generators of this process from the checkpoint."""
    rng.restore(TrainerCheckpoint(checkpoint).rng(world.rank, world.size), where=checkpoint)
