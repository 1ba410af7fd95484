"""What users of a Trainer also find on it, and seldom override: who it is among others, numbers, callbacks."""

from __future__ import annotations

from typing import Any

import torch

from xdpx.checkpoints.hub_methods import PushesToHub
from xdpx.dataloaders import columns, plan
from xdpx.dataloaders.adopting import shared_out
from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.accelerator import Accelerator
from xdpx.losses.trainer_counts import CountsWork
from xdpx.optimizers.pytorch.questions import AnswersAboutOptimizer
from xdpx.reports.results import ReportsMetrics
from xdpx.utils import io


class Conveniences(PushesToHub, ReportsMetrics, AnswersAboutOptimizer, CountsWork):
    """The base of `Trainer`: what needs nothing but its attributes."""

    model_init: Any
    model_wrapped: Any
    train_dataset: Any
    eval_dataset: Any
    data_collator: Any
    strategy: Any
    precision: Any
    label_names: list[str]
    label_smoother: Any
    loss_calls: Any
    _train_batch_size: int

    # Set by those who use a Trainer, or while it works.
    loss_is_scaled_for_ga: bool | None = None
    is_in_train = False
    hp_name: Any = None
    hp_search_backend: Any = None
    model_preparation_time: float | None = None
    evaluation_type: torch.dtype | None = None
    saved_step: int | None = None
    current_gradient_accumulation_steps = 1
    _created_lr_scheduler = False
    _signature_columns: list[str] | None = None
    _trial: Any = None

    # ---- who and where

    @property
    def is_fsdp_enabled(self) -> bool:
        """Whether the model is sharded over processes."""
        return bool(self.strategy.shards and not self.strategy.writes_own_state)

    @property
    def is_deepspeed_enabled(self) -> bool:
        """Whether DeepSpeed trains the model."""
        return bool(self.strategy.writes_own_state)

    @property
    def tokenizer(self) -> Any:
        """The former name of `processing_class`."""
        return self.processing_class

    @tokenizer.setter
    def tokenizer(self, processing_class: Any) -> None:
        self.processing_class = processing_class

    @property
    def accelerator(self) -> Accelerator:
        """What scripts ask accelerate's object of that name for."""

        def prepare(loader: Any) -> Any:
            return shared_out(loader, self.world, seed=self.args.data_seed)

        return Accelerator(self.world, self.strategy, self.precision, prepare)

    def is_local_process_zero(self) -> bool:
        """Tell whether this is the first process of its machine."""
        return bool(self.world.is_local_main)

    def is_world_process_zero(self) -> bool:
        """Tell whether this is the first process of all."""
        return bool(self.world.is_main)

    def end(self) -> None:
        """End the run for good, with its process group: nothing that needs other processes works after it."""
        if collectives.num_processes() > 1:
            torch.distributed.destroy_process_group()

    # ---- numbers

    def num_examples(self, dataloader: Any) -> int:
        """Give the number of samples behind a loader."""
        return plan.num_examples(dataloader, self.args.per_device_train_batch_size)

    def get_total_train_batch_size(self, args: Any) -> int:
        """Give the number of samples of one step, over all processes."""
        return int(self._train_batch_size * args.gradient_accumulation_steps * args.world_size)

    def get_tp_size(self) -> int:
        """Give the number of processes that share each layer: 1."""
        return 1

    get_cp_size = get_sp_size = get_tp_size

    # ---- data

    @property
    def input_name(self) -> str | None:
        """The name of the input whose length counts when samples are sorted by length."""
        names = getattr(self.processing_class, "model_input_names", None)
        return names[0] if names else None

    def _set_signature_columns_if_needed(self) -> None:
        if self._signature_columns is None:
            self._signature_columns = columns.wanted_columns(self.model, self.label_names)

    def _remove_unused_columns(self, dataset: Any, description: str = "training") -> Any:
        return self._trimmed(dataset, description)[0]

    def _trimmed(self, dataset: Any, description: str) -> tuple[Any, Any]:
        """Give a data set and the collator without columns that the model does not take."""
        if not self.args.remove_unused_columns:
            return dataset, self.data_collator
        self._set_signature_columns_if_needed()
        name, wanted = type(self.model).__name__, self._signature_columns
        return columns.trimmed(dataset, self.data_collator, wanted, description=description, model_name=name)

    # ---- files

    def _get_output_dir(self, trial: Any) -> str:
        if self.hp_search_backend is None or trial is None:
            return str(self.args.output_dir)
        name = self.hp_name(trial) if self.hp_name is not None else f"run-{self.trial_id(trial)}"
        return io.join(self.args.output_dir, name)

    def trial_id(self, trial: Any) -> str:
        """Give the number or name of a trial of a search."""
        return str(getattr(trial, "number", None) if not isinstance(trial, dict) else trial.get("trial_id", "0"))

    # ---- callbacks

    def add_callback(self, callback: Any) -> None:
        """Add a callback: an object, or a class of which one is made."""
        self.callback_handler.add_callback(callback)

    def pop_callback(self, callback: Any) -> Any:
        """Take out a callback, or the first of a class, and give it; None when there is none."""
        return self.callback_handler.pop_callback(callback)

    def remove_callback(self, callback: Any) -> None:
        """Take out a callback, or the first of a class."""
        self.callback_handler.remove_callback(callback)
