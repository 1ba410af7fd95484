"""What a Trainer leaves on disk: the model alone, or a checkpoint with everything to continue from."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from xdpx.checkpoints import background, folders, model_files, rotation, trainer_files
from xdpx.checkpoints.folders import Ranks
from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.strategies import shard_files
from xdpx.logger import log
from xdpx.trainer.hooks.state import states_of
from xdpx.trainer.wiring import exportable
from xdpx.utils import io


def ranks(trainer: Any) -> Ranks:
    """Give who saves together."""
    world = trainer.world
    return Ranks(
        world.rank, world.size, world.local_rank, collectives.barrier, collectives.broadcast_object,
        collectives.gather_objects,
    )  # fmt: skip


def save_model(trainer: Any, folder: str) -> None:
    """Write weights, configuration, processing class and arguments into a folder; on all ranks."""
    strategy, wanted = trainer.strategy, trainer.args.should_save
    trainer._save(folder, strategy.weights(trainer.model_wrapped, wanted=wanted) if strategy.shards else None)


def _in_shards(trainer: Any) -> bool:
    """Whether each process writes its own share into a checkpoint."""
    options = trainer.args.fsdp_options() if trainer.strategy.shards else None
    return options is not None and options.state_dict_type == "SHARDED_STATE_DICT"


def _save_shards(trainer: Any, optimizer: Any, folder: str) -> None:
    """Write this process's share of weights and optimizer state, and what describes them; on all processes."""
    trainer.strategy.sharded_save(folder, trainer.model_wrapped, optimizer)
    if trainer.args.should_save:
        model_files.write_description(trainer.strategy.unwrap(trainer.model), _processing(trainer), folder)
        trainer_files.write_arguments(folder, trainer.args.to_dict())


def _save_with_own_state(trainer: Any, folder: str) -> None:
    """Write the whole model, and beside it what the strategy alone can write; on all processes."""
    trainer.save_model(folder, _internal_call=True)
    collectives.barrier()  # until the folder is there
    if not trainer.args.save_only_model:
        trainer.strategy.sharded_save(folder, trainer.model_wrapped, trainer.optimizer)


def _processing(trainer: Any) -> Any:
    return trainer.processing_class or getattr(trainer.data_collator, "tokenizer", None)


def write_model(trainer: Any, folder: str, weights: Any) -> None:
    """Write the files of the model, on the processes that save."""
    if not trainer.args.should_save:
        return
    io.local_files.make_folder(folder)
    model = trainer.strategy.unwrap(trainer.model)
    model_files.ModelFiles(model, weights=weights, processing_class=_processing(trainer)).write(folder)
    trainer_files.write_arguments(folder, trainer.args.to_dict())


def save_checkpoint(trainer: Any, trial: Any, parent: str | None = None) -> str:
    """Save everything that is needed to continue at this very step, whole or not at all; on all ranks."""
    args, state = trainer.args, trainer.state
    trainer.token_counter.settle(state, args.device)
    trainer.store_flos()
    parent = trainer._get_output_dir(trial) if parent is None else parent
    _note_best(state, parent)
    state.stateful_callbacks = states_of(exportable(trainer))
    together, own, contents = ranks(trainer), None, {}
    if not args.save_only_model:
        loader = trainer.callback_handler.train_dataloader
        loader = loader.state_dict() if hasattr(loader, "state_dict") else None
        own, contents = trainer_files.OwnState.of_this_process(together, loader), _to_continue(trainer, loader)
    write = partial(trainer.save_model, _internal_call=True)
    if trainer.strategy.writes_own_state:
        write = partial(_save_with_own_state, trainer)
    elif _in_shards(trainer):
        write = partial(_save_shards, trainer, None if args.save_only_model else trainer.optimizer)
    saved = trainer_files.save_checkpoint(
        parent, state.global_step, trainer_files.Contents(json.loads(state.to_json()), **contents),
        write, own=own, ranks=together, everywhere=args.save_on_each_node,
        background=None if _in_shards(trainer) or trainer.strategy.writes_own_state else background.asked_for(),
        then=partial(_after_saving, trainer, parent),
    )  # fmt: skip
    trainer.saved_step = state.global_step
    return saved


def _to_continue(trainer: Any, loader: Any) -> dict[str, Any]:
    scaler, strategy, wanted = trainer.precision.scaler, trainer.strategy, trainer.args.should_save
    whole = not (_in_shards(trainer) or strategy.writes_own_state)
    return {
        "optimizer": strategy.optimizer_state(trainer.model_wrapped, trainer.optimizer, wanted=wanted)
        if whole
        else None,
        "scheduler": trainer.lr_scheduler.state_dict(),
        "scaler": None if scaler is None else scaler.state_dict(),
        "progress": {"data": {name: loader[name] for name in ("epoch", "samples", "ended")} if loader else None},
    }


def _note_best(state: Any, parent: str) -> None:
    """Set the path of the best checkpoint, when it is this one or there is one."""
    if state.best_global_step:
        best = io.join(parent, folders.folder_name(state.best_global_step))
        if state.best_global_step == state.global_step or io.isdir(best):
            state.best_model_checkpoint = best


def _after_saving(trainer: Any, parent: str, path: str) -> None:
    """Upload and delete as asked for; runs on each process that wrote all files, once the checkpoint counts."""
    if trainer.args.push_to_hub:
        trainer._push_from_checkpoint(path)
    rotate(trainer, parent)


def rotate(trainer: Any, parent: str) -> None:
    """Delete checkpoints beyond `save_total_limit`; never the best, the newest, or the newest to continue from."""
    state, hub = trainer.state, trainer.hub
    rotation.rotate(
        parent, limit=trainer.args.save_total_limit, current=state.global_step, best=state.best_model_checkpoint,
        busy=hub.busy_folders() if hub else (),
    )  # fmt: skip


def load_best(trainer: Any) -> None:
    """Load the weights of the best checkpoint."""
    state = trainer.state
    log.info(f"loading the best model, {state.best_model_checkpoint} ({state.best_metric:.6g})")
    load_weights(trainer, state.best_model_checkpoint)


def load_weights(trainer: Any, folder: str, model: Any = None) -> None:
    """Load the weights of a checkpoint into the model, wrapped or not; on all ranks."""
    target = trainer.model if model is None else model
    if shard_files.is_sharded(folder):
        trainer.strategy.sharded_load(folder, target)
        return
    apply = trainer.strategy.load_weights if trainer.strategy.shards else None
    model_files.load_model(trainer.strategy.unwrap(target), folder, apply=apply)
