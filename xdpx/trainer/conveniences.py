"""The methods of a Trainer that are seldom overridden: rank, metrics, optimizer, files, Hub, callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.strategies import Strategy
from xdpx.engines.pytorch.strategies.whole import spans_devices
from xdpx.engines.pytorch.world import World, leave
from xdpx.optimizers.pytorch.scheduling import steps_on_metric
from xdpx.reports import results
from xdpx.search.spaces import Space
from xdpx.trainer.accelerator import Accelerator
from xdpx.trainer.copied import Copied
from xdpx.trainer.data import columns, plan
from xdpx.trainer.data.adopting import shared_out
from xdpx.trainer.data.options import LoaderOptions
from xdpx.trainer.files.hub import Hub
from xdpx.trainer.files.model_card import ModelCard, origin_of
from xdpx.trainer.hooks.events import CallbackHandler
from xdpx.trainer.hooks.state import TrainerControl, TrainerState
from xdpx.trainer.loss.calls import LossCalls
from xdpx.trainer.loss.counts import operations_per_token
from xdpx.trainer.loss.model_loss import LabelSmoother
from xdpx.trainer.parts import Shared, TrainerRun
from xdpx.utils import io
from xdpx.utils.aside import clear_way


class Conveniences(Copied):
    """The base of `Trainer`: methods that need nothing but its attributes."""

    train_dataset: Any
    eval_dataset: Any
    data_collator: Any
    model_init: Any
    compute_loss_func: Any
    loss_calls: LossCalls

    # Set by users of a Trainer.
    loss_is_scaled_for_ga: bool | None = None
    processing_class: Any
    hub: Hub | None = None
    hub_model_id: str | None = None
    main_input_name = "input_ids"
    _operations_per_token: int | None = None
    _signature_columns: list[str] | None = None

    # Stored in the run, for the functions of this package.
    args = Shared[Any]()  # of a class that may be the user's own
    model = Shared[nn.Module]()
    model_wrapped = Shared[nn.Module]()
    optimizer = Shared[Any]()
    lr_scheduler = Shared[Any]()
    callback_handler = Shared[CallbackHandler]()
    state = Shared[TrainerState]()
    control = Shared[TrainerControl]()
    is_in_train = Shared[bool]()
    world = Shared[World]("_run.parts")
    strategy = Shared[Strategy]("_run.parts")
    precision = Shared[Precision]("_run.parts")
    label_names = Shared[list[str]]("_run.loss_facts")
    label_smoother = Shared[LabelSmoother | None]("_run.loss_facts", "smoother")
    can_return_loss = Shared[bool]("_run.loss_facts", "returns_loss")
    model_accepts_loss_kwargs = Shared[bool]("_run.loss_facts", "accepts_count")
    current_gradient_accumulation_steps = Shared[int]("_run", "accumulation")
    current_flos = Shared[int]("_run", "operations")
    _train_batch_size = Shared[int]("_run", "batch_size")
    neftune_hook_handle = Shared[Any]("_run", "neftune_hook")
    hp_search_backend = Shared[str | None]("_run.search", "backend")
    hp_space = Shared[Callable[[Any], dict[str, Any]] | Space | Mapping[str, Any] | None]("_run.search", "space")
    hp_name = Shared[Callable[[Any], str] | None]("_run.search", "name_of")
    compute_objective = Shared[Callable[[dict[str, float]], float] | None]("_run.search", "objective_of")
    objective = Shared[float | None]("_run.search")
    _trial = Shared[Any]("_run.search", "trial")
    _tr_loss = Shared[Tensor]("_run", "loss_sum")
    _total_loss_scalar = Shared[float]("_run", "loss_total")
    _globalstep_last_logged = Shared[int]("_run", "logged_step")
    _created_lr_scheduler = Shared[bool]("_run", "made_schedule")

    @cached_property
    def _run(self) -> TrainerRun:
        """All state that changes while this Trainer is used."""
        return TrainerRun()

    # ---- processes

    @property
    def saved_processing(self) -> Any:
        """The tokenizer or processor saved with the model: `processing_class`, or else the collator's tokenizer."""
        return self.processing_class or getattr(self.data_collator, "tokenizer", None)

    @cached_property
    def is_model_parallel(self) -> bool:
        """Whether the model was loaded onto several devices (`device_map`)."""
        return spans_devices(self.model)

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

    @cached_property
    def accelerator(self) -> Accelerator:
        """A stand-in for accelerate's Accelerator; always the same object, so what scripts set on it is kept."""
        adopt = partial(shared_out, world=self.world, seed=self.args.data_seed)
        return Accelerator(self.world, self.strategy, self.precision, adopt, replace(self.args.accelerator_config))

    @cached_property
    def gather_function(self) -> Callable[[Any], Any]:
        """What puts together the rows of all processes in an evaluation; users may assign another function."""
        return self.accelerator.gather_for_metrics

    def is_local_process_zero(self) -> bool:
        """Return whether this is the first process of its machine."""
        return bool(self.world.is_local_main)

    def is_world_process_zero(self) -> bool:
        """Return whether this is the first process of all."""
        return bool(self.world.is_main)

    def end(self) -> None:
        """Destroy the process group: nothing that needs other processes works afterwards."""
        if collectives.num_processes() > 1:
            leave()

    # ---- metrics

    def num_examples(self, dataloader: object) -> int:
        """Return the number of samples behind a loader."""
        return plan.num_examples(dataloader, self.args.per_device_train_batch_size)

    def get_total_train_batch_size(self, args: Any) -> int:
        """Return the number of samples of one step, over all processes."""
        return int(self._train_batch_size * args.gradient_accumulation_steps * args.world_size)

    def get_tp_size(self) -> int:
        """Return the number of processes that share each layer: 1."""
        return 1

    get_cp_size = get_sp_size = get_tp_size

    def save_state(self) -> None:
        """Write `trainer_state.json`."""
        if self.world.is_main:
            path = io.join(self.args.output_dir, "trainer_state.json")
            clear_way(path)
            self.state.save_to_json(path)

    def metrics_format(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the metrics formatted as readable text."""
        return results.formatted(metrics)

    def log_metrics(self, split: str, metrics: dict[str, Any]) -> None:
        """Log the metrics of a split."""
        if self.world.is_main:
            results.show(split, metrics)

    def save_metrics(self, split: str, metrics: dict[str, Any], combined: bool = True) -> None:
        """Write `<split>_results.json`, and with `combined` also put them into `all_results.json`."""
        if self.world.is_main:
            results.save(self.args.output_dir, split, metrics, combined=combined)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Return the FLOPs of training on a micro-batch: 6 per token and non-embedding weight; 0 if unknown."""
        if self._operations_per_token is None:
            self._operations_per_token = operations_per_token(self.model)
        if not self._operations_per_token or self.main_input_name not in inputs:
            return 0
        return self._operations_per_token * inputs[self.main_input_name].numel()  # type: ignore[no-any-return]

    def store_flos(self) -> None:
        """Add the FLOPs since the last call, summed over processes, to `state.total_flos`; on all processes."""
        run = self._run
        device = run.args.device if run.args.device.type != "mps" else "cpu"
        new = torch.tensor(float(run.operations), dtype=torch.float64, device=device)
        run.state.total_flos += float(collectives.sum_over_ranks(new))
        run.operations = 0

    def record(self, name: str, value: float | torch.Tensor) -> None:
        """Add a value to the mean that is logged as `name` at the next log, over steps and processes.

        Raises:
            TypeError: it is not one number.
        """
        if not (value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, Real)):
            found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r:.60}"
            raise TypeError(f"record: '{name}' is {found}. Give one number or a tensor of one element, such as a mean.")
        value = value.reshape(()) if isinstance(value, Tensor) else value
        self._run.accumulator.record(name, value)

    # ---- optimizer

    def get_num_trainable_parameters(self) -> int:
        """Return the number of weights that are trained."""
        return sum(each.numel() for each in self.model.parameters() if each.requires_grad)

    def get_learning_rates(self) -> list[float]:
        """Return the learning rate of each group of the optimizer."""
        return [group["lr"] for group in self._made_optimizer().param_groups]

    def get_optimizer_group(self, param: str | Tensor | None = None) -> Any:
        """Return the optimizer group that holds `param`, None if none does; by default the weights of each group."""
        groups = self._made_optimizer().param_groups
        if param is None:
            return [group["params"] for group in groups]
        return next((group for group in groups if any(each is param for each in group["params"])), None)

    def _made_optimizer(self) -> Any:
        if self.optimizer is None:
            raise ValueError("there is no optimizer yet. Call create_optimizer() or train() first.")
        return self.optimizer

    def _get_learning_rate(self) -> float:
        optimizer, schedule = self._run.optimizer, self._run.lr_scheduler
        rate = optimizer.param_groups[0]["lr"] if steps_on_metric(schedule) else schedule.get_last_lr()[0]
        return float(rate) if isinstance(rate, Tensor) else rate

    # ---- data

    @property
    def input_name(self) -> str | None:
        """The model input whose length is used when samples are grouped by length."""
        names = getattr(self.processing_class, "model_input_names", None)
        return names[0] if names else None

    def _set_signature_columns_if_needed(self) -> None:
        if self._signature_columns is None:
            names = [*self.label_names, *(["labels"] if self.compute_loss_func is not None else [])]
            self._signature_columns = columns.wanted_columns(self.model, names)

    def _remove_unused_columns(self, dataset: object, description: str = "training") -> Any:
        return self._trimmed(dataset, description)[0]

    def _loader_options(self, batch_size: int) -> LoaderOptions:
        return LoaderOptions.of(self.args, batch_size=batch_size, config=self.accelerator.dataloader_config)

    def _fitting(self, dataset: object, description: str) -> tuple[Any, Any]:
        """Return a data set and the collator without columns that the model does not take."""
        if hasattr(dataset, "remove_columns"):
            dataset = self._remove_unused_columns(dataset, description)  # may be overridden
        return self._trimmed(dataset, description)

    def _trimmed(self, dataset: object, description: str) -> tuple[Any, Any]:
        """Return a data set and the collator without columns that the model does not take."""
        if not self.args.remove_unused_columns:
            return dataset, self.data_collator
        self._set_signature_columns_if_needed()
        name, wanted = type(self.model).__name__, self._signature_columns
        return columns.trimmed(dataset, self.data_collator, wanted, description=description, model_name=name)

    # ---- files

    def _get_output_dir(self, trial: object) -> str:
        if self.hp_search_backend is None or trial is None:
            return str(self.args.output_dir)
        name = self.hp_name(trial) if self.hp_name is not None else f"run-{self.trial_id(trial)}"
        return io.join(self.args.output_dir, name)

    def trial_id(self, trial: object) -> str:
        """Return the number or name of a trial of a search."""
        return str(getattr(trial, "number", None) if not isinstance(trial, dict) else trial.get("trial_id", "0"))

    # ---- the Hub

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model; implemented by `Trainer`."""
        raise NotImplementedError

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Create the Hub repository that `args` name, unless it exists."""
        args = self.args
        if not self.world.is_main:
            return
        self.hub = Hub(
            args.hub_model_id or io.name(io.abspath(args.output_dir)), token=token or args.hub_token,
            private=args.hub_private_repo if private is None else private, revision=args.hub_revision,
            strategy=str(args.hub_strategy), always_push=args.hub_always_push,
        )  # fmt: skip
        self.hub_model_id = self.hub.open()

    def create_model_card(self, **facts: Any) -> None:
        """Write `README.md` into the output folder: what was trained, how, and with what result."""
        if not self.world.is_main:
            return
        known = {"model_name": io.name(io.abspath(self.args.output_dir)), "finetuned_from": origin_of(self.model)}
        card = ModelCard(
            **known | {name: value for name, value in facts.items() if value is not None},
            model_tags=getattr(self.model, "model_tags", None) or (),
            arguments=self.args.to_dict(),
            log_history=self.state.log_history,
        )
        card.write(self.args.output_dir)

    def push_to_hub(
        self, commit_message: str = "End of training", blocking: bool = True, token: str | None = None,
        revision: str | None = None, private: bool | None = None, **facts: Any,
    ) -> Any:  # fmt: skip
        """Save the model with its card and upload both; on all processes. `facts` are those of `create_model_card`."""
        if self.hub is None:
            self.init_hf_repo(token, private)
        self.save_model(_internal_call=True)
        if self.hub is None:
            return None
        self._run.fire("on_push_begin")
        if facts.get("model_name") is None:
            facts["model_name"] = str(self.hub_model_id).rpartition("/")[2]
        self.create_model_card(**facts)
        options = {name: value for name, value in (("token", token), ("revision", revision)) if value is not None}
        return self.hub.push(self.args.output_dir, commit_message, blocking=blocking, **options)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self.hub is None or not self.world.is_main or not self.hub.takes_checkpoints:
            return
        unit = "step" if self.args.save_strategy == "steps" else "epoch"
        number = self.state.global_step if unit == "step" else int(self.state.epoch)
        message = f"Training in progress, {unit} {number}"
        self._run.fire("on_push_begin")
        self.hub.push_checkpoint(
            checkpoint_folder, self.args.output_dir, message, processing_class=self.processing_class
        )

    def _finish_current_push(self) -> None:
        if self.hub is not None:
            self.hub.wait()

    # ---- callbacks

    def add_callback(self, callback: object) -> None:
        """Add a callback: an object, or a class, which is then instantiated."""
        self.callback_handler.add_callback(callback)

    def pop_callback(self, callback: object) -> Any:
        """Remove a callback, or the first one of a class, and return it; None if there is none."""
        return self.callback_handler.pop_callback(callback)

    def remove_callback(self, callback: object) -> None:
        """Remove a callback, or the first one of a class."""
        self.callback_handler.remove_callback(callback)
