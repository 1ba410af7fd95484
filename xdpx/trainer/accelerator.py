"""The `trainer.accelerator` that scripts written for the Hugging Face Trainer use, built on our own parts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.memory import release_cached
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.strategies import Strategy
from xdpx.engines.pytorch.world import World
from xdpx.trainer.data import current_loader

UNSET: dict[str, Any] = {
    "_models": [],
    "ao_recipe_handler": None, "autocast_handler": None, "delayed_fp8_autocast": False, "device_placement": True,
    "fp8_enabled": False, "fp8_recipe_handler": None, "has_fp8_handler": False, "has_lomo_optimizer": False,
    "init_handler": None, "is_composable_parallelism_enabled": False, "log_with": [], "logging_dir": None,
    "msamp_recipe_handler": None, "parallelism_config": None, "profile_handler": None, "project_dir": None,
    "save_iteration": 0, "scaler_handler": None, "should_save_model": True, "te_recipe_handler": None,
    "torch_device_mesh": None, "trackers": [], "use_stateful_dataloader": False,
}  # fmt: skip
"""Attributes of accelerate's Accelerator for features that are never set up here, with their values."""

INSTEAD: dict[str, str] = {
    "accumulate": "set gradient_accumulation_steps: the Trainer gathers micro-batches by itself",
    "check_trigger": "set control.should_training_stop in a callback",
    "set_trigger": "set control.should_training_stop in a callback",
    "flag_tensor": "set control.should_training_stop in a callback",
    "context_parallel_rank": "layers are not split over processes here",
    "tensor_parallel_rank": "layers are not split over processes here",
    "pipeline_parallel_rank": "layers are not split over processes here",
    "ddp_handler": "read the arguments ddp_find_unused_parameters, ddp_bucket_cap_mb, ...",
    "deepspeed_ulysses_dl_adapter": "sequences are not split over processes here",
    "data_parallel_rank": "read process_index",
    "data_parallel_shard_rank": "read process_index",
    "end_training": "call trainer.end()",
    "fp8_backend": "FP8 is not supported; fp8_enabled is False",
    "deepspeed_plugin": "trainer.args.deepspeed_config() has its settings",
    "fsdp_plugin": "sharding is xdpx's own: trainer.args.fsdp_options() has its settings",
    "init_trackers": "name trackers in report_to",
    "get_tracker": "name trackers in report_to; trainer.callback_handler.callbacks holds them",
    "log": "call trainer.log(numbers)",
    "join_uneven_inputs": "every process gets the same number of batches (accelerator_config={'even_batches': True})",
    "load_state": "call trainer.train(resume_from_checkpoint=...)",
    "save_state": "call trainer.save_state(), or set control.should_save in a callback",
    "save_model": "call trainer.save_model(folder)",
    "save": "call torch.save where trainer.is_world_process_zero()",
    "register_for_checkpointing": "let a callback be an ExportableState: its state is in every checkpoint",
    "register_load_state_pre_hook": "override Trainer._load_from_checkpoint",
    "register_save_state_pre_hook": "override Trainer._save_checkpoint",
    "lomo_backward": "call backward",
    "profile": "use torch.profiler.profile",
    "project_configuration": "read trainer.args.output_dir",
    "rng_types": "set seed and data_seed, which alone determine order and randomness",
    "skip_first_batches": "resuming continues at the right sample by itself",
    "split_between_processes": "use trainer.args.distributed_state.split_between_processes",
    "step": "read trainer.state.global_step",
    "step_scheduler_with_optimizer": "the Trainer steps the schedule at each update",
    "trigger_sync_in_backward": "the Trainer exchanges gradients at the last micro-batch of an update",
}
"""Attributes of accelerate's Accelerator that are missing here, and what to do instead."""


OF_ACCELERATE = {"learning_rate", "scale_wrt_gas"}
"""Options of the backward pass that bodies copied from the original give; LOMO and DeepSpeed are known here anyway."""


class DistributedType(StrEnum):
    """How training is distributed, in accelerate's words; equal to the same member of its own `DistributedType`."""

    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    MULTI_GPU = "MULTI_GPU"
    DEEPSPEED = "DEEPSPEED"
    FSDP = "FSDP"


