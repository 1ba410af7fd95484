"""The `Trainer`: the interface of the Hugging Face Trainer, on the training loop of XDPX.

Every documented method may be overridden, and each is short; methods that are seldom overridden are in
`conveniences.py`. Reading order: `parts.py` (the state that the functions share), `running.py` (one call of
`train`), `flow.py` (the events around each step), `stepping.py` (one step), `scoring.py`, `keeping.py`, `resuming.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch.kernels import seed_training
from xdpx.engines.pytorch.memory import MemoryWatch, release_cached
from xdpx.engines.pytorch.precision import in_type
from xdpx.engines.pytorch.transfer import to_device
from xdpx.logger import log
from xdpx.models.pytorch import preparing
from xdpx.optimizers.pytorch import building, groups
from xdpx.optimizers.pytorch.scheduling import scheduler_for, steps_on_metric
from xdpx.reports.results import wanted_metric
from xdpx.search.spaces import Space
from xdpx.trainer import flow, idle, keeping, overrides, resuming, running, scoring, search, wiring
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.arguments.training import apply_log_level
from xdpx.trainer.conveniences import Conveniences
from xdpx.trainer.data import agreement, feeding, loaders, samplers
from xdpx.trainer.data.collation import default_collator
from xdpx.trainer.data.plan import length, plan_training
from xdpx.trainer.loss import predictions
from xdpx.trainer.loss.calls import LOSSES, LossCalls, backward
from xdpx.trainer.loss.counts import TokenCounter
from xdpx.trainer.loss.model_loss import LossFacts, num_positional, takes
from xdpx.trainer.outputs import EvalLoopOutput, EvalPrediction, PredictionOutput, TrainOutput
from xdpx.trainer.search import BestRun
from xdpx.utils import io

Inputs = dict[str, Any]
NOTHING = nullcontext()

NOISE = "neftune_noise_alpha"


class Trainer(Conveniences):
    """Trains, evaluates and predicts with a PyTorch model whose output begins with, or has, a `loss`.

    Args:
        model: any module; or give `model_init`, which makes a new one for each `train`.
        args: how to train; by default those of `TrainingArguments("tmp_trainer")`.
        data_collator: makes a batch of samples; by default it pads with `processing_class` when that can.
        train_dataset: samples to train on; map-style or iterable.
        eval_dataset: samples to score on, or a dict of such sets.
        processing_class: tokenizer or processor, saved with the model.
        model_init: returns a new model; may take a trial of a search.
        compute_loss_func: called with (outputs, labels, num_items_in_batch=); returns the loss.
        compute_metrics: called with an `EvalPrediction`; returns a dict of metrics.
        callbacks: in addition to the built-in ones.
        optimizers: (optimizer, schedule), instead of those that `args` name.
        optimizer_cls_and_kwargs: class and options of the optimizer, instead of `args.optim`.
        preprocess_logits_for_metrics: called with (logits, labels) before logits are kept.
        tokenizer: the former name of `processing_class`.

    Raises:
        ValueError, RuntimeError, TypeError: inconsistent arguments.
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
        wiring.refuse_kinds(model, callbacks, optimizers, compute_metrics, compute_loss_func)
        given = wiring.Given(
            model, model_init, data_collator, train_dataset, eval_dataset, compute_metrics, *optimizers,
            optimizer_cls_and_kwargs,
        )  # fmt: skip
        self.args = args = args if args is not None else TrainingArguments("tmp_trainer")
        wiring.refuse_foreign(args)
        given.refuse_model()
        overrides.warn_of_uncalled(type(self), Trainer)
        seed_training(args.seed, full_determinism=args.full_determinism)
        memory = MemoryWatch(args.device, wanted=not args.skip_memory_metrics)
        apply_log_level(args)
        self._run.parts = wiring.parts_for(args)
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.processing_class = processing_class if processing_class is not None else tokenizer
        self.compute_loss_func, self.compute_metrics = compute_loss_func, compute_metrics
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics
        self.optimizer, self.lr_scheduler = optimizers
        self.optimizer_cls_and_kwargs, self.model_init = optimizer_cls_and_kwargs, model_init
        self._take_model(model if model is not None else self.call_model_init())
        self.data_collator = data_collator or default_collator(self.processing_class)
        self.neftune_noise_alpha = args.neftune_noise_alpha
        self.kept_loaders: dict[str, tuple[Any, Any]] = {}  # the data set with its loader
        given.refuse(args, self.strategy)
        pad_id = getattr(self.processing_class, "pad_token_id", None)
        self._run.token_counter = TokenCounter(str(args.include_num_input_tokens_seen), self.main_input_name, pad_id)
        wiring.add_callbacks(self._run, list(callbacks or ()), self.processing_class)
        if args.push_to_hub:
            self.init_hf_repo()
        folder = str(args.output_dir)
        if args.should_save and io.islocal(folder):
            if io.isfile(folder):
                raise FileExistsError(f"output_dir: {folder} is a file. Name a folder, or move the file away.")
            io.local_files.make_folder(folder)
        self._run.fire("on_init_end")
        self._run.read_once = idle.read_once(args)
        self._run.memory_of_init = memory.metrics("init")

    def _take_model(self, model: nn.Module) -> None:
        """Set the model: check it, move it to the device if it belongs there, and find out how it computes its loss."""
        args, bare = self.args, preparing.bare(model)
        overridden = {name for name in LOSSES if getattr(type(self), name) is not getattr(Trainer, name)}
        preparing.refuse_quantized(model)
        if self.train_dataset is not None and self.compute_loss_func is None and not overridden:
            preparing.refuse_headless(model)  # to predict hidden states only is fine
        self.place_model_on_device = wiring.belongs_on_device(model, args, self.strategy)
        self.model = self.model_wrapped = model.to(args.device) if self.place_model_on_device else model
        preparing.set_use_cache(model, args.use_cache)
        self._run.take_facts(LossFacts.of(bare, names=args.label_names, smoothing=args.label_smoothing_factor))
        self.loss_calls = LossCalls(self, self._run, overridden=overridden)
        self.main_input_name = getattr(bare, "main_input_name", "input_ids")
        self._signature_columns = self._operations_per_token = None

    # ---- data

    def get_train_dataloader(self) -> Any:
        """Return the batches of this process to train on."""
        if self.train_dataset is None:
            raise ValueError("Trainer: there is no train_dataset. Give one to the Trainer.")
        return self._get_dataloader(
            self.train_dataset, "training", self._train_batch_size, self._get_train_sampler, is_training=True
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the evaluation batches of this process; a str selects one set of a dict `eval_dataset`."""
        name, dataset = feeding.eval_set(eval_dataset, self.eval_dataset)
        kept, loader = self.kept_loaders.get(name, (None, None))
        if loader is None or kept is not dataset:
            size = self.args.eval_batch_size
            loader = self._get_dataloader(dataset, "evaluation", size, self._get_eval_sampler, dataloader_key=name)
        return loader

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the batches of this process to predict, in the order of the data."""
        return self._get_dataloader(test_dataset, "test", self.args.eval_batch_size, self._get_eval_sampler)

    def _get_dataloader(
        self, dataset: Any, description: str, batch_size: int, sampler_fn: Callable[..., Any] | None = None,
        is_training: bool = False, dataloader_key: str | None = None,
    ) -> Any:  # fmt: skip
        """Return a loader; with a key, and workers that persist, it is kept for the next evaluation of this data."""
        feeding.refuse_data(dataset, description.lower())
        fitting, collator = self._fitting(dataset, description.lower())
        sampler = None if sampler_fn is None else sampler_fn(*[fitting][: num_positional(sampler_fn)])
        options = self._loader_options(batch_size)
        if is_training:
            return loaders.train_loader(
                fitting, collator=collator, sampler=sampler, options=options, world=self.world, seed=self.args.data_seed
            )
        loader: Any = loaders.eval_loader(
            fitting, collator=collator, sampler=sampler, options=options, world=self.world
        )
        if dataloader_key is not None and self.args.dataloader_persistent_workers:
            self.kept_loaders[dataloader_key] = dataset, loader
            if feeding.was_scored(self.state.log_history, dataloader_key):
                loader.resume_workers()
        return loader

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        return samplers.train_sampler(self.args, dataset, input_name=self.input_name)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        return samplers.eval_sampler(eval_dataset)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: Any = None
    ) -> tuple[list[Any], Any]:
        """Return the batches of the next update, and the number of targets in them (None if no loss needs it)."""
        batches = list(islice(epoch_iterator, num_batches))
        return batches, self._get_num_items_in_batch(batches, device)

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any = None) -> Any:
        return self.loss_calls.count_over_ranks(batch_samples, self.world.device if device is None else device)

    def set_initial_training_values(self, args: TrainingArguments, dataloader: object) -> tuple[Any, ...]:
        """Return epochs, steps per epoch, examples, samples, samples per step, batches per epoch, and total steps."""
        size, processes = self._train_batch_size, args.world_size
        return plan_training(args, dataloader, batch_size=size, num_processes=processes).as_tuple()

    def _prepare_input(self, data: Any) -> Any:
        if type(self)._prepare_input is not Trainer._prepare_input:  # an override is asked for each part, too
            if isinstance(data, Mapping):
                return type(data)({name: self._prepare_input(each) for name, each in data.items()})  # type: ignore[call-arg]
            if isinstance(data, list | tuple) and not hasattr(data, "_fields"):
                return type(data)(self._prepare_input(each) for each in data)
        return to_device(data, self._run.parts.world.device, arrays=False)

    def _prepare_inputs(self, inputs: Inputs) -> Inputs:
        prepared: Inputs = self._prepare_input(inputs)
        if prepared is None:
            raise TypeError("data_collator: returned None. Let it return the batch, a dict of the model's arguments.")
        if not prepared:
            raise ValueError(
                f"a batch is empty: no column of the data is a parameter of {type(self.model).__name__}.forward "
                f"({', '.join(self._signature_columns or [])}). Rename them, or set remove_unused_columns=False."
            )
        return prepared

    # ---- optimizer and schedule

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Create `optimizer` and `lr_scheduler`, unless they are given; overrides may set them, or only return them."""
        made = self.create_optimizer()
        self.optimizer = made if self.optimizer is None else self.optimizer
        made = self.create_scheduler(num_training_steps)
        self.lr_scheduler = made if self.lr_scheduler is None else self.lr_scheduler

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Create and return the optimizer, with weight decay on all weights but biases and norms."""
        if self.optimizer is None:
            model = self.model if model is None else model
            decaying = groups.decay_groups(model, self.args.weight_decay, self.get_decay_parameter_names(model))
            chosen = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, model)
            self.optimizer = building.optimizer_for(self.args, model, decaying, chosen)
            self._run.made_optimizer = self.optimizer, wiring.optimizer_settings(self.args)
        return self.optimizer  # type: ignore[no-any-return]

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Create and return the learning rate schedule over `num_training_steps`."""
        if self.lr_scheduler is None:
            args = self.args
            self.lr_scheduler = scheduler_for(
                args.lr_scheduler_type, self.optimizer if optimizer is None else optimizer,
                args.get_warmup_steps(num_training_steps), num_training_steps, args.lr_scheduler_kwargs,
            )  # fmt: skip
            self._run.made_schedule = True
        return self.lr_scheduler

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: TrainingArguments, model: Any = None) -> tuple[Any, dict[str, Any]]:
        """Return the class and the options of the optimizer that `args.optim` names."""
        return building.class_and_kwargs(args, model)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return the names of the weights with weight decay: all but biases and norms."""
        return groups.decay_names(model)

    # ---- training

    def train(
        self, resume_from_checkpoint: str | bool | None = None, trial: object = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:  # fmt: skip
        """Train; with a path, or True for the newest checkpoint of `output_dir`, resume exactly from there."""
        return running.train(self._run, self, resume_from_checkpoint, trial=trial, ignore_keys=ignore_keys_for_eval)

    def _inner_training_loop(
        self, batch_size: int | None = None, args: object = None, resume_from_checkpoint: str | None = None,
        trial: object = None, ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:  # fmt: skip
        if batch_size is not None:
            self._run.batch_size = batch_size
        return running.stretch(self._run, self, resume_from_checkpoint, trial=trial, ignore_keys=ignore_keys_for_eval)

    def training_step(self, model: nn.Module, inputs: Inputs, num_items_in_batch: Any = None) -> Tensor:
        """Run forward and backward pass of one micro-batch; return its share of the loss, detached."""
        run = self._run
        args = run.args
        wiring.training_mode(run, model)
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            loss = self.loss_calls.loss(model, inputs, num_items_in_batch)
        every = args.torch_empty_cache_steps
        if every is not None and run.state.global_step % every == 0:
            release_cached(args.device)
        if loss.dim():  # one for each GPU of DataParallel
            loss = loss.mean()
        if run.accumulation > 1 and not self.loss_calls.is_scaled(num_items_in_batch):
            loss = loss / run.accumulation
        if run.state.global_step == 0:
            wiring.warn_of_untrained_weights(run, model, loss)
        backward(loss, run.optimizer, run.parts.precision, self._get_learning_rate)
        return loss.detach()

    def compute_loss(
        self, model: nn.Module, inputs: Inputs, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of one micro-batch, with `return_outputs` also the outputs of the model.

        Override it with this signature or the former one, without `num_items_in_batch`; what then comes back counts as
        the mean over the micro-batch. Set `loss_is_scaled_for_ga` to say otherwise.
        """
        loss, outputs = self.loss_calls.of_model(model, inputs, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def compute_loss_context_manager(self) -> AbstractContextManager[Any]:
        """Return the context that losses are computed in, for training and evaluating."""
        contexts, autocast = ExitStack(), self.autocast_smart_context_manager()
        if autocast is not NOTHING:
            contexts.enter_context(autocast)
        return contexts

    def autocast_smart_context_manager(self, cache_enabled: bool | None = True) -> AbstractContextManager[Any]:
        """Return an empty context: mixed precision surrounds the model's own forward pass."""
        return NOTHING

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: object = None) -> nn.Module:
        return wiring.wrap(self._run, model, training=training)

    def _maybe_log_save_evaluate(
        self, tr_loss: Tensor, grad_norm: Any, model: object, trial: object, epoch: object, ignore_keys_for_eval: Any,
        start_time: float | None = None, learning_rate: float | None = None,
    ) -> None:  # fmt: skip
        facts = {"loss": tr_loss, "grad_norm": grad_norm, "learning_rate": learning_rate}
        flow.log_save_evaluate(self._run, self, facts, trial=trial, ignore_keys=ignore_keys_for_eval)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add epoch and token counts to the metrics, append them to the log history, and fire `on_log`."""
        flow.log_numbers(self._run, logs, start_time)

    # ---- evaluate and predict

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Score a data set (by default `eval_dataset`), log and return its metrics, named `<prefix>_...`."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(dataset, dict):
            metrics: dict[str, float] = {}
            if not dataset:
                log.warning("eval_dataset: is an empty dict, so nothing is evaluated. Give it a data set.", once=True)
            for name, part in dataset.items():
                # a name lets a kept loader be reused
                part = name if eval_dataset is None and isinstance(name, str) else part
                prefix = f"{metric_key_prefix}_{name}"
                score = partial(self.evaluate, ignore_keys=ignore_keys, metric_key_prefix=prefix)
                # an override may have its parameters in another order
                score = partial(score, eval_dataset=part) if takes(score, "eval_dataset") else partial(score, part)
                metrics |= score() if self._run.evaluation is None else self._run.evaluation.once(prefix, score)
            return metrics
        cost = scoring.Cost(self._run, metric_key_prefix)
        loader = cost.begin(self.get_eval_dataloader(dataset))
        output = self.evaluation_loop(
            loader, "Evaluation", prediction_loss_only=True if self.compute_metrics is None else None,
            ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix,
        )  # fmt: skip
        scoring.warn_of_nothing(self._run, output, metric_key_prefix)
        output.metrics.update(cost.time(output))
        self.log(output.metrics)
        output.metrics.update(cost.memory("eval"))
        self._run.fire("on_evaluate", output.metrics)
        return output.metrics

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """Predict a data set; return numpy arrays, rows in its order, ragged ones padded with -100."""
        cost = scoring.Cost(self._run, metric_key_prefix)
        loader = cost.begin(self.get_test_dataloader(test_dataset))
        output = self.evaluation_loop(
            loader, "Prediction", ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix
        )
        output.metrics.update(cost.time(output) | cost.memory("test"))
        self._run.fire("on_predict", output.metrics)
        return PredictionOutput(output.predictions, output.label_ids, output.metrics)

    def evaluation_loop(
        self, dataloader: object, description: str, prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:  # fmt: skip
        """Run the model over a loader, for `evaluate` and `predict`."""
        args, run = self.args, self._run
        agreement.refuse_unlike_loaders(dataloader)
        only_loss = args.prediction_loss_only if prediction_loss_only is None else prediction_loss_only
        if only_loss and self.compute_metrics is not None:
            log.warning(
                "prediction_loss_only: is True, so that compute_metrics is never called. Set it to False to have the "
                "metrics.",
                once=True,
            )
        examples = self.num_examples(dataloader) if length(dataloader) is not None else "unknown"
        log.info(f"{description}: {examples} examples, batches of {args.eval_batch_size}")
        run.callback_handler.eval_dataloader = dataloader
        seen = scoring.Seen(self, run, dataloader, streaming=args.batch_eval_metrics and description != "Prediction")
        with run.averaged(), wiring.evaluating(run, self._wrap_model) as model:
            batches = seen.batches()
            for inputs, last in batches if run.evaluation is None else run.evaluation.batches(batches):
                with log.scoring(), log.muted(unless=not seen.idle):
                    loss, logits, labels = self.prediction_step(model, inputs, only_loss, ignore_keys=ignore_keys)
                seen.add(inputs, loss, logits, labels, last=last)
                run.fire("on_prediction_step")
        return seen.result(metric_key_prefix)

    def prediction_step(
        self, model: nn.Module, inputs: Inputs, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Any, Any, Any]:
        """Return (loss, logits, labels) of one batch, without gradient; None for each that is missing."""
        names = predictions.targets_wanted(inputs, self._run.loss_facts)
        with_loss, inputs = names is not None, self._prepare_inputs(inputs)
        # The labels are read first: computing the loss may remove them from the inputs.
        labels, inputs = predictions.labels_of(inputs, names), in_type(inputs, self._run.evaluation_type)
        with torch.no_grad(), self.compute_loss_context_manager():
            if with_loss:
                loss, outputs = self.loss_calls.loss_and_outputs(model, inputs)
                loss = loss.detach().mean()
            else:
                loss, outputs = None, model(**inputs)
        if prediction_loss_only:
            return loss, None, None
        left_out = predictions.ignored_outputs(self.model) if ignore_keys is None else ignore_keys
        return loss, predictions.logits_of(outputs, left_out, with_loss=with_loss), labels

    def _evaluate(self, trial: object, ignore_keys_for_eval: Any, skip_scheduler: bool = False) -> dict[str, float]:
        try:
            metrics = self.evaluate(ignore_keys=ignore_keys_for_eval)
        except (torch.OutOfMemoryError, MemoryError) as error:
            error.add_note(
                "This was an evaluation: lower per_device_eval_batch_size (auto_find_batch_size does not do it)."
            )
            raise
        self._report_to_hp_search(trial, self.state.global_step, metrics)
        if steps_on_metric(self.lr_scheduler) and not skip_scheduler:
            self.lr_scheduler.step(wanted_metric(self.args.metric_for_best_model or "loss", metrics))
        return metrics

    def _determine_best_metric(self, metrics: dict[str, float], trial: object) -> bool:
        return flow.take_best(self._run, metrics)

    # ---- files

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model, its configuration and its processing class into a folder; on all processes."""
        strategy, args = self.strategy, self.args
        with self._run.averaged():
            weights = strategy.weights(self.model_wrapped, wanted=args.should_save) if strategy.shards else None
            self._save(args.output_dir if output_dir is None else output_dir, weights)
        if args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save")

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        folder = self.args.output_dir if output_dir is None else output_dir
        keeping.write_model(self._run, folder, state_dict, self.saved_processing)

    def _save_checkpoint(self, model: object, trial: object, metrics: object = None) -> None:
        """Save a checkpoint; `metrics` are ignored: overrides of former years pass them on."""
        keeping.save_checkpoint(self._run, self, self._get_output_dir(trial))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        keeping.load_weights(self._run, resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str) -> None:
        resuming.load_training_state(self._run, checkpoint)

    def _load_callback_state(self) -> None:
        resuming.restore_callbacks(self._run)

    def _load_rng_state(self, checkpoint: str) -> None:
        resuming.restore_randomness(self.world, checkpoint)

    def _load_best_model(self) -> None:
        keeping.load_best(self._run)

    # ---- search

    def hyperparameter_search(
        self,
        hp_space: Callable[[Any], dict[str, Any]] | Space | Mapping[str, Any] | None = None,
        compute_objective: Callable[[dict[str, float]], float] | None = None,
        n_trials: int = 20,
        direction: str | list[str] = "minimize",
        backend: str | None = None,
        hp_name: Callable[[Any], str] | None = None,
        **kwargs: Any,
    ) -> BestRun | list[BestRun] | None:
        """Train with many settings and return the best; needs `model_init`.

        With `backend="xdpx"`, `hp_space` is a dict of dimensions or a `Space`, a promoted trial is resumed exactly, and
        the same call continues an interrupted search. For its options see `staging.StagedTrials.search`. Optuna and
        Ray take the arguments of the original.
        """
        self.hp_space, self.hp_name = hp_space, hp_name
        self.compute_objective = compute_objective or search.default_objective
        noise = self.neftune_noise_alpha
        try:
            return search.Trials(self._run, self).search(n_trials, direction, backend, **kwargs)
        finally:
            self.neftune_noise_alpha = noise

    def call_model_init(self, trial: object = None) -> nn.Module:
        """Return a new model from `model_init`, which gets the trial if it takes one."""
        return search.new_model(self.model_init, trial)  # type: ignore[no-any-return]

    def _hp_search_setup(self, trial: object) -> None:
        before = self._run.search.replaced
        search.take_trial(self._run, trial)
        if NOISE in {*before, *self._run.search.replaced}:  # a trial sets it, or no longer does
            self.neftune_noise_alpha = self.args.neftune_noise_alpha

    def _report_to_hp_search(self, trial: object, step: int, metrics: dict[str, float]) -> None:
        search.report(self._run, trial, step, metrics, save=self._tune_save_checkpoint)

    def _tune_save_checkpoint(self, checkpoint_dir: str) -> str:
        return keeping.save_checkpoint(self._run, self, checkpoint_dir)
