"""Build a Trainer: check its arguments, choose strategy and precision, set up callbacks, wrap the model."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from xdpx.config.faults import ConfigError, Fault
from xdpx.engines.pytorch import kernels, strategies
from xdpx.engines.pytorch.averaging import keeps_average
from xdpx.engines.pytorch.gradients import backward_of, warn_of_weights_outside
from xdpx.engines.pytorch.memory import keep_freed_memory
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.strategies import Strategy
from xdpx.engines.pytorch.strategies.states import parameters_of
from xdpx.engines.pytorch.strategies.whole import spans_devices
from xdpx.logger import log
from xdpx.optimizers.pytorch.scheduling import steps_on_metric
from xdpx.reports.trackers.choosing import trackers_for
from xdpx.reports.trackers.json_lines import MetricsFile
from xdpx.trainer import idle
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.data.plan import length
from xdpx.trainer.hooks.builtin import DefaultFlowCallback, PrinterCallback, ProgressCallback
from xdpx.trainer.hooks.events import CallbackHandler
from xdpx.trainer.hooks.state import TrainerState, states_of
from xdpx.trainer.loss.model_loss import takes
from xdpx.trainer.parts import TrainerParts, TrainerRun

BY_NAME = "by name, because compute_loss_func comes before compute_metrics since transformers 4.46."
"""How to give arguments that were given by position in the order of earlier years."""


@dataclass(frozen=True)
class Given:
    """What a Trainer is given beside its `args`, and must be consistent with them."""

    model: nn.Module | None
    model_init: Callable[..., nn.Module] | None
    data_collator: Any
    train_dataset: Any
    eval_dataset: Any
    compute_metrics: Callable[..., Any] | None
    optimizer: Any
    lr_scheduler: Any
    optimizer_cls_and_kwargs: tuple[Any, dict[str, Any]] | None

    def refuse_model(self) -> None:
        """Raise unless exactly one of model and model_init is given; RuntimeError or ValueError as in the original."""
        if (self.model is None) == (self.model_init is None):
            kind, what = (RuntimeError, "neither") if self.model is None else (ValueError, "both")
            raise kind(f"Trainer: `model` or `model_init` must be given; there are {what}. Give exactly one of them.")

    def refuse(self, args: TrainingArguments, strategy: Strategy) -> None:
        """Raise for inconsistent arguments; ValueError, RuntimeError or TypeError as in the original."""
        self._refuse_optimizers(args, strategy)
        compute = self.compute_metrics
        if args.batch_eval_metrics and compute is not None and not takes(compute, "compute_result"):
            raise ValueError(
                "compute_metrics: has no parameter `compute_result`, by which batch_eval_metrics says that a batch was "
                "the last. Add it, or set batch_eval_metrics=False."
            )
        if args.eval_strategy != "no" and self.eval_dataset is None:
            raise ValueError(
                f"eval_strategy: is '{args.eval_strategy}', but there is no eval_dataset. Give one, or set 'no'."
            )
        if (args.save_strategy == "best" or args.load_best_model_at_end) and args.metric_for_best_model is None:
            raise ValueError(
                "metric_for_best_model: is None, but the best model is asked for. Name a metric, e.g. 'loss'."
            )
        if self.data_collator and not callable(self.data_collator):
            raise TypeError(f"data_collator: {type(self.data_collator).__name__} cannot be called. Give a function.")
        if self.train_dataset is not None and length(self.train_dataset) is None and args.max_steps <= 0:
            raise ValueError(
                f"max_steps: is {args.max_steps}, and train_dataset has no length (`__len__`) from which steps could "
                "be counted. Set max_steps above 0."
            )

    def _refuse_optimizers(self, args: TrainingArguments, strategy: Strategy) -> None:
        given = self.optimizer is not None or self.lr_scheduler is not None
        if self.optimizer is not None and self.optimizer_cls_and_kwargs is not None:
            raise RuntimeError("Trainer: `optimizers` and `optimizer_cls_and_kwargs` are both given. Give one of them.")
        if given and self.model_init is not None:
            raise RuntimeError(
                "Trainer: `optimizers` hold the weights of one model, but `model_init` makes a new one for each "
                "training. Override create_optimizer_and_scheduler instead."
            )
        by_name = str(getattr(args.optim, "value", args.optim)) in {"lomo", "adalomo"}
        if by_name or backward_of(self.optimizer) is not None:
            _refuse_in_backward(args, strategy)
        if strategy.writes_own_state and args.nonfinite_steps != "keep":
            raise ValueError(
                f"nonfinite_steps: is '{args.nonfinite_steps}', but DeepSpeed takes its steps by itself. Leave it out."
            )
        if strategy.writes_own_state and (args.ema_decay < 1 or args.swa_start is not None):
            name = "ema_decay" if args.ema_decay < 1 else "swa_start"
            raise ValueError(
                f"{name}: is {getattr(args, name)}, but DeepSpeed alone knows the weights that it trains. Leave it "
                "out, or shard with fsdp."
            )
        if given and strategy.shards:
            raise RuntimeError(
                "Trainer: `optimizers` hold weights that fsdp replaces by shards. Override "
                "create_optimizer_and_scheduler."
            )
        idle.warn_of_given_optimizer(args, self.optimizer, self.lr_scheduler)
        if self.optimizer_cls_and_kwargs is not None:
            idle.warn_of_given_class(args, self.optimizer_cls_and_kwargs[1])


def _refuse_in_backward(args: TrainingArguments, strategy: Strategy) -> None:
    """Raise ValueError for settings that cannot work when the backward pass updates the weights (LOMO)."""
    wrong = {
        f"gradient_accumulation_steps is {args.gradient_accumulation_steps}": args.gradient_accumulation_steps > 1,
        f"nonfinite_steps is '{args.nonfinite_steps}'": args.nonfinite_steps != "keep",
        "fp16 is True": args.mixed_precision == "fp16",
        f"there are {args.world_size} processes": args.world_size > 1,
        "weights are sharded": strategy.shards,
    }
    found = [what for what, is_so in wrong.items() if is_so]
    if found:
        raise ValueError(
            f"optim: LOMO steps within the backward pass of each micro-batch, but {', '.join(found)}. Change that, or "
            "use adafactor, whose state is small."
        )
    if args.max_grad_norm:
        log.warning("max_grad_norm: has no effect, because LOMO steps within the backward pass.", once=True)
    if str(getattr(args.optim, "value", args.optim)) == "adalomo":
        log.warning("optim: 'adalomo' keeps its means outside of its state: a resumed run is not exact.", once=True)


def refuse_kinds(
    model: Any, callbacks: Any, optimizers: Any, compute_metrics: Any, compute_loss_func: Any
) -> None:  # fmt: skip
    """Raise ConfigError for arguments of the Trainer that are of another type than it takes."""
    faults = []
    if isinstance(model, type | str):
        what = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
        faults.append(Fault("model", f"is {what}.", "Give an object, such as Net() or what from_pretrained returns."))
    if compute_loss_func is not None and not _takes_two(compute_loss_func):
        name = getattr(compute_loss_func, "__name__", type(compute_loss_func).__name__)
        remedy = f"Let it take (outputs, labels, num_items_in_batch=None). If it computes metrics, give it {BY_NAME}"
        faults.append(Fault("compute_loss_func", f"is {name}, which cannot be called with outputs and labels.", remedy))
    if isinstance(callbacks, tuple) and None in callbacks:
        faults.append(Fault("callbacks", f"is {callbacks!r:.60}, as `optimizers` may be.", f"Give all {BY_NAME}"))
    if callbacks is not None and not isinstance(callbacks, list | tuple):
        faults.append(Fault("callbacks", f"is of {type(callbacks).__name__}.", "Give a list of callbacks."))
    if not isinstance(optimizers, list | tuple) or len(optimizers) != 2:
        problem = f"is of {type(optimizers).__name__}, and not a pair."
        faults.append(Fault("optimizers", problem, "Give (optimizer, schedule); None for one that you leave out."))
    if compute_metrics is not None and not callable(compute_metrics):
        problem = f"is of {type(compute_metrics).__name__}, and cannot be called."
        faults.append(Fault("compute_metrics", problem, "Give a function that takes an EvalPrediction."))
    if faults:
        raise ConfigError("Trainer", faults)


def _takes_two(function: Any) -> bool:
    """Return whether a function can be called with two arguments, as far as its signature is known."""
    try:
        inspect.signature(function).bind(None, None)
    except ValueError:  # written in C, say
        return True
    except TypeError:
        return False
    return True


def refuse_foreign(args: object) -> None:
    """Raise TypeError for arguments that are not ours, e.g. those of transformers."""
    if not isinstance(args, TrainingArguments):
        kind = type(args)
        raise TypeError(
            f"Trainer: args is a {kind.__module__}.{kind.__name__}, and must be an xdpx.TrainingArguments. Import it "
            "from xdpx, too; where a library brings its own (as TRL's SFTConfig), call "
            "xdpx.stand_in_for_transformers() before the library is imported."
        )


def parts_for(args: TrainingArguments) -> TrainerParts:
    """Return world, strategy and precision for the arguments, and configure this process for them."""
    mode = args.mixed_precision
    if args.device.type == "cpu":
        keep_freed_memory()
    kernels.use_tf32(args.tf32_wanted())
    ddp = strategies.DdpOptions(
        args.ddp_find_unused_parameters, args.ddp_bucket_cap_mb, args.ddp_broadcast_buffers, args.ddp_static_graph,
        after_passes=args.auto_find_batch_size,
    )  # fmt: skip
    zero = args.deepspeed_config if args.deepspeed_config() else None
    strategy = strategies.choose(
        args.world, fsdp=args.fsdp_options(), ddp=ddp, precision=mode, deepspeed=zero,
        place=args.place_model_on_device is not False,
    )  # fmt: skip
    return TrainerParts(args.world, strategy, strategy.precision or Precision(mode, args.world.device))  # type: ignore[arg-type]  # it looks


def belongs_on_device(model: nn.Module, args: TrainingArguments, strategy: Strategy) -> bool:
    """Return whether a model is moved to the device at once: as the arguments say, else unless it is placed later."""
    if args.place_model_on_device is not None:
        return args.place_model_on_device
    return not (strategy.shards or args.fp16_full_eval or args.bf16_full_eval or spans_devices(model))


def add_callbacks(run: TrainerRun, callbacks: list[Any], processing_class: Any) -> None:
    """Set up callbacks and state of a run that already has its model."""
    args, world = run.args, run.parts.world
    every = [DefaultFlowCallback, *trackers_for(args.report_to), *callbacks]
    run.callback_handler = CallbackHandler(
        every, run.model, processing_class, run.optimizer, run.lr_scheduler, unlisted=[MetricsFile(lambda: run.folder)]
    )
    run.callback_handler.add_callback(PrinterCallback if args.disable_tqdm else ProgressCallback)
    run.state = TrainerState(
        is_local_process_zero=world.is_local_main, is_world_process_zero=world.is_main,
        stateful_callbacks=states_of(run.exportable()),
    )  # fmt: skip
    run.take_batch_size(anew=True)


def wrap(run: TrainerRun, model: nn.Module, *, training: bool) -> nn.Module:
    """Return the model wrapped for precision, distributed by the strategy, and compiled if asked for."""
    args, parts = run.args, run.parts
    parts.precision.attach(model)
    spread = training or parts.strategy.shards or parts.world.mode == "data_parallel"
    wrapped = parts.strategy.prepare(model) if spread else model
    compiled = args.compile_options()
    if compiled is not None and getattr(wrapped, "_compiled_call_impl", None) is None:
        kernels.compile_in_place(wrapped, compiled.backend, compiled.mode)
    return wrapped


@contextmanager
def evaluating(run: TrainerRun, wrap_model: Callable[..., nn.Module]) -> Generator[nn.Module]:
    """Yield the model in evaluation mode; outside of training cast to fp16/bf16 if full evaluation is set.

    Weights and buffers get their types and values back at the end: what is trained or saved later is not rounded.
    Shards are not cast, which FSDP2 could not train afterwards.
    """
    args, started = run.args, time.time()
    model = wrap_model(run.model, training=False)
    if run.model_preparation_time is None and not run.is_in_train and not run.state.global_step:
        run.model_preparation_time = round(time.time() - started, 4)
    model.eval()
    switch_optimizer(run.optimizer, "eval")
    if run.is_in_train or not (args.fp16_full_eval or args.bf16_full_eval):
        yield model
        return
    if run.parts.strategy.shards:
        half = "fp16" if args.fp16_full_eval else "bf16"
        log.warning(
            f"{half}_full_eval has no effect on sharded weights. Set {half}=True: they are gathered in it.", once=True
        )
        yield model
        return
    kept = [(module, _on_host(module._parameters), _on_host(module._buffers)) for module in model.modules()]
    run.evaluation_type = torch.float16 if args.fp16_full_eval else torch.bfloat16
    try:
        yield model.to(dtype=run.evaluation_type, device=args.device)
    finally:
        run.evaluation_type = None
        for module, weights, buffers in kept:
            for name, weight in weights.items():
                module._parameters[name].data = weight.to(args.device)  # type: ignore[union-attr]
            for name, buffer in buffers.items():
                module._buffers[name] = buffer.to(args.device)


def _on_host(tensors: Mapping[str, torch.Tensor | None]) -> dict[str, torch.Tensor]:
    """Return what a cast would round, on the host: there is room for it even if the device has none."""
    return {
        name: each.detach().cpu() for name, each in tensors.items() if each is not None and each.is_floating_point()
    }


def training_mode(run: TrainerRun, model: nn.Module) -> None:
    """Put the model and its optimizer into training mode; cheap if they already are."""
    if not run.modules or run.modules[0] is not model:
        run.modules = list(model.modules())
    if not all(part.training for part in run.modules):
        model.train()
    switch_optimizer(run.optimizer, "train")


def warn_of_untrained_weights(run: TrainerRun, model: nn.Module, loss: torch.Tensor) -> None:
    """Warn of weights that the loss depends on, but that are neither model's nor optimizer's."""
    if run.optimizer is not None and not run.parts.strategy.shards:
        warn_of_weights_outside(loss, [*model.parameters(), *parameters_of(run.optimizer)], model)


OF_OPTIMIZER = ("optim", "optim_args", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")


def optimizer_settings(args: TrainingArguments) -> dict[str, Any]:
    """Return the arguments that an optimizer is made with, by name."""
    return {name: getattr(args, name) for name in OF_OPTIMIZER}


def warn_of_kept_optimizer(run: TrainerRun) -> None:
    """Warn of arguments that were changed after the optimizer was made, which a second training goes on with."""
    made, settings = run.made_optimizer
    if run.optimizer is not made:
        return
    for name, now in optimizer_settings(run.args).items():
        if now != settings.get(name, now):
            log.warning(
                f"{name}: is {now}, but the optimizer of the training before, which goes on, was made with "
                f"{settings[name]}. To train with {now}, set trainer.optimizer = None before; the state of the "
                "optimizer then begins anew."
            )


def warn_of_unrelated_optimizer(run: TrainerRun) -> None:
    """Warn if the optimizer has no weight of the model that is trained, or the schedule cannot change its rate.

    Both train without an error, but change nothing: the weights, or the learning rate.
    """
    if run.parts.strategy.writes_own_state:
        return  # DeepSpeed makes its own optimizer from the model
    known = {id(weight) for weight in parameters_of(run.optimizer)}
    trained = [weight for weight in run.model.parameters() if weight.requires_grad]
    if trained and known.isdisjoint(map(id, trained)):
        log.warning(
            f"optimizer: its {len(known)} weights are not those of the model, of which {len(trained)} are to be "
            "trained, so training does not change the model. Make the optimizer from trainer.model.parameters(), after "
            "the model is complete (get_peft_model replaces weights), or let the Trainer make it."
        )
    steered = getattr(run.lr_scheduler, "optimizer", run.optimizer)
    if steered is not run.optimizer:
        log.warning(
            "lr_scheduler: changes the learning rate of another optimizer than the one that trains, whose rate stays "
            "as it is. Make the schedule of the same optimizer, or let the Trainer make it."
        )
    if steps_on_metric(run.lr_scheduler) and run.args.eval_strategy == "no":
        log.warning(
            f"lr_scheduler: {type(run.lr_scheduler).__name__} changes the learning rate after evaluations, of which "
            "eval_strategy='no' makes none. Set eval_strategy, unless a callback asks for them."
        )


def switch_optimizer(optimizer: torch.optim.Optimizer, mode: str) -> None:
    """Switch an optimizer that averages weights itself (e.g. schedule-free) to "train" or "eval" weights."""
    if keeps_average(optimizer):
        getattr(optimizer, mode)()
