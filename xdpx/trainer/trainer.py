"""The `Trainer` that users of the Hugging Face Trainer know, on the loop of this house.

Every documented method is here to be overridden, and each is a short call of a sibling file; what is of less
interest to override stands in `conveniences.py`. Reading order: `running.py` (one call of `train`), `flow.py` (the
events around each step), `stepping.py` (one step), `scoring.py` (evaluate, predict), `keeping.py`, `resuming.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.arguments import TrainingArguments
from xdpx.dataloaders import feeding, samplers
from xdpx.dataloaders.placing import to_device
from xdpx.dataloaders.plan import plan_training
from xdpx.engines.pytorch.memory import release_cached
from xdpx.losses import trainer_calls as losses
from xdpx.losses.trainer_predictions import prediction_step
from xdpx.optimizers.lr_schedulers.named import scheduler_for
from xdpx.optimizers.pytorch import groups, named
from xdpx.trainer import flow, keeping, resuming, running, scoring, wiring
from xdpx.trainer.conveniences import Conveniences
from xdpx.trainer.outputs import EvalLoopOutput, EvalPrediction, PredictionOutput, TrainOutput
from xdpx.trials import search
from xdpx.trials.search import BestRun

Inputs = dict[str, Any]
NOTHING = nullcontext()


class Trainer(Conveniences):
    """Trains, evaluates and predicts with a PyTorch model whose output begins with, or has, a `loss`.

    Args:
        model: any module; or give `model_init`, which makes a new one for each `train`.
        args: how to train; by default those of `TrainingArguments("tmp_trainer")`.
        data_collator: makes a batch of samples; by default it pads with `processing_class` when that can.
        train_dataset: samples to train on; map-style or iterable.
        eval_dataset: samples to score on, or a dict of such sets.
        processing_class: tokenizer or processor, saved with the model.
        model_init: gives the model; may take a trial of a search.
        compute_loss_func: called with (outputs, labels, num_items_in_batch=); gives the loss.
        compute_metrics: called with an `EvalPrediction`; gives named numbers.
        callbacks: in addition to those that write progress.
        optimizers: optimizer and schedule, instead of those that `args` name.
        optimizer_cls_and_kwargs: class and options of the optimizer, instead of `args.optim`.
        preprocess_logits_for_metrics: called with (logits, labels) before logits are kept.
        tokenizer: the former name of `processing_class`.

    Raises:
        ValueError, RuntimeError, TypeError: arguments that do not go together, all of them named.
    """

    def __init__(  # noqa: PLR0913 - the original's signature
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        data_collator: Callable[[list[Any]], Any] | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        model_init: Callable[..., nn.Module] | None = None,
        compute_loss_func: Callable[..., Tensor] | None = None,
        compute_metrics: Callable[[EvalPrediction], dict[str, Any]] | None = None,
        callbacks: list[Any] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        optimizer_cls_and_kwargs: tuple[Any, dict[str, Any]] | None = None,
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
        *,
        tokenizer: Any = None,
    ) -> None:
        self.args = args if args is not None else TrainingArguments("tmp_trainer")
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.processing_class = processing_class if processing_class is not None else tokenizer
        self.compute_loss_func, self.compute_metrics = compute_loss_func, compute_metrics
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics
        self.optimizer, self.lr_scheduler = optimizers
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs
        wiring.wire(self, model, model_init, data_collator=data_collator, callbacks=callbacks or [])

    # ---- data

    def get_train_dataloader(self) -> Any:
        """Give the batches of this process to train on."""
        return feeding.train_loader(self, self.train_dataset)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Give the batches of this process to score on; a str names one of the dict `eval_dataset`."""
        return feeding.eval_loader(self, eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Give the batches of this process to predict."""
        return feeding.scoring_loader(self, test_dataset, "test")

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        return samplers.train_sampler(self.args, dataset, input_name=self.input_name)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        return samplers.eval_sampler(self.args, eval_dataset, input_name=self.input_name)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> tuple[list[Any], Any]:
        """Give the batches of the next update, and the number of targets in them (None: nobody asks for it)."""
        batches = list(islice(epoch_iterator, num_batches))
        return batches, self._get_num_items_in_batch(batches, device)

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> Any:
        return losses.count_over_ranks(self, batch_samples, device)

    def set_initial_training_values(self, args: TrainingArguments, dataloader: Any) -> tuple[Any, ...]:
        """Give epochs, steps per epoch, examples, samples, samples per step, batches per epoch, and steps in all."""
        size, processes = self._train_batch_size, args.world_size
        return plan_training(args, dataloader, batch_size=size, num_processes=processes).as_tuple()

    def _prepare_input(self, data: Any) -> Any:
        return to_device(data, self.world.device)

    def _prepare_inputs(self, inputs: Inputs) -> Inputs:
        prepared: Inputs = self._prepare_input(inputs)
        if not prepared:
            raise ValueError(
                f"a batch is empty: no column of the data is a parameter of {type(self.model).__name__}.forward "
                f"({', '.join(self._signature_columns or [])}). Rename them, or set remove_unused_columns=False."
            )
        return prepared

    # ---- optimizer and schedule

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Set `optimizer` and `lr_scheduler`, where they are not given."""
        self.create_optimizer()
        self.create_scheduler(num_training_steps)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Set and give the optimizer: weights decay, but biases and norms do not."""
        if self.optimizer is None:
            model = self.model if model is None else model
            decaying = groups.decay_groups(model, self.args.weight_decay, self.get_decay_parameter_names(model))
            chosen = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, model)
            self.optimizer = named.optimizer_for(self.args, model, decaying, chosen)
        return self.optimizer  # type: ignore[no-any-return]

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Set and give the schedule of the learning rate over so many steps."""
        if self.lr_scheduler is None:
            args = self.args
            self.lr_scheduler = scheduler_for(
                args.lr_scheduler_type, self.optimizer if optimizer is None else optimizer,
                args.get_warmup_steps(num_training_steps), num_training_steps, args.lr_scheduler_kwargs,
            )  # fmt: skip
            self._created_lr_scheduler = True
        return self.lr_scheduler

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: TrainingArguments, model: Any = None) -> tuple[Any, dict[str, Any]]:
        """Give the class and the options of the optimizer that `args.optim` names."""
        return named.class_and_kwargs(args, model)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Name the weights that decay: all but biases and norms."""
        return groups.decay_names(model)

    # ---- training

    def train(
        self, resume_from_checkpoint: str | bool | None = None, trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:  # fmt: skip
        """Train; with a path, or True for the newest checkpoint of `output_dir`, go on from there, exactly."""
        return running.train(self, resume_from_checkpoint, trial, ignore_keys_for_eval)

    def _inner_training_loop(
        self, batch_size: int | None = None, args: Any = None, resume_from_checkpoint: str | None = None,
        trial: Any = None, ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:  # fmt: skip
        size = self._train_batch_size if batch_size is None else batch_size
        return running.stretch(self, size, resume_from_checkpoint, trial, ignore_keys_for_eval)

    def training_step(self, model: nn.Module, inputs: Inputs, num_items_in_batch: Any = None) -> Tensor:
        """Add the gradients of one micro-batch, and give its share of the loss, detached."""
        wiring.training_mode(self, model)
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            loss = self.loss_calls.loss(model, inputs, num_items_in_batch)
        every = self.args.torch_empty_cache_steps
        if every is not None and self.state.global_step % every == 0:
            release_cached(self.args.device)
        if self.args.n_gpu > 1:
            loss = loss.mean()
        if self.current_gradient_accumulation_steps > 1 and not self.loss_calls.is_scaled(num_items_in_batch):
            loss = loss / self.current_gradient_accumulation_steps
        losses.backward(self, loss)
        return loss.detach()  # type: ignore[no-any-return]

    def compute_loss(
        self, model: nn.Module, inputs: Inputs, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Give the loss of one micro-batch, with `return_outputs` also the outputs of the model.

        Override it with this signature or the former one, without `num_items_in_batch`; what then comes back counts as
        the mean over the micro-batch. Set `loss_is_scaled_for_ga` to say otherwise.
        """
        loss, outputs = losses.loss_of_model(self, model, inputs, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def compute_loss_context_manager(self) -> AbstractContextManager[Any]:
        """Give the context that losses are computed in, for training and evaluating."""
        contexts, autocast = ExitStack(), self.autocast_smart_context_manager()
        if autocast is not NOTHING:
            contexts.enter_context(autocast)
        return contexts

    def autocast_smart_context_manager(self, cache_enabled: bool | None = True) -> AbstractContextManager[Any]:
        """Give an empty context: mixed precision surrounds the model's own forward pass."""
        return NOTHING

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        return wiring.wrap(self, model, training=training)  # type: ignore[no-any-return]

    def _maybe_log_save_evaluate(
        self, tr_loss: Tensor, grad_norm: Any, model: Any, trial: Any, epoch: Any, ignore_keys_for_eval: Any,
        start_time: float, learning_rate: float | None = None,
    ) -> None:  # fmt: skip
        facts = {"loss": tr_loss, "grad_norm": grad_norm, "learning_rate": learning_rate}
        flow.log_save_evaluate(self, facts, trial=trial, ignore_keys=ignore_keys_for_eval)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add epoch and tokens to some numbers, note them in the history, and hand them to the callbacks."""
        flow.log_numbers(self, logs, start_time)

    # ---- evaluate and predict

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Score a data set (by default `eval_dataset`), log and give its metrics, named `<prefix>_...`."""
        return scoring.evaluate(self, eval_dataset, ignore_keys=ignore_keys, prefix=metric_key_prefix)

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """Predict a data set: numpy arrays, rows in its order, ragged ones filled up with -100."""
        return scoring.predict(self, test_dataset, ignore_keys=ignore_keys, prefix=metric_key_prefix)

    def evaluation_loop(
        self, dataloader: Any, description: str, prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:  # fmt: skip
        """Run the model over a loader, for `evaluate` and `predict`."""
        return scoring.evaluation_loop(
            self,
            dataloader,
            description,
            only_loss=prediction_loss_only,
            ignore_keys=ignore_keys,
            prefix=metric_key_prefix,
        )

    def prediction_step(
        self, model: nn.Module, inputs: Inputs, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Any, Any, Any]:
        """Give (loss, logits, labels) of one batch, without gradient; None for what there is not."""
        return prediction_step(self, model, inputs, only_loss=prediction_loss_only, ignore_keys=ignore_keys)

    def _evaluate(self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = False) -> dict[str, float]:
        metrics: dict[str, float] = flow.evaluate_in_training(self, trial, ignore_keys_for_eval, skip_scheduler)
        return metrics

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        return flow.take_best(self, metrics)

    # ---- files

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model, its configuration and its processing class into a folder; on all processes."""
        keeping.save_model(self, self.args.output_dir if output_dir is None else output_dir)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save")

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        keeping.write_model(self, self.args.output_dir if output_dir is None else output_dir, state_dict)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        keeping.save_checkpoint(self, trial)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        keeping.load_weights(self, resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str) -> None:
        resuming.load_training_state(self, checkpoint)

    def _load_rng_state(self, checkpoint: str) -> None:
        resuming.restore_randomness(self, checkpoint)

    def _load_best_model(self) -> None:
        keeping.load_best(self)

    # ---- search

    def hyperparameter_search(
        self,
        hp_space: Callable[[Any], dict[str, Any]] | None = None,
        compute_objective: Callable[[dict[str, float]], float] | None = None,
        n_trials: int = 20,
        direction: str | list[str] = "minimize",
        backend: str | None = None,
        hp_name: Callable[[Any], str] | None = None,
        **kwargs: Any,
    ) -> BestRun | list[BestRun] | None:
        """Train with many settings and give the best; needs `model_init`, and Optuna or Ray (`backend`)."""
        self.hp_space, self.hp_name = hp_space, hp_name
        self.compute_objective = compute_objective or search.default_objective
        return search.search(self, n_trials, direction, backend, **kwargs)

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """Make a new model, for a trial where `model_init` takes one."""
        return search.new_model(self.model_init, trial)  # type: ignore[no-any-return]

    def _hp_search_setup(self, trial: Any) -> None:
        search.take_trial(self, trial)

    def _report_to_hp_search(self, trial: Any, step: int, metrics: dict[str, float]) -> None:
        search.report(self, trial, step, metrics)

    def _tune_save_checkpoint(self, checkpoint_dir: str) -> str:
        return keeping.save_checkpoint(self, None, checkpoint_dir)
