"""What users of a Trainer also find on it, and seldom override: numbers about it, files with metrics, Hub, callbacks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from xdpx.checkpoints.hub import Hub
from xdpx.checkpoints.model_card import ModelCard
from xdpx.dataloaders import columns, plan
from xdpx.dataloaders.adopting import shared_out
from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.accelerator import Accelerator
from xdpx.optimizers.lr_schedulers.named import steps_on_metric
from xdpx.reports import results
from xdpx.trainer.counting import operations_per_token
from xdpx.utils import io


class Conveniences:
    """The base of `Trainer`: what needs nothing but its attributes."""

    args: Any
    model: Any
    model_wrapped: Any
    optimizer: Any
    lr_scheduler: Any
    state: Any
    control: Any
    callback_handler: Any
    train_dataset: Any
    eval_dataset: Any
    data_collator: Any
    processing_class: Any
    world: Any
    strategy: Any
    precision: Any
    label_names: list[str]
    records: Any
    hub: Hub | None = None

    # Set by those who use a Trainer, or while it works.
    loss_is_scaled_for_ga: bool | None = None
    is_in_train = False
    hub_model_id: str | None = None
    hp_name: Any = None
    hp_search_backend: Any = None
    model_preparation_time: float | None = None
    saved_step: int | None = None
    current_gradient_accumulation_steps = 1
    current_flos = 0
    _created_lr_scheduler = False
    _signature_columns: list[str] | None = None
    _operations_per_token: int | None = None
    _trial: Any = None

    # ---- who and where

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

    def get_num_trainable_parameters(self) -> int:
        """Give the number of weights that are trained."""
        return sum(each.numel() for each in self.model.parameters() if each.requires_grad)

    def get_learning_rates(self) -> list[float]:
        """Give the learning rate of each group of the optimizer."""
        return [group["lr"] for group in self._made_optimizer().param_groups]

    def get_optimizer_group(self, param: str | Tensor | None = None) -> Any:
        """Give the group of the optimizer that holds a weight; all groups without one."""
        groups = self._made_optimizer().param_groups
        if param is None:
            return [group["params"] for group in groups]
        return next((group for group in groups if any(each is param for each in group["params"])), None)

    def _made_optimizer(self) -> Any:
        if self.optimizer is None:
            raise ValueError("there is no optimizer yet. Call create_optimizer() or train() first.")
        return self.optimizer

    def _get_learning_rate(self) -> float:
        rate = self.optimizer.param_groups[0]["lr"] if steps_on_metric(self.lr_scheduler) else None
        rate = self.lr_scheduler.get_last_lr()[0] if rate is None else rate
        return float(rate) if isinstance(rate, Tensor) else rate

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Give the floating point operations of training on a micro-batch: 6 per token and weight outside embeddings."""
        if self._operations_per_token is None:
            self._operations_per_token = operations_per_token(self.model)
        name = self.main_input_name
        return self._operations_per_token * inputs[name].numel() if self._operations_per_token and name in inputs else 0

    def store_flos(self) -> None:
        """Add the operations since the last call, of all processes, to the state; on all processes."""
        device = self.args.device if self.args.device.type != "mps" else "cpu"
        new = torch.tensor(float(self.current_flos), dtype=torch.float64, device=device)
        self.state.total_flos += float(collectives.sum_over_ranks(new))
        self.current_flos = 0

    def record(self, name: str, value: float | Tensor) -> None:
        """Let the mean of a number over the steps until the next log, and over processes, be logged under `name`."""
        self.records.add(name, value)

    # ---- data

    @property
    def main_input_name(self) -> str:
        """The name of the model's main input."""
        return getattr(self.model, "main_input_name", "input_ids")

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

    def save_state(self) -> None:
        """Write `trainer_state.json` into the output folder."""
        if self.is_world_process_zero():
            self.state.save_to_json(io.join(self.args.output_dir, "trainer_state.json"))

    def metrics_format(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Give metrics as texts for people."""
        return results.formatted(metrics)

    def log_metrics(self, split: str, metrics: dict[str, Any]) -> None:
        """Tell the metrics of a split."""
        if self.is_world_process_zero():
            results.show(split, metrics)

    def save_metrics(self, split: str, metrics: dict[str, Any], combined: bool = True) -> None:
        """Write `<split>_results.json` into the output folder, and with `combined` also `all_results.json`."""
        if self.is_world_process_zero():
            results.save(self.args.output_dir, split, metrics, combined=combined)

    # ---- Hub

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Make the repository on the Hub that `args` name, unless it is there."""
        args = self.args
        if not self.is_world_process_zero():
            return
        self.hub = Hub(
            args.hub_model_id or io.name(io.abspath(args.output_dir)), token=token or args.hub_token,
            private=args.hub_private_repo if private is None else private, revision=args.hub_revision,
            strategy=str(args.hub_strategy), always_push=args.hub_always_push,
        )  # fmt: skip
        self.hub_model_id = self.hub.open()

    def create_model_card(self, **facts: Any) -> None:
        """Write `README.md` into the output folder: what was trained, how, and with what result."""
        if self.is_world_process_zero():
            facts.setdefault("model_name", io.name(io.abspath(self.args.output_dir)))
            arguments = self.args.to_dict()
            ModelCard(**facts, arguments=arguments, log_history=self.state.log_history).write(self.args.output_dir)

    def push_to_hub(
        self, commit_message: str = "End of training", blocking: bool = True, token: str | None = None,
        revision: str | None = None, **facts: Any,
    ) -> Any:  # fmt: skip
        """Save the model with its card and upload both; on all processes. `facts` are those of `create_model_card`."""
        if self.hub is None:
            self.init_hf_repo(token, facts.pop("private", None))
        self.save_model(_internal_call=True)  # type: ignore[attr-defined]
        if self.hub is None:
            return None
        self.control = self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.create_model_card(**facts)
        options = {name: value for name, value in (("token", token), ("revision", revision)) if value is not None}
        return self.hub.push(self.args.output_dir, commit_message, blocking=blocking, **options)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self.hub is None or not self.is_world_process_zero():
            return
        unit = "step" if self.args.save_strategy == "steps" else "epoch"
        number = self.state.global_step if unit == "step" else int(self.state.epoch)
        message = f"Training in progress, {unit} {number}"
        self.control = self.callback_handler.on_push_begin(self.args, self.state, self.control)
        self.hub.push_checkpoint(
            checkpoint_folder, self.args.output_dir, message, processing_class=self.processing_class
        )

    def _finish_current_push(self) -> None:
        if self.hub is not None:
            self.hub.wait()

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
