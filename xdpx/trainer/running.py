"""One call of `train`, start to end: find the checkpoint, prepare, run the loop, and report."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, Protocol

from torch import nn

from xdpx.checkpoints.background import wait_for_all
from xdpx.datasets.plan import Position
from xdpx.engines.pytorch import collectives, out_of_memory
from xdpx.engines.pytorch.kernels import seed_training
from xdpx.engines.pytorch.memory import MemoryWatch
from xdpx.engines.pytorch.update import LOSS
from xdpx.logger import log
from xdpx.models.pytorch import preparing
from xdpx.models.pytorch.modules import neftune
from xdpx.reports.results import speed_metrics
from xdpx.trainer import averaging, idle, keeping, resuming, wiring
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.data import agreement
from xdpx.trainer.data.adopting import adopt
from xdpx.trainer.data.first_rows import warn_of_unlike_orders
from xdpx.trainer.data.plan import TrainingPlan, samples_per_batch
from xdpx.trainer.files.hub import Hub
from xdpx.trainer.files.state import Searching
from xdpx.trainer.flow import Flow, FlowMethods
from xdpx.trainer.hooks.state import TrainerState, states_of
from xdpx.trainer.loss.windows import READ
from xdpx.trainer.outputs import TrainOutput
from xdpx.trainer.parts import TrainerRun
from xdpx.trainer.stepping import Group, OverrideEngine, StepMethods
from xdpx.training.callbacks.inspecting import Inspecting
from xdpx.training.callbacks.logging import LOG
from xdpx.training.callbacks.profiling import Profiling
from xdpx.training.lifecycle import Claim, claimed, live
from xdpx.training.loop import Callback, Session, Stop
from xdpx.training.preemption import EXIT_CODE, Preemption
from xdpx.training.progress import Progress
from xdpx.training.status import STATUS_FILE, Status, trouble_of_status
from xdpx.utils import io
from xdpx.utils.aside import set_aside


class TrainMethods(FlowMethods, StepMethods, keeping.SaveMethods, Searching, Protocol):
    """Attributes and methods of a Trainer that users set or override to change how training begins and ends."""

    model_init: Any
    processing_class: Any
    neftune_noise_alpha: float | None
    hub: Hub | None

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """Make a new model."""
        ...

    def get_train_dataloader(self) -> Any:
        """Return the batches to train on."""
        ...

    def set_initial_training_values(self, args: TrainingArguments, dataloader: Any) -> tuple[Any, ...]:
        """Return the first seven numbers of the plan."""
        ...

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Create the optimizer and the schedule that are not given."""
        ...

    def get_num_trainable_parameters(self) -> int:
        """Return the number of weights that are trained."""
        ...

    def _take_model(self, model: nn.Module) -> None: ...

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module: ...

    def _hp_search_setup(self, trial: Any) -> None: ...

    def _get_output_dir(self, trial: Any) -> str: ...

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None: ...

    def _load_optimizer_and_scheduler(self, checkpoint: str) -> None: ...

    def _load_callback_state(self) -> None: ...

    def _load_best_model(self) -> None: ...

    def _finish_current_push(self) -> None: ...

    def _inner_training_loop(
        self, batch_size: int | None = None, args: Any = None, resume_from_checkpoint: str | None = None,
        trial: Any = None, ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput: ...  # fmt: skip


def train(
    run: TrainerRun, methods: TrainMethods, resume: str | bool | None, *, trial: object, ignore_keys: list[str] | None
) -> TrainOutput:
    """Train from scratch or a checkpoint; with `auto_find_batch_size`, retry with smaller batches if out of memory."""
    args = run.args
    run.memory = MemoryWatch(args.device, wanted=not args.skip_memory_metrics)
    if resume is None and trial is None:
        idle.warn_of_unresumed(args)
    with ExitStack() as afterwards:
        run.is_in_train = True
        afterwards.callback(setattr, run, "is_in_train", False)
        methods._hp_search_setup(trial)  # first, as it may set the seed and what the loss is
        if methods.model_init is not None:
            seed_training(args.seed, full_determinism=args.full_determinism)
            methods._take_model(methods.call_model_init(trial))
            run.optimizer = run.lr_scheduler = None
        makes_models = methods.model_init is not None
        idle.warn_of_late(args, run.read_once, noise=methods.neftune_noise_alpha, makes_models=makes_models)
        run.take_batch_size()
        preparing.before_training(run.model, args, methods.processing_class)  # type: ignore[arg-type]  # texts are read
        if methods.neftune_noise_alpha:  # 0, too, means no noise, as in the original
            run.neftune_hook = neftune.attach(run.model, methods.neftune_noise_alpha)
            afterwards.callback(run.neftune_hook.remove)
        changed = args.resume_changed == "weights"
        run.copies = keeping.copies_of(run, methods._get_output_dir(trial))
        if run.copies is not None and resume is True:
            run.copies.bring_back()
        checkpoint = resuming.find(resume, methods._get_output_dir(trial), run.parts.ranks(), changed=changed)
        if checkpoint is not None:
            methods._load_from_checkpoint(checkpoint)
            resuming.warn_of_nonfinite(run.model, checkpoint)
            saved = resuming.read_state(checkpoint)
            if args.auto_find_batch_size and saved.train_batch_size:
                run.batch_size = saved.train_batch_size

        def attempt(batch_size: int) -> TrainOutput:
            return methods._inner_training_loop(
                batch_size=batch_size, args=args, resume_from_checkpoint=checkpoint, trial=trial,
                ignore_keys_for_eval=ignore_keys,
            )  # fmt: skip

        if not args.auto_find_batch_size:
            return attempt(run.batch_size)
        if args.world_size > 1 and not run.parts.begins_anew_together:
            log.warning(
                "auto_find_batch_size: has no effect: processes that share one model (FSDP, DeepSpeed) wait for each "
                "other in every pass, even for one that ran out of memory. Lower per_device_train_batch_size."
            )
            return attempt(run.batch_size)
        return _with_fitting_batches(run, attempt)


def _with_fitting_batches(run: TrainerRun, attempt: Callable[[int], TrainOutput]) -> TrainOutput:
    """Retry with ever smaller batches until memory suffices; each attempt starts from the same weights."""
    own_optimizer = run.optimizer is None
    weights = {name: value.detach().to("cpu", copy=True) for name, value in run.model.state_dict().items()}

    def begin_anew() -> None:
        if own_optimizer:
            run.optimizer = run.lr_scheduler = None
        run.model_wrapped = run.model
        run.model.zero_grad(set_to_none=True)
        run.model.load_state_dict(weights)

    together = run.parts.begins_anew_together
    return out_of_memory.with_fitting_batches(attempt, run.batch_size, begin_anew, together=together)


def stretch(
    run: TrainerRun, methods: TrainMethods, checkpoint: str | None, *, trial: object, ignore_keys: list[str] | None
) -> TrainOutput:
    """Train through `training.lifecycle`, as every door does, and return the result.

    With `save_strategy="no"` nothing is put into the folder: no lease, no status.

    Raises:
        LeaseHeld: another training writes its checkpoints into the same folder.
        SystemExit: training was interrupted, and saved.
    """
    folder, ranks = methods._get_output_dir(trial), run.parts.ranks()
    run.folder = folder
    unwritten = nullcontext(Claim(None, ranks))
    room = partial(_make_room, folder)
    owned = unwritten if run.args.save_strategy == "no" else claimed(folder, ranks, then=room, required=False)
    with owned as claim, ExitStack() as listening:
        preemption = Preemption(_signals(run.args))
        training = _Stretch(run, methods, checkpoint, trial, ignore_keys, preemption, listening)
        stop = live(training, claim, preemption=preemption, hang_seconds=run.args.hang_seconds)
    if not stop.finished:
        log.warning(f"{stop.reason}: saved; to continue, train with resume_from_checkpoint=True.")
        raise SystemExit(EXIT_CODE)
    return training.output


def _make_room(folder: str) -> None:
    """Rename a status.json that is not ours: a Trainer's folder is the user's, who may have such a file."""
    path = io.join(folder, STATUS_FILE)
    with suppress(OSError):  # a folder that cannot be written to was reported already
        if io.exists(path) and (trouble := trouble_of_status(path)):
            set_aside(path, trouble, then="a new one for this run takes its place")


@dataclass
class _Stretch:
    """Implements `training.lifecycle.Training` for one call of `train`.

    Attributes:
        listening: contexts that are open during training: signal handlers, and recording of the model's losses.
        output: what `train` returns.
    """

    run: TrainerRun
    methods: TrainMethods
    checkpoint: str | None
    trial: Any
    ignore_keys: list[str] | None
    preemption: Preemption
    listening: ExitStack
    loader: Any = None
    place: Position = field(init=False)
    first: int = 0
    flow: Flow = field(init=False)
    output: TrainOutput = field(init=False)

    def begin(self) -> Session:
        """Prepare data, model, optimizer and schedule, new or restored from the checkpoint."""
        run, methods, args = self.run, self.methods, self.run.args
        loader = self.loader = adopt(methods.get_train_dataloader(), run.parts.world)
        numbers = methods.set_initial_training_values(args, loader)
        known = args.gradient_accumulation_steps, samples_per_batch(loader)
        plan = TrainingPlan(*numbers, *known)  # type: ignore[call-arg]  # the overridable method gives seven numbers
        run.plan = plan
        agreement.refuse_unlike_training(plan, loader, args, sharded=run.parts.strategy.shards)
        self.place = _begin_state(run, methods, self.checkpoint, self.trial)
        run.place, run.reading, run.has_read, run.open_epoch = self.place, False, False, None
        run.midway, run.scored = None, {}
        _prepare(run, methods, loader, self.checkpoint)
        _describe(run, methods.get_num_trainable_parameters(), self.checkpoint)
        methods.loss_calls.warn_of_unused_count()
        methods.loss_calls.warn_of_count(preparing.bare(run.model))
        methods.loss_calls.warn_of_unused_smoothing()
        run.started, first = time.time(), run.state.global_step
        run.begin_logs(args.device)
        run.model_wrapped.zero_grad()
        run.tokens_before = run.state.num_input_tokens_seen
        progress = Progress(first, self.place.epoch, self.place.group, plan.total_batch_size)
        self.first, engine = first, OverrideEngine(methods, run)
        return Session(engine, run.model_wrapped, progress, run.plan.max_steps, run.plan.max_steps)

    def status(self, session: Session) -> Status:
        """Return the status "running", with the progress of the training."""
        best = self.run.state.best_metric
        score = best if best is not None and isfinite(best) else None
        digest = resuming.digest_of(self.run.args)
        return Status("running", session.number, session.total, digest, until=session.until, best_score=score)

    def settle(self, session: Session) -> None:
        """Start handling signals and recording losses in the outputs of the model."""
        if self.run.copies is not None:
            self.run.copies.begin(anew=self.checkpoint is None)
        self.listening.enter_context(self.preemption)
        self.listening.enter_context(self.methods.loss_calls.noting(self.run.model_wrapped))

    def callbacks(self, session: Session) -> list[Callback]:
        """Return `Flow`, which fires the events of the user's callbacks, and the callbacks of the loop itself."""
        self.flow = Flow(
            self.methods, self.run, trial=self.trial, ignore_keys=self.ignore_keys, preemption=self.preemption
        )
        copies = self.run.copies
        kept = [] if copies is None else [keeping.Copying(self.run, self.methods, copies)]
        return [self.flow, *kept, *self._onlookers()]

    def _onlookers(self) -> list[Callback]:
        """Return the callbacks that inspect gradients and profile, if asked for."""
        run, folder = self.run, self.methods._get_output_dir(self.trial)
        if not run.parts.world.is_main:
            return []
        found: list[Callback] = []
        if run.inspects:
            found.append(Inspecting(folder, "png", run.accumulator.stopwatch, interval=run.state.logging_steps))
        elif run.args.inspect_gradient:
            log.warning("inspect_gradient: has no effect, as no process has the whole gradients (FSDP, DeepSpeed).")
        return [*found, Profiling(folder)] if run.args.profile else found

    def groups(self, session: Session) -> Generator[tuple[Position, Group]]:
        """Return the micro-batches of each update; iterating fires the events of each epoch."""
        return self.flow.groups(self.loader, self.place)

    def end(self, session: Session, stop: Stop) -> None:
        """Wait for background writes; log the metrics of a finished training."""
        wait_for_all()  # background writes must be complete before the end is reported
        if not stop.finished and self.run.args.world_size > 1:
            collectives.barrier()  # the first process to exit makes the launcher end the others
            self.preemption.ignore_signals()
        self.listening.close()
        if stop.finished:
            self.output = _finish(self.run, self.methods, self.trial, self.first)


def _begin_state(run: TrainerRun, methods: TrainMethods, checkpoint: str | None, trial: object) -> Position:
    """Set the state of the run, new or from the checkpoint, and return the position in the data to start at."""
    args = run.args
    state, place = TrainerState(stateful_callbacks=states_of(run.exportable())), Position()
    run.continued = None
    if checkpoint is not None:
        state = resuming.read_state(checkpoint)
        resuming.warn_of_changes(run, checkpoint)
        place = resuming.place(run, checkpoint, state.global_step)
    plan = run.plan
    state.is_hyper_param_search = trial is not None
    state.train_batch_size = run.batch_size
    state.compute_steps(args, plan.max_steps)
    state.init_training_references(methods, plan.max_steps, plan.num_epochs, trial)
    run.state = state
    if checkpoint is not None:
        methods._load_callback_state()
    return place


def _prepare(run: TrainerRun, methods: TrainMethods, loader: object, checkpoint: str | None) -> None:
    """Wrap the model, build optimizer and schedule, and restore them from the checkpoint if there is one."""
    if run.made_schedule:  # its length may have changed
        run.lr_scheduler, run.made_schedule = None, False
    run.model_wrapped = methods._wrap_model(run.model)
    methods.create_optimizer_and_scheduler(num_training_steps=run.plan.max_steps)
    for name in ("optimizer", "lr_scheduler"):
        if getattr(run, name) is None:
            raise ValueError(
                f"create_optimizer_and_scheduler: left self.{name} None. Set it there, or in create_optimizer and "
                "create_scheduler."
            )
    wiring.warn_of_unrelated_optimizer(run)
    if checkpoint is None:  # else what changed is told in any case
        wiring.warn_of_kept_optimizer(run)
    run.model_wrapped, run.optimizer = run.parts.strategy.join(run.model_wrapped, run.optimizer)
    run.average = averaging.begin(run)
    if checkpoint is not None:
        methods._load_optimizer_and_scheduler(checkpoint)
        averaging.resume(run, checkpoint)
    handler = run.callback_handler
    handler.model, handler.optimizer, handler.lr_scheduler = run.model, run.optimizer, run.lr_scheduler
    handler.train_dataloader = loader


def _signals(args: TrainingArguments) -> tuple[int, ...]:
    """Return the signals that end training: SIGTERM, if checkpoints are saved and the program does not handle it."""
    wanted = args.enable_jit_checkpoint or args.save_strategy != "no"
    taken = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL and not args.enable_jit_checkpoint
    return (signal.SIGTERM,) if wanted and not taken else ()


def _describe(run: TrainerRun, num_trainable: int, checkpoint: str | None) -> None:
    """Log what is about to be trained."""
    plan, args, state = run.plan, run.args, run.state
    log.info(
        f"training: {plan.num_examples:,} examples, {plan.max_steps:,} steps of {plan.total_batch_size:,} samples "
        f"({run.batch_size} per process x {args.world_size} processes x {args.gradient_accumulation_steps} "
        f"accumulated), {num_trainable:,} trainable parameters"
    )
    idle.warn_of_idle(args)
    if args.save_strategy == "best" and args.eval_strategy == "no":
        log.warning(
            "save_strategy: is 'best', and eval_strategy is 'no': no checkpoint is written unless a callback asks for "
            "an evaluation. Set eval_strategy to 'steps' or 'epoch'."
        )
    if checkpoint is not None:
        log.info(f"continuing from {checkpoint}, at step {state.global_step:,}, epoch {state.epoch or 0:.4g}")
        if state.global_step > plan.max_steps:
            log.warning(
                f"Nothing is left to train: {checkpoint} is at step {state.global_step:,}, and training ends at step "
                f"{plan.max_steps:,}. Raise num_train_epochs or max_steps, or use the original data."
            )


def _finish(run: TrainerRun, methods: TrainMethods, trial: object, first: int) -> TrainOutput:
    """Log the final metrics, load the best model if asked for, and fire `on_train_end`."""
    args, state = run.args, run.state
    run.loss_total += float(run.loss_sum)
    rest = run.accumulator.take(LOG)
    warn_of_unlike_orders(collectives.gather_objects(rest.sums.get(READ, 0.0)), "train_dataset")
    steps = state.global_step - first
    taken = steps - run.left_out - int(rest.sums.get("left_out", 0))
    train_loss = run.loss_total / max(taken, 0.001)
    samples = run.plan.num_train_samples * steps / max(state.max_steps, 1)
    metrics = speed_metrics("train", run.started, num_samples=samples, num_steps=steps)
    methods.store_flos()
    run.token_counter.settle(state, args.device)
    metrics |= {"total_flos": state.total_flos, "train_loss": train_loss}
    true_total = run.true_total + rest.sums.get(LOSS, 0.0)
    if not isfinite(true_total):  # train_loss has them filtered out
        metrics["train_loss_unfiltered"] = true_total / max(taken, 0.001)
    metrics |= run.memory_of_init | run.memory.metrics("train")
    run.memory_of_init = {}
    methods.log(metrics)
    averaging.end(run)
    if args.load_best_model_at_end:
        methods._load_best_model()
    if args.save_total_limit and args.should_save:  # the best was kept, or a kill came between saving and deleting
        keeping.rotate(run, methods.hub, methods._get_output_dir(trial))
    run.fire("on_train_end")
    methods._finish_current_push()
    return TrainOutput(state.global_step, train_loss, metrics)
