"""What a Trainer is made of: arguments that go together, model, strategy, callbacks; and its loaders."""

from __future__ import annotations

import time
from typing import Any

import torch

from xdpx.arguments.levels import apply_log_level
from xdpx.dataloaders.collation import default_collator
from xdpx.dataloaders.plan import length
from xdpx.engines.pytorch import collectives, strategies
from xdpx.engines.pytorch.memory import MemoryWatch, keep_freed_memory
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.seeding import seed_from
from xdpx.losses import trainer_loss
from xdpx.losses.trainer_calls import LossCalls
from xdpx.losses.trainer_counts import TokenCounter
from xdpx.losses.trainer_windows import LogWindow
from xdpx.models.pytorch import preparing
from xdpx.reports.trackers.choosing import trackers_for
from xdpx.trainer.hooks.builtin import DefaultFlowCallback, PrinterCallback, ProgressCallback
from xdpx.trainer.hooks.events import CallbackHandler
from xdpx.trainer.hooks.state import TrainerControl, TrainerState, is_exportable, states_of
from xdpx.utils import io


def wire(trainer: Any, model: Any, model_init: Any, *, data_collator: Any, callbacks: list[Any]) -> None:
    """Set everything that a Trainer needs before it is used, in the order of the original."""
    args = trainer.args
    if (model is None) == (model_init is None):
        kind, what = (RuntimeError, "neither") if model is None else (ValueError, "both")
        raise kind(f"Trainer: `model` or `model_init` must be given; there are {what}. Give exactly one of them.")
    seed_from(args)
    memory = MemoryWatch(args.device, wanted=not args.skip_memory_metrics)
    trainer.world = args.world
    apply_log_level(args)
    _choose_strategy(trainer)
    trainer.model_init = model_init
    take_model(trainer, model if model is not None else trainer.call_model_init())
    trainer.data_collator = data_collator or default_collator(trainer.processing_class)
    trainer.neftune_noise_alpha = args.neftune_noise_alpha
    trainer.kept_loaders, trainer.window, trainer.continued, trainer.parts = {}, LogWindow(), None, []
    pad_id = getattr(trainer.processing_class, "pad_token_id", None)
    trainer.token_counter = TokenCounter(args.include_num_input_tokens_seen, trainer.main_input_name, pad_id)
    trainer.gather_function = collectives.gather_rows
    refuse(trainer)
    _listen(trainer, callbacks)
    if args.push_to_hub:
        trainer.init_hf_repo()
    if args.should_save and io.islocal(args.output_dir):
        io.local_files.make_folder(args.output_dir)
    trainer.control = trainer.callback_handler.on_init_end(args, trainer.state, trainer.control)
    preparing.set_use_cache(trainer.model, args.use_cache)
    trainer.memory_of_init = memory.metrics("init")


def _choose_strategy(trainer: Any) -> None:
    args = trainer.args
    mode = args.mixed_precision
    if args.device.type == "cpu":
        keep_freed_memory()
    tf32 = args.tf32_wanted()
    if tf32 is not None:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
    ddp = strategies.DdpOptions(
        args.ddp_find_unused_parameters, args.ddp_bucket_cap_mb, args.ddp_broadcast_buffers, args.ddp_static_graph
    )
    zero = args.deepspeed_config if args.deepspeed_config() else None
    trainer.strategy = strategies.choose(
        trainer.world, fsdp=args.fsdp_options(), ddp=ddp, precision=mode, deepspeed=zero,
        place=args.place_model_on_device is not False,
    )  # fmt: skip
    trainer.precision = trainer.strategy.precision or Precision(mode, trainer.world.device)


def _has_own_loss(trainer: Any) -> bool:
    """Tell whether the user says how a loss is made of what the model gives."""
    used = (getattr(type(trainer), name).__module__ for name in ("compute_loss", "training_step"))
    return trainer.compute_loss_func is not None or not all(module.startswith("xdpx.") for module in used)


def take_model(trainer: Any, model: Any) -> None:
    """Take over a model: on the device where it may be, and with what is asked once about it."""
    args, bare = trainer.args, preparing.bare(model)
    preparing.refuse_quantized(model)
    if trainer.train_dataset is not None and not _has_own_loss(trainer):  # hidden states may well be predicted
        preparing.refuse_headless(model)
    place = args.place_model_on_device
    if place is None:
        spread = len(set(getattr(model, "hf_device_map", None) or ())) > 1
        place = not (trainer.strategy.shards or args.fp16_full_eval or args.bf16_full_eval or spread)
    trainer.place_model_on_device = place
    trainer.model = trainer.model_wrapped = model.to(args.device) if place else model
    trainer.model_accepts_loss_kwargs = trainer_loss.accepts_count(bare)
    trainer._loss_shifts_labels = trainer_loss.shifts_labels(bare)
    trainer.label_names = args.label_names if args.label_names is not None else trainer_loss.label_names(bare)
    trainer.can_return_loss = trainer_loss.returns_loss(bare)
    trainer.label_smoother = trainer_loss.smoother_for(args.label_smoothing_factor, bare)
    trainer.smoother_shifts_labels = trainer_loss.smoother_shifts_labels(bare)
    trainer.loss_calls = LossCalls(trainer)
    trainer.main_input_name = getattr(bare, "main_input_name", "input_ids")
    trainer._signature_columns = trainer._operations_per_token = None


