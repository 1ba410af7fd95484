"""What a Trainer writes to disk: the model alone, or a checkpoint with everything needed to resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol

from torch import Tensor, nn

from xdpx.checkpoints import background, folders
from xdpx.checkpoints.memory_folders import MemoryFolders
from xdpx.checkpoints.trusted import bytes_of
from xdpx.engines.pytorch import collectives, nonfinite
from xdpx.engines.pytorch.strategies import shard_files
from xdpx.logger import log
from xdpx.trainer.data.rank_loader import saved_ahead
from xdpx.trainer.files import checkpoint_files as trainer_files
from xdpx.trainer.files import model_files, rotation
from xdpx.trainer.files.hub import Hub
from xdpx.trainer.files.state import TrainerState, states_of
from xdpx.trainer.parts import TrainerRun
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.utils import io
from xdpx.utils.decisions import due
from xdpx.utils.pulse import pulse


class SaveMethods(Protocol):
    """Methods of a Trainer that users override to change what is saved and where it is uploaded."""

    hub: Hub | None

    @property
    def saved_processing(self) -> Any:
        """The tokenizer or processor saved with the model."""
        ...

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model; on all processes."""
        ...

    def store_flos(self) -> None:
        """Add the FLOPs since the last call to the state."""
        ...

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None: ...


def _in_shards(run: TrainerRun) -> bool:
    """Return whether each process writes its own shards into a checkpoint."""
    options = run.args.fsdp_options() if run.parts.strategy.shards else None
    return options is not None and options.state_dict_type == "SHARDED_STATE_DICT"


def _save_shards(run: TrainerRun, processing_class: Any, folder: str) -> None:
    """Write this process's shards of weights and optimizer state, and the config files; on all processes."""
    args, strategy = run.args, run.parts.strategy
    strategy.sharded_save(folder, run.model_wrapped, None if args.save_only_model else run.optimizer)
    if args.should_save:
        model_files.write_description(strategy.unwrap(run.model), processing_class, folder)
        trainer_files.write_arguments(folder, args.to_dict())


def _save_with_own_state(run: TrainerRun, methods: SaveMethods, folder: str) -> None:
    """Write the whole model, and beside it the strategy's own state (DeepSpeed); on all processes."""
    methods.save_model(folder, _internal_call=True)
    collectives.barrier()  # until the folder is there
    if not run.args.save_only_model:
        run.parts.strategy.sharded_save(folder, run.model_wrapped, run.optimizer)


def write_model(run: TrainerRun, folder: str, weights: dict[str, Tensor] | None, processing_class: Any) -> None:
    """Write the files of the model, on processes with `args.should_save`."""
    if not run.args.should_save:
        return
    model = run.parts.strategy.unwrap(run.model)
    model_files.ModelFiles(model, weights=weights, processing_class=processing_class).write(folder)
    trainer_files.write_arguments(folder, run.args.to_dict())


def save_checkpoint(run: TrainerRun, methods: SaveMethods, parent: str) -> str:
    """Save a complete checkpoint of the current step, atomically; on all ranks. Return its path."""
    _settle(run, methods)
    _note_best(run.state, parent)
    saved = _save(
        run, methods, parent, everywhere=run.args.save_on_each_node,
        later=None if _is_spread(run) else background.asked_for(),
        then=partial(_after_saving, run, methods, parent),
    )  # fmt: skip
    run.saved_step = run.state.global_step
    return saved