PLUGINS = {"deepspeed_plugin": DistributedType.DEEPSPEED, "fsdp_plugin": DistributedType.FSDP}
"""Attributes that are None unless training is distributed in this way."""


@dataclass
class GradientState:
    """The position within an update and within the data.

    Attributes:
        sync_gradients: whether this micro-batch is the last of its update, after which gradients are exchanged.
        num_steps: what `backward` divides a loss by. It is 1, as in the original, since `training_step` divides; in a
            `training_step` of transformers before 4.46 it is the number of micro-batches, as it was then.
    """

    sync_gradients: bool = True
    num_steps: int = 1
    plugin_kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def in_dataloader(self) -> bool:
        """Whether a loader is being iterated."""
        return current_loader.innermost() is not None

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the current batch is the last one of its loader."""
        return current_loader.is_at_end()

    @property
    def remainder(self) -> int:
        """Samples of the last, incomplete round over all processes; 0 if it is complete, -1 if unknown."""
        return current_loader.remainder()

    def _set_sync_gradients(self, sync_gradients: bool) -> None:
        self.sync_gradients = sync_gradients


Function = TypeVar("Function", bound=Callable[..., Any])


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing; stands in for a function that only another process runs."""


class DataSettings(Protocol):
    """How batches reach the processes, e.g. `arguments.acceleration.AcceleratorConfig`. Scripts may set the fields."""

    split_batches: bool
    dispatch_batches: bool | None
    even_batches: bool
    use_seedable_sampler: bool
    non_blocking: bool