def exportable(trainer: Any) -> list[Any]:
    """Give the callbacks, and the control, whose state goes into checkpoints."""
    return [each for each in [*trainer.callback_handler.callbacks, trainer.control] if is_exportable(each)]


def _listen(trainer: Any, callbacks: list[Any]) -> None:
    """Set up callbacks, control and state."""
    args = trainer.args
    every = [DefaultFlowCallback, *trackers_for(args.report_to), *callbacks]
    trainer.callback_handler = CallbackHandler(
        every, trainer.model, trainer.processing_class, trainer.optimizer, trainer.lr_scheduler
    )
    trainer.add_callback(PrinterCallback if args.disable_tqdm else ProgressCallback)
    trainer.control = TrainerControl()
    trainer.state = TrainerState(
        is_local_process_zero=trainer.is_local_process_zero(), is_world_process_zero=trainer.is_world_process_zero(),
        stateful_callbacks=states_of(exportable(trainer)),
    )  # fmt: skip
    trainer._train_batch_size = args.train_batch_size


def refuse(trainer: Any) -> None:
    """Raise for what does not go together; ValueError, RuntimeError or TypeError as the original does."""
    args = trainer.args
    given = trainer.optimizer is not None or trainer.lr_scheduler is not None
    compute = trainer.compute_metrics
    if trainer.optimizer is not None and trainer.optimizer_cls_and_kwargs is not None:
        raise RuntimeError("Trainer: `optimizers` and `optimizer_cls_and_kwargs` are both given. Give one of them.")
    if given and trainer.model_init is not None:
        raise RuntimeError(
            "Trainer: `optimizers` hold the weights of one model, but `model_init` makes a new one for each training. "
            "Override create_optimizer_and_scheduler instead."
        )
    if trainer.strategy.writes_own_state and args.nonfinite_steps != "keep":
        raise ValueError(
            f"nonfinite_steps: is '{args.nonfinite_steps}', but DeepSpeed takes its steps by itself. Leave it out."
        )
    if given and trainer.strategy.shards:
        raise RuntimeError(
            "Trainer: `optimizers` hold weights that fsdp replaces by shards. Override create_optimizer_and_scheduler."
        )
    if args.batch_eval_metrics and compute is not None and not trainer_loss.takes(compute, "compute_result"):
        raise ValueError(
            "compute_metrics: has no parameter `compute_result`, by which batch_eval_metrics says that a batch was the "
            "last. Add it, or set batch_eval_metrics=False."
        )
    if args.eval_strategy != "no" and trainer.eval_dataset is None:
        raise ValueError(
            f"eval_strategy: is '{args.eval_strategy}', but there is no eval_dataset. Give one, or set 'no'."
        )
    if (args.save_strategy == "best" or args.load_best_model_at_end) and args.metric_for_best_model is None:
        raise ValueError("metric_for_best_model: is None, but the best model is asked for. Name a metric, e.g. 'loss'.")
    if not callable(trainer.data_collator):
        raise TypeError(f"data_collator: {type(trainer.data_collator).__name__} cannot be called. Give a function.")
    if trainer.train_dataset is not None and length(trainer.train_dataset) is None and args.max_steps <= 0:
        raise ValueError(
            f"max_steps: is {args.max_steps}, and train_dataset has no length (`__len__`) from which steps could be "
            "counted. Set max_steps above 0."
        )


def wrap(trainer: Any, model: Any, *, training: bool) -> Any:
    """Give what is called in the place of a model: in its precision, spread over processes, compiled."""
    args, strategy = trainer.args, trainer.strategy
    trainer.precision.attach(model)
    spread = training or strategy.shards or trainer.world.mode == "data_parallel"
    wrapped = strategy.prepare(model) if spread else model
    compiled = args.compile_options()
    if compiled is not None and getattr(wrapped, "_compiled_call_impl", None) is None:
        preparing.compile_in_place(wrapped, compiled.backend, compiled.mode)
    return wrapped


def evaluation_model(trainer: Any) -> Any:
    """Give the model to score with, in evaluation mode; outside of training in the type of a full evaluation."""
    args = trainer.args
    started = time.time()
    model = trainer._wrap_model(trainer.model, training=False)
    if trainer.model_preparation_time is None and not trainer.is_in_train and not trainer.state.global_step:
        trainer.model_preparation_time = round(time.time() - started, 4)
    full = not trainer.is_in_train and (args.fp16_full_eval or args.bf16_full_eval)
    trainer.evaluation_type = (torch.float16 if args.fp16_full_eval else torch.bfloat16) if full else None
    if full:
        model = model.to(dtype=trainer.evaluation_type, device=args.device)
    model.eval()
    switch_optimizer(trainer.optimizer, "eval")
    return model


def training_mode(trainer: Any, model: Any) -> None:
    """Bring all parts of a model, and its optimizer, into the mode for training; costs little where they are in it."""
    if trainer.parts[:1] != [model]:
        trainer.parts = list(model.modules())
    if not all(part.training for part in trainer.parts):
        model.train()
    switch_optimizer(trainer.optimizer, "train")


def switch_optimizer(optimizer: Any, mode: str) -> None:
    """Tell an optimizer that keeps two sets of weights (schedule-free ones) which of them is wanted."""
    switch = getattr(optimizer, mode, None)
    if callable(switch):
        switch()