class Copying(Callback):
    """Keeps checkpoints in host memory between two saves, written in the background. Runs after `Flow`.

    Args:
        run, methods: of the Trainer.
        copies: where they are kept.
    """

    def __init__(self, run: TrainerRun, methods: SaveMethods, copies: MemoryFolders) -> None:
        self._run, self._methods, self._copies = run, methods, copies
        self._writing = background.Background()

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Copy the state of this step, if a copy is due and the step was not saved."""
        if due(step.number, self._copies.interval) and self._run.saved_step != step.number:
            with self._run.accumulator.stopwatch.paused(), pulse.doing("copying"):
                self._copy(step.number)
        return None

    def _copy(self, number: int) -> None:
        run, copies = self._run, self._copies
        if not copies.is_ready(bytes_of([run.model.state_dict(), run.optimizer.state_dict()])):
            return
        _settle(run, self._methods)
        _save(
            run, self._methods, copies.parent, everywhere=run.args.save_on_each_node, later=self._writing,
            then=lambda path: copies.keep(number),
        )  # fmt: skip

    def on_end(self, session: Session, stop: Stop) -> None:
        """Delete the copies: everything needed is on disk."""
        self._writing.wait()
        self._run.parts.ranks().barrier()
        self._copies.forget()

    def close(self) -> None:
        """Wait for a copy in progress."""
        with suppress(Exception):  # was logged; it must not hide why training ends
            self._writing.wait()


def copies_of(run: TrainerRun, folder: str) -> MemoryFolders | None:
    """Return where checkpoints are kept in memory; None if they are not wanted or not possible."""
    args = run.args
    if not args.memory_copy_interval or args.save_strategy == "no" or args.save_only_model:
        return None
    if _is_spread(run):
        log.warning("memory_copy_interval: has no effect, because each process writes its own shards to disk.")
        return None
    everywhere = args.save_on_each_node
    return MemoryFolders(folder, run.parts.ranks(), interval=args.memory_copy_interval, everywhere=everywhere)


def _is_spread(run: TrainerRun) -> bool:
    """Return whether all processes write into a checkpoint, so that a background thread of one cannot do it."""
    return _in_shards(run) or run.parts.strategy.writes_own_state


def _settle(run: TrainerRun, methods: SaveMethods) -> None:
    """Add pending token and FLOP counts to the state; on all ranks."""
    run.token_counter.settle(run.state, run.args.device)
    methods.store_flos()


def _save(
    run: TrainerRun, methods: SaveMethods, parent: str, *, everywhere: bool, later: background.Background | None,
    then: Callable[[str], object],
) -> str:  # fmt: skip
    args, state, strategy = run.args, run.state, run.parts.strategy
    finite = nonfinite.all_finite(run.model.parameters())
    if not finite:
        run.warn_of_nonfinite(f"weights are NaN or infinite at step {state.global_step}")
    state.stateful_callbacks = states_of(run.exportable())
    ranks, own, contents = run.parts.ranks(), None, {}
    if not args.save_only_model:
        loader = _loader_state(run)
        own, contents = trainer_files.OwnState.of_this_process(ranks, loader), _to_continue(run, loader)
    write = partial(methods.save_model, _internal_call=True)
    if strategy.writes_own_state:
        write = partial(_save_with_own_state, run, methods)
    elif _in_shards(run):
        write = partial(_save_shards, run, methods.saved_processing)
    with run.averaged():
        return trainer_files.save_checkpoint(
            parent, state.global_step, trainer_files.Contents(json.loads(state.to_json()), finite=finite, **contents),
            write, own=own, ranks=ranks, everywhere=everywhere, background=later, then=then,
        )  # fmt: skip


def _to_continue(run: TrainerRun, loader: dict[str, Any] | None) -> dict[str, Any]:
    scaler, strategy = run.parts.precision.scaler, run.parts.strategy
    optimizer, average = None, run.average
    if not (_in_shards(run) or strategy.writes_own_state):
        optimizer = strategy.optimizer_state(run.model_wrapped, run.optimizer, wanted=run.args.should_save)
    return {
        "optimizer": optimizer,
        "scheduler": run.lr_scheduler.state_dict(),
        "scaler": None if scaler is None else scaler.state_dict(),
        "trained": None if average is None else average.trained(wanted=run.args.should_save),
        "progress": _progress(run, loader),
    }


def _loader_state(run: TrainerRun) -> dict[str, Any] | None:
    """Return the state of the data loader after the last update; None if it has none."""
    loader, state = run.callback_handler.train_dataloader, None
    if run.continued is not None and not run.has_read:
        state = run.continued.loader
    elif hasattr(loader, "state_dict"):
        state = loader.state_dict()
    if state and run.reading and run.before_read is not None:  # it may have moved on already, also to another epoch
        _, ahead, collator = run.before_read
        state = {**state, "batches": run.place.batches, "ahead": saved_ahead(ahead), "collator": collator}
        if state["epoch"] >= run.place.epoch or not run.place.batches:
            state["generators"] = {"now": state["generators"]["began"]}
    return state


def _progress(run: TrainerRun, loader: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the position in the data, for any batch size and number of ranks, and what is unfinished there."""
    whole = run.has_read and not run.reading
    position = run.plan.position(run.state.global_step, loader) if whole else run.place
    return {
        "position": asdict(position), "samples_per_batch": run.plan.samples_per_batch, "open_epoch": run.open_epoch,
        "leaves_epoch": run.control.should_epoch_stop,  # at this step, whatever is left of the one that is open
        "midway": None if run.midway is None else run.midway._asdict(),
        "unlogged": run.unlogged(), "steps_per_epoch": run.plan.steps_per_epoch, "offset": run.plan.offset,
    }  # fmt: skip


def _note_best(state: TrainerState, parent: str) -> None:
    """Set the path of the best checkpoint, if it is the one being saved or already exists."""
    if state.best_global_step:
        best = io.join(parent, folders.folder_name(state.best_global_step))
        if state.best_global_step == state.global_step or io.isdir(best):
            state.best_model_checkpoint = best


def _after_saving(run: TrainerRun, methods: SaveMethods, parent: str, path: str) -> None:
    """Push to the Hub and rotate checkpoints, if asked for; runs once the checkpoint is complete."""
    if run.args.push_to_hub:
        methods._push_from_checkpoint(path)
    rotate(run, methods.hub, parent)


def rotate(run: TrainerRun, hub: Hub | None, parent: str) -> None:
    """Delete checkpoints beyond `save_total_limit`; never the best, the newest, or the newest that can be resumed."""
    state = run.state
    rotation.rotate(
        parent, limit=run.args.save_total_limit, current=state.global_step, best=state.best_model_checkpoint,
        busy=hub.busy_folders() if hub else (),
    )  # fmt: skip


def load_weights(run: TrainerRun, folder: str, model: nn.Module | None = None) -> None:
    """Load the weights of a checkpoint into the model, wrapped or not; on all ranks."""
    target, strategy = run.model if model is None else model, run.parts.strategy
    if shard_files.is_sharded(folder):
        strategy.sharded_load(folder, target)
        return
    apply = strategy.load_weights if strategy.shards else None
    model_files.load_model(strategy.unwrap(target), folder, apply=apply)


def load_best(run: TrainerRun) -> None:
    """Load the weights of the best checkpoint; if there is none any more, warn and keep the last. On all ranks."""
    best, metric = run.state.best_model_checkpoint, run.state.best_metric
    if best is None:
        log.warning("load_best_model_at_end: no checkpoint of a best model was written, so the last weights are kept.")
    elif not collectives.broadcast_object(model_files.holds_weights(best)):
        log.warning(
            f"load_best_model_at_end: {best}, the best, no longer contains weights, so the last weights are kept."
        )
    else:
        log.info(f"loading the best model, {best} ({metric:.6g})")
        load_weights(run, best)
