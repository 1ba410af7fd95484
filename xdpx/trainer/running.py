"""One call of `train`, start to end: what to continue from, the stretch of the loop, and what is told at the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from xdpx.checkpoints.background import wait_for_all
from xdpx.dataloaders.adopting import adopt
from xdpx.dataloaders.plan import Plan, samples_per_batch
from xdpx.engines.pytorch import collectives, shortage
from xdpx.engines.pytorch.memory import MemoryWatch
from xdpx.engines.pytorch.seeding import seed_from
from xdpx.logger import log
from xdpx.losses.trainer_calls import noting
from xdpx.models.pytorch import preparing
from xdpx.models.pytorch.modules import neftune
from xdpx.reports.results import speed_metrics
from xdpx.trainer import keeping, resuming
from xdpx.trainer.flow import Flow
from xdpx.trainer.hooks.state import TrainerState, restore_states, states_of
from xdpx.trainer.loop import Session, fit
from xdpx.trainer.outputs import TrainOutput
from xdpx.trainer.preemption import EXIT_CODE, Preemption
from xdpx.trainer.progress import Progress
from xdpx.trainer.stepping import OverrideEngine, Place
from xdpx.trainer.wiring import exportable, take_model


def train(trainer: Any, resume: str | bool | None, trial: Any, ignore_keys: list[str] | None) -> TrainOutput:
    """Train, anew or from a checkpoint, with smaller batches when memory runs out and that is asked for."""
    args = trainer.args
    trainer.memory = MemoryWatch(args.device, wanted=not args.skip_memory_metrics)
    with ExitStack() as afterwards:
        trainer.is_in_train = True
        afterwards.callback(setattr, trainer, "is_in_train", False)
        if trainer.model_init is not None:
            seed_from(args)
            take_model(trainer, trainer.call_model_init(trial))
            trainer.optimizer = trainer.lr_scheduler = None
        trainer._hp_search_setup(trial)
        preparing.before_training(trainer.model, args, trainer.processing_class)
        if trainer.neftune_noise_alpha is not None:
            trainer.neftune_hook_handle = neftune.attach(trainer.model, trainer.neftune_noise_alpha)
            afterwards.callback(trainer.neftune_hook_handle.remove)
        checkpoint = resuming.find(resume, trainer._get_output_dir(trial), keeping.ranks(trainer))
        if checkpoint is not None:
            trainer._load_from_checkpoint(checkpoint)
            saved = resuming.read_state(checkpoint)
            if args.auto_find_batch_size and saved.train_batch_size:
                trainer._train_batch_size = saved.train_batch_size

        def attempt(batch_size: int) -> TrainOutput:
            return trainer._inner_training_loop(  # type: ignore[no-any-return]
                batch_size=batch_size, args=args, resume_from_checkpoint=checkpoint, trial=trial,
                ignore_keys_for_eval=ignore_keys,
            )  # fmt: skip

        if not args.auto_find_batch_size:
            return attempt(trainer._train_batch_size)
        return _with_fitting_batches(trainer, attempt)


def _with_fitting_batches(trainer: Any, attempt: Callable[[int], TrainOutput]) -> TrainOutput:
    """Attempt with smaller and smaller batches; each attempt begins with the same weights and a new optimizer."""
    own_optimizer = trainer.optimizer is None
    weights = {name: value.detach().to("cpu", copy=True) for name, value in trainer.model.state_dict().items()}

    def begin_anew() -> None:
        if own_optimizer:
            trainer.optimizer = trainer.lr_scheduler = None
        trainer.model_wrapped = trainer.model
        trainer.model.zero_grad(set_to_none=True)
        trainer.model.load_state_dict(weights)

    return shortage.with_fitting_batches(attempt, trainer._train_batch_size, begin_anew)


def stretch(trainer: Any, batch_size: int, checkpoint: str | None, trial: Any, keys: list[str] | None) -> TrainOutput:
    """Train one stretch through the loop: data, optimizer, saved state; then tell what came of it."""
    args = trainer.args
    trainer._train_batch_size = batch_size
    loader = adopt(trainer.get_train_dataloader(), trainer.world)
    numbers = trainer.set_initial_training_values(args, loader)
    known = args.gradient_accumulation_steps, samples_per_batch(loader)
    trainer.plan = Plan(*numbers, *known)  # type: ignore[call-arg]  # the overridable method gives seven numbers
    place = _begin_state(trainer, checkpoint, trial)
    _prepare(trainer, loader, checkpoint)
    describe(trainer, checkpoint)
    trainer.started, first = time.time(), trainer.state.global_step
    trainer._globalstep_last_logged, trainer._total_loss_scalar = first, 0.0
    trainer._tr_loss = torch.zeros((), device=args.device)
    trainer.model_wrapped.zero_grad()
    trainer.tokens_before = trainer.state.num_input_tokens_seen
    with _signals(args) as preemption, noting(trainer):
        engine, flow = OverrideEngine(trainer), Flow(trainer, trial=trial, ignore_keys=keys, preemption=preemption)
        progress = Progress(first, place.epoch, place.group, trainer.plan.total_batch_size)
        session = Session(engine, trainer.model_wrapped, progress, trainer.plan.max_steps, trainer.plan.max_steps)
        groups = flow.groups(loader, place)
        if preemption is not None and args.world_size == 1:  # several processes stop together, at the end of a step
            groups = preemption.watched(groups)
        fit(session, groups, [flow])
        wait_for_all()  # what is written in the background must be whole before anybody is told
        if flow.interrupted is not None and preemption is not None and args.world_size > 1:
            collectives.barrier()  # whoever leaves first makes the launcher end the others
            preemption.leave_in_peace()
    if flow.interrupted is not None:
        log.warning(f"{flow.interrupted.reason}: saved; to continue, train with resume_from_checkpoint=True.")
        raise SystemExit(EXIT_CODE)
    return finish(trainer, trial, first)


def _begin_state(trainer: Any, checkpoint: str | None, trial: Any) -> Place:
    """Set the state of the run, new or as it was saved, and give where its data goes on."""
    args, plan = trainer.args, trainer.plan
    state, place = TrainerState(stateful_callbacks=states_of(exportable(trainer))), Place(1)
    trainer.continued = None
    if checkpoint is not None:
        state = resuming.read_state(checkpoint)
        resuming.warn_of_changes(trainer, checkpoint)
        if args.restore_callback_states_from_checkpoint:
            restore_states(exportable(trainer), state.stateful_callbacks)
        place = resuming.place(trainer, checkpoint, state.global_step)
    state.is_hyper_param_search = trial is not None
    state.train_batch_size = trainer._train_batch_size
    state.compute_steps(args, plan.max_steps)
    state.init_training_references(trainer, plan.max_steps, plan.num_epochs, trial)
    trainer.state = state
    return place


def _prepare(trainer: Any, loader: Any, checkpoint: str | None) -> None:
    """Wrap the model, build optimizer and schedule, and fill them from a checkpoint."""
    if trainer._created_lr_scheduler:  # its length may be another one now
        trainer.lr_scheduler, trainer._created_lr_scheduler = None, False
    trainer.model_wrapped = trainer._wrap_model(trainer.model)
    trainer.create_optimizer_and_scheduler(num_training_steps=trainer.plan.max_steps)
    trainer.model_wrapped, trainer.optimizer = trainer.strategy.join(trainer.model_wrapped, trainer.optimizer)
    if checkpoint is not None:
        trainer._load_optimizer_and_scheduler(checkpoint)
    handler = trainer.callback_handler
    handler.model, handler.optimizer, handler.lr_scheduler = trainer.model, trainer.optimizer, trainer.lr_scheduler
    handler.train_dataloader = loader


@contextmanager
def _signals(args: Any) -> Generator[Preemption | None]:
    """Watch for signals that end a process, where checkpoints are wanted and nobody else listens to them."""
    wanted = args.enable_jit_checkpoint or args.save_strategy != "no"
    if not wanted or (signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL and not args.enable_jit_checkpoint):
        yield None
        return
    with Preemption((signal.SIGTERM,)) as preemption:
        yield preemption


def describe(trainer: Any, checkpoint: str | None) -> None:
    """Tell what is about to be trained."""
    plan, args, state = trainer.plan, trainer.args, trainer.state
    log.info(
        f"training: {plan.num_examples:,} examples, {plan.max_steps:,} steps of {plan.total_batch_size:,} samples "
        f"({trainer._train_batch_size} per process x {args.world_size} processes x {args.gradient_accumulation_steps} "
        f"accumulated), {trainer.get_num_trainable_parameters():,} trainable parameters"
    )
    if checkpoint is not None:
        log.info(f"continuing from {checkpoint}, at step {state.global_step:,}, epoch {state.epoch:.4g}")


def finish(trainer: Any, trial: Any, first: int) -> TrainOutput:
    """Log what the training cost and gave, load the best model if asked for, and tell the hooks that it ended."""
    args, state = trainer.args, trainer.state
    trainer._total_loss_scalar += float(trainer._tr_loss)
    steps = state.global_step - first
    taken = steps - trainer.window.skipped_in_all
    train_loss = trainer._total_loss_scalar / max(taken, 0.001)
    samples = trainer.plan.num_train_samples * steps / max(state.max_steps, 1)
    metrics = speed_metrics("train", trainer.started, num_samples=samples, num_steps=steps)
    trainer.store_flos()
    trainer.token_counter.settle(state, args.device)
    metrics |= {"total_flos": state.total_flos, "train_loss": train_loss}
    metrics |= trainer.memory_of_init | trainer.memory.metrics("train")
    trainer.log(metrics)
    if args.load_best_model_at_end:
        if state.best_model_checkpoint is None:
            log.warning("load_best_model_at_end: no checkpoint of a best model was written, so the last weights stay.")
        else:
            trainer._load_best_model()
    if args.save_total_limit == 1 and args.should_save:
        keeping.rotate(trainer, trainer._get_output_dir(trial))
    trainer.control = trainer.callback_handler.on_train_end(args, state, trainer.control)
    trainer._finish_current_push()
    return TrainOutput(state.global_step, train_loss, metrics)