class Accelerator:
    """A view of the parts of one Trainer, with the interface of accelerate's Accelerator; it decides nothing.

    Args:
        world: rank and device of this process.
        strategy: how training is distributed.
        precision: number format of the computation.
        adopt: prepares a user's data loader; takes fields of `data.options.LoaderOptions` by keyword.
        data: how batches reach the processes; what a script sets there applies to loaders made afterwards.
    """

    def __init__(
        self, world: World, strategy: Strategy, precision: Precision, adopt: Callable[..., Any], data: DataSettings
    ) -> None:
        self._world, self._strategy, self._precision, self._adopt = world, strategy, precision, adopt
        self.device, self.num_processes, self.process_index = world.device, world.size, world.rank
        self.local_process_index = world.local_rank
        self.is_main_process, self.is_local_main_process = world.is_main, world.is_local_main
        self.is_last_process = world.rank == world.size - 1
        self.mixed_precision, self.native_amp = precision.mode, precision.mode != "no"
        self.gradient_state, self.dataloader_config = GradientState(), data
        self.distributed_type = self._kind()
        self.is_fsdp2 = self.distributed_type is DistributedType.FSDP

    def _kind(self) -> DistributedType:
        if self._strategy.writes_own_state:
            return DistributedType.DEEPSPEED
        if self._strategy.shards:
            return DistributedType.FSDP
        if self._world.mode != "distributed":
            return DistributedType.NO
        return DistributedType.MULTI_CPU if self.device.type == "cpu" else DistributedType.MULTI_GPU

    def __getattr__(self, name: str) -> Any:
        """Return the value of a feature that is never set up here; else raise AttributeError with a remedy."""
        kind = self.__dict__.get("distributed_type")
        if name in PLUGINS and kind is not None and PLUGINS[name] is not kind:
            return None
        if name in UNSET:
            return copy(UNSET[name])
        instead = INSTEAD.get(name) or "ask the Trainer itself, or its args"
        raise AttributeError(f"trainer.accelerator has no '{name}', unlike accelerate's: {instead}.", name=name)

    # ---- rank and device of this process

    @property
    def state(self) -> Accelerator:
        """This object itself; accelerate keeps these attributes in a separate `AcceleratorState`."""
        return self

    @property
    def use_distributed(self) -> bool:
        """Whether several processes train together."""
        return self.num_processes > 1

    multi_device = use_distributed

    @property
    def sync_gradients(self) -> bool:
        """Whether this micro-batch is the last of its update."""
        return self.gradient_state.sync_gradients

    @property
    def gradient_accumulation_steps(self) -> int:
        """What `backward` divides the loss by; see `GradientState`."""
        return self.gradient_state.num_steps

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """The gradient scaler of fp16; None in other precisions."""
        return self._precision.scaler

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether the last update was skipped because gradients overflowed (fp16)."""
        return self._precision.skipped

    # ---- how batches reach the processes

    @property
    def split_batches(self) -> bool:
        """Whether the batch size given is the total over all processes."""
        return self.dataloader_config.split_batches

    @property
    def dispatch_batches(self) -> bool | None:
        """Whether the first process loads the data for all."""
        return self.dataloader_config.dispatch_batches

    @property
    def even_batches(self) -> bool:
        """Whether the last round of batches is completed, so that all processes take the same number of steps."""
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, even: bool) -> None:
        self.dataloader_config.even_batches = even

    @property
    def use_seedable_sampler(self) -> bool:
        """Whether the order of the samples depends on seed and epoch alone."""
        return self.dataloader_config.use_seedable_sampler

    @property
    def non_blocking(self) -> bool:
        """Whether batches are copied to the device without waiting."""
        return self.dataloader_config.non_blocking

    # ---- model and update

    def prepare(self, *things: Any) -> Any:
        """Prepare models and loaders; return anything else unchanged."""
        done = tuple(self._prepared(thing) for thing in things)
        return done[0] if len(done) == 1 else done

    def _prepared(self, thing: object) -> Any:
        if isinstance(thing, nn.Module):
            return self.prepare_model(thing)
        return self.prepare_data_loader(thing) if isinstance(thing, torch.utils.data.DataLoader) else thing

    def prepare_data_loader(self, data_loader: Any, *_: object, **__: object) -> Any:
        """Return a loader that yields this process's part of the data."""
        data = self.dataloader_config
        return self._adopt(
            data_loader, even_batches=data.even_batches, dispatch_batches=data.dispatch_batches,
            split_batches=data.split_batches, seedable=data.use_seedable_sampler,
        )  # fmt: skip

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer, *_: object, **__: object) -> Any:
        """Return the optimizer itself."""
        return optimizer

    prepare_scheduler = prepare_optimizer

    def prepare_model(self, model: nn.Module, evaluation_mode: bool = False, **_: object) -> nn.Module:
        """Return the model on the device, wrapped by the strategy unless it is only for evaluation."""
        self._precision.attach(model)
        return model.to(self.device) if evaluation_mode else self._strategy.prepare(model)

    def unwrap_model(self, model: nn.Module, *_: object, **__: object) -> nn.Module:
        """Return the user's model without wrappers."""
        return self._strategy.unwrap(model)

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Run the backward pass of a loss, divided by `gradient_accumulation_steps`, adding to the gradients.

        `options` are those of `torch.autograd.backward`, e.g. `retain_graph`; others of accelerate are not used.
        """
        steps = self.gradient_accumulation_steps
        kept = {name: value for name, value in options.items() if name not in OF_ACCELERATE}
        self._precision.backward(loss / steps if steps > 1 else loss, **kept)

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Clip the gradients to a maximum norm, and return their norm before. Raises ValueError for another norm."""
        if norm_type != 2:
            raise ValueError(
                f"clip_grad_norm_: norm_type is {norm_type}. Leave it out, since the norm is always 2 here; or "
                "call torch.nn.utils.clip_grad_norm_."
            )
        return self._strategy.clip(list(parameters), max_norm)

    def clip_grad_value_(self, parameters: Iterable[Tensor] | Tensor, clip_value: float) -> None:
        """Clip every element of the gradients to [-clip_value, clip_value]."""
        nn.utils.clip_grad_value_(parameters, clip_value)

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Divide the gradients of an optimizer by the loss scale of fp16. Raises ValueError without an optimizer."""
        if optimizer is None and self.scaler is not None:
            raise ValueError("unscale_gradients: there is no optimizer. Set one: trainer.optimizer.")
        for each in optimizer if isinstance(optimizer, list | tuple) else [optimizer]:
            self._precision.unscale(each)

    def free_memory(self, *objects: Any) -> list[None]:
        """Release cached device memory; return a None for each object, for the caller to overwrite its references."""
        gc.collect()
        release_cached(self.device)
        return [None] * len(objects)

    clear = free_memory

    def verify_device_map(self, model: nn.Module) -> bool:
        """Return whether some part of a model is spread over several devices."""
        return any(len(getattr(part, "hf_device_map", ())) > 1 for part in model.modules())

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Return a context in which gradients are not exchanged."""
        return self._strategy.accumulating(model, last=False)

    def maybe_context_parallel(self, *_: object, **__: object) -> AbstractContextManager[None]:
        """Return a context that does nothing: there is no context parallelism here."""
        return nullcontext()

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of mixed precision."""
        return self._precision.autocast()

    def gather(self, tensors: Any) -> Any:
        """Return the rows of all processes, concatenated."""
        return collectives.gather_rows(tensors)

    def gather_for_metrics(self, tensors: Any, use_gather_object: bool = False) -> Any:
        """Return the rows of all processes concatenated, without samples that only fill up the last round.

        With `use_gather_object`, or where there is something other than tensors, lists are put one after another.
        """
        if self.num_processes == 1:
            return tensors
        as_objects = use_gather_object or not collectives.holds_only_tensors(tensors)
        if as_objects:
            pieces = collectives.gather_objects(tensors)
            listed = all(isinstance(piece, list | tuple) for piece in pieces)
            rows: Any = [row for piece in pieces for row in piece] if listed else pieces
        else:
            rows = collectives.gather_rows(tensors)
        kept = self.gradient_state.remainder if self.gradient_state.end_of_dataloader else 0
        if kept <= 0:
            return rows
        return rows[:kept] if as_objects else collectives.map_tensors(lambda each: each[:kept], rows)

    def pad_across_processes(self, tensors: Any, *_: object, **__: object) -> Any:
        """Return the tensors unchanged: `gather` pads by itself."""
        return tensors

    def reduce(self, tensor: Tensor, reduction: str = "sum", scale: float = 1.0) -> Tensor:
        """Return the sum or the mean over all processes, times `scale`."""
        over = collectives.mean_over_ranks if reduction == "mean" else collectives.sum_over_ranks
        return over(tensor) * scale

    # ---- code for some processes only

    def main_process_first(self) -> AbstractContextManager[Any]:
        """Return a context in which the first process runs the body before the others."""
        return collectives.one_first(is_first=self.is_main_process)

    def local_main_process_first(self) -> AbstractContextManager[Any]:
        """Return a context in which the first process of each machine runs the body before the others."""
        return collectives.one_first(is_first=self.is_local_main_process)

    def on_main_process(self, function: Function) -> Function:
        """Return the function on the first process, one that does nothing on the others; usable as a decorator."""
        return function if self.is_main_process else _nothing  # type: ignore[return-value]

    def on_local_main_process(self, function: Function) -> Function:
        """Return the function on the first process of each machine, one that does nothing on the others."""
        return function if self.is_local_main_process else _nothing  # type: ignore[return-value]

    def on_last_process(self, function: Function) -> Function:
        """Return the function on the last process, one that does nothing on the others."""
        return function if self.is_last_process else _nothing  # type: ignore[return-value]

    def on_process(self, function: Function | None = None, process_index: int | None = None) -> Any:
        """Return the function on one process, one that does nothing on the others; without a function, a decorator."""
        if function is None:
            return partial(self.on_process, process_index=process_index)
        return function if self.process_index == process_index else _nothing

    def on_local_process(self, function: Function | None = None, local_process_index: int | None = None) -> Any:
        """Return the function on one process of each machine, one that does nothing elsewhere; or a decorator."""
        if function is None:
            return partial(self.on_local_process, local_process_index=local_process_index)
        return function if self.local_process_index == local_process_index else _nothing

    def wait_for_everyone(self) -> None:
        """Wait until all processes have called this."""
        collectives.barrier()

    def print(self, *words: Any, **options: Any) -> None:
        """Print on the first process only."""
        if self.is_main_process:
            print(*words, **options)  # noqa: T201 - it is what scripts call to print

    def get_state_dict(self, model: nn.Module, **_: object) -> dict[str, Tensor]:
        """Return all weights on the host of the first process."""
        return self._strategy.weights(model)
