"""Go on where a run of the Trainer stood: which checkpoint, what is different now, and at which sample."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

from xdpx.arguments.own_fields import OwnFields
from xdpx.checkpoints import folders, rng, trainer_files
from xdpx.checkpoints.trainer_files import TrainerCheckpoint
from xdpx.engines.pytorch.strategies import shard_files
from xdpx.logger import log
from xdpx.optimizers.pytorch.given import Given
from xdpx.trainer.hooks.state import TrainerState
from xdpx.trainer.stepping import Place
from xdpx.utils import io

FREE = ("output_dir", "resume_from_checkpoint", "do_train", "do_eval", "do_predict", "overwrite_output_dir", "run_name",
        "resume_hyperparameters")  # fmt: skip
"""Arguments that may change between two stretches of a run without a word."""


def find(wanted: str | bool | None, parent: str, ranks: folders.Ranks) -> str | None:
    """Give the folder to continue from, after looking at its files; None to begin anew.

    Args:
        wanted: a path, True for the newest that is whole, False or None.
        parent: the folder of the run.
        ranks: who resumes together.

    Raises:
        ValueError: there is none, or the one that is named is damaged; the message says how.
    """
    if wanted is None or wanted is False:
        return None
    if wanted is not True:
        return TrainerCheckpoint.checked(wanted, ranks=ranks).path
    newest = ranks.broadcast(folders.newest(parent) if ranks.rank == 0 else None)
    if newest is None:
        raise ValueError(
            f"resume_from_checkpoint: is True, but there is no valid checkpoint in {parent}. Train without it "
            "first, or give the path of one."
        )
    return str(newest)


def read_state(checkpoint: str) -> TrainerState:
    """Read the state of the run; the best checkpoint is found again where the run was moved."""
    path = io.join(checkpoint, "trainer_state.json")
    if not io.isfile(path):
        raise ValueError(f"{checkpoint}: has no trainer_state.json: a model, but no run to continue.")
    state = TrainerState.load_from_json(path)
    best = folders.beside(state.best_model_checkpoint, io.parent(checkpoint))
    if best is None and state.best_model_checkpoint is not None:
        log.warning(f"the best checkpoint {state.best_model_checkpoint} is gone: a new best one will be looked for.")
    state.best_model_checkpoint = best
    return state


def warn_of_changes(trainer: Any, checkpoint: str) -> None:
    """List every argument that is another one now, and say what holds."""
    saved = TrainerCheckpoint(checkpoint).arguments()
    usual = asdict(OwnFields())  # written down only where they are set
    changes = trainer_files.changed_arguments({**usual, **(saved or {})}, usual | trainer.args.to_dict(), ignore=FREE)
    if saved is None:
        changes = _changes_of_the_original(trainer, read_state(checkpoint))
    if changes:
        holds = (
            "and so do learning rate, weight decay and betas, for resume_hyperparameters is 'given'."
            if trainer.args.resume_hyperparameters == "given"
            else "learning rate, weight decay and betas stay as they were, in the optimizer's state. To change those "
            "too, set resume_hyperparameters='given'."
        )
        log.warning(
            f"continuing {checkpoint} with other arguments: {'; '.join(changes)}. What decides when to log, "
            f"evaluate and save holds as it is now; {holds}"
        )


def _changes_of_the_original(trainer: Any, state: TrainerState) -> list[str]:
    """Compare with what the original writes down of its arguments, which is little."""
    now = {name: getattr(trainer.args, name) for name in ("logging_steps", "eval_steps", "save_steps")}
    now["train_batch_size"] = trainer._train_batch_size
    before = {name: getattr(state, name) for name in now}
    return trainer_files.changed_arguments(before, {name: value for name, value in now.items() if value is not None})


class Continued(NamedTuple):
    """What is needed once more when the data begins to flow again: the checkpoint, and what its loader said."""

    path: str
    loader: Any


def place(trainer: Any, checkpoint: str, global_step: int) -> Place:
    """Give where the data goes on."""
    found = TrainerCheckpoint(checkpoint)
    data = (found.progress() or {}).get("data")
    own = found.loader(trainer.world.rank, trainer.world.size)
    trainer.continued = Continued(checkpoint, own)
    position = trainer.plan.position(global_step, own or data)
    if trainer.args.ignore_data_skip:
        return Place(position.epoch + 1)
    taken = -(-position.batches // trainer.args.gradient_accumulation_steps)
    return Place(position.epoch + 1, taken, position.batches)


def load_training_state(trainer: Any, checkpoint: str) -> None:
    """Fill optimizer, schedule and scaler, each where it was saved; say what is missing."""
    saved, args = TrainerCheckpoint(checkpoint), trainer.args
    given = Given(trainer.optimizer, trainer.lr_scheduler) if args.resume_hyperparameters == "given" else None
    optimizer, scheduler, scaler = saved.optimizer(), saved.scheduler(), saved.scaler()
    if shard_files.has_optimizer(checkpoint):
        trainer.strategy.sharded_load(checkpoint, optimizer=trainer.optimizer)
    elif optimizer is not None:
        trainer.strategy.load_optimizer_state(trainer.model_wrapped, trainer.optimizer, optimizer)
    if scheduler is not None:
        trainer.lr_scheduler.load_state_dict(scheduler)
    if given is not None:
        before = (saved.arguments() or {}).get("learning_rate")
        given.put_back(args.learning_rate / before if before else 1.0)
    if scaler is not None and trainer.precision.scaler is not None:
        trainer.precision.scaler.load_state_dict(scaler)
    missing = saved.missing()
    if missing:
        log.warning(
            f"{checkpoint}: {' '.join(missing)} What is missing begins anew, so training is not continued exactly."
        )


def restore_randomness(trainer: Any, checkpoint: str) -> None:
    """Set the random generators of this process as they were."""
    world = trainer.world
    rng.restore(TrainerCheckpoint(checkpoint).rng(world.rank, world.size), where=checkpoint)
