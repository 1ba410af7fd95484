"""Evaluate and predict: batch by batch without gradient, joined on the host, each metric computed once over all."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch

from xdpx.dataloaders.feeding import with_last
from xdpx.dataloaders.joining import Joiner
from xdpx.dataloaders.loaders import own_rows
from xdpx.dataloaders.placing import find_batch_size
from xdpx.dataloaders.plan import known_samples, length
from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.memory import MemoryWatch
from xdpx.logger import log
from xdpx.losses.trainer_counts import LossTally
from xdpx.reports.results import plain_numbers, prefixed, speed_metrics
from xdpx.trainer.outputs import EvalLoopOutput, EvalPrediction, PredictionOutput
from xdpx.trainer.wiring import evaluation_model


def evaluate(trainer: Any, dataset: Any, *, ignore_keys: list[str] | None, prefix: str) -> dict[str, float]:
    """Score a data set, log its metrics and tell the hooks; of a dict of sets, each under `<prefix>_<name>`."""
    given = dataset is not None
    dataset = dataset if given else trainer.eval_dataset
    if isinstance(dataset, dict):
        metrics: dict[str, float] = {}
        for name, part in dataset.items():
            part = part if given else name  # a name finds the loader whose workers were kept
            metrics |= trainer.evaluate(part, ignore_keys=ignore_keys, metric_key_prefix=f"{prefix}_{name}")
        return metrics
    memory = MemoryWatch(trainer.args.device, wanted=not trainer.args.skip_memory_metrics)
    loader, started = trainer.get_eval_dataloader(dataset), time.time()
    only_loss = True if trainer.compute_metrics is None else None
    output = trainer.evaluation_loop(
        loader, "Evaluation", prediction_loss_only=only_loss, ignore_keys=ignore_keys, metric_key_prefix=prefix
    )
    output.metrics.update(_speed(trainer, output, prefix, started))
    trainer.log(output.metrics)
    output.metrics.update(memory.metrics("eval"))
    handler = trainer.callback_handler
    trainer.control = handler.on_evaluate(trainer.args, trainer.state, trainer.control, output.metrics)
    return output.metrics  # type: ignore[no-any-return]


def predict(trainer: Any, dataset: Any, *, ignore_keys: list[str] | None, prefix: str) -> PredictionOutput:
    """Predict a data set; its metrics are given back, not logged."""
    loader, started = trainer.get_test_dataloader(dataset), time.time()
    output = trainer.evaluation_loop(loader, "Prediction", ignore_keys=ignore_keys, metric_key_prefix=prefix)
    output.metrics.update(_speed(trainer, output, prefix, started))
    handler = trainer.callback_handler
    trainer.control = handler.on_predict(trainer.args, trainer.state, trainer.control, output.metrics)
    return PredictionOutput(output.predictions, output.label_ids, output.metrics)


def _speed(trainer: Any, output: EvalLoopOutput, prefix: str, started: float) -> dict[str, float]:
    metrics, samples = output.metrics or {}, output.num_samples or 0
    steps = -(-samples // (trainer.args.eval_batch_size * trainer.args.world_size))
    started += metrics.get(f"{prefix}_model_preparation_time", 0.0)
    return speed_metrics(prefix, started, num_samples=samples, num_steps=steps)


def evaluation_loop(
    trainer: Any, loader: Any, description: str, *, only_loss: bool | None, ignore_keys: list[str] | None, prefix: str
) -> EvalLoopOutput:
    """Run the model over `loader`, and give predictions, labels and metrics (each name with `prefix`)."""
    args = trainer.args
    only_loss = args.prediction_loss_only if only_loss is None else only_loss
    model = evaluation_model(trainer)
    examples = trainer.num_examples(loader) if length(loader) is not None else "unknown"
    log.info(f"{description}: {examples} examples, batches of {args.eval_batch_size}")
    trainer.callback_handler.eval_dataloader = loader
    seen = _Seen(trainer, loader, streaming=args.batch_eval_metrics and description != "Prediction")
    for inputs, last in with_last(loader) if args.batch_eval_metrics else ((batch, False) for batch in loader):
        inputs = seen.observe(inputs)
        loss, logits, labels = trainer.prediction_step(model, inputs, only_loss, ignore_keys=ignore_keys)
        seen.add(inputs, loss, logits, labels, last=last)
        trainer.control = trainer.callback_handler.on_prediction_step(args, trainer.state, trainer.control)
    predictions, label_ids, metrics = seen.result(prefix)
    return EvalLoopOutput(predictions, label_ids, metrics, seen.num_samples)


class _Seen:
    """What an evaluation has seen so far: loss, and the rows that metrics are computed from, on the host.

    Args:
        trainer: the Trainer.
        loader: what is gone through.
        streaming: hand each batch to compute_metrics at once, and keep none.
    """

    def __init__(self, trainer: Any, loader: Any, *, streaming: bool) -> None:
        args = trainer.args
        self._trainer, self._loader, self._streaming = trainer, loader, streaming
        self._tally = LossTally(args.device)
        self._wanted = set(args.include_for_metrics)
        joiner = partial(Joiner, concatenate=args.eval_do_concat_batches, expected=length(loader))
        self._parts = {name: joiner(what=name) for name in PARTS}
        self._metrics: dict[str, Any] | None = None
        self._rows = 0
        self._idle = False

    def observe(self, inputs: Any) -> Any:
        """Count the rows of a batch, and give it without those that only fill up the last round of all ranks."""
        rows = find_batch_size(inputs) or 0
        own = own_rows(self._loader, rows)
        self._rows += own
        self._idle = rows > 0 and own == 0
        if self._idle or own == rows:
            return inputs
        return collectives.map_tensors(lambda each: each[:own] if each.dim() else each, inputs)

    def add(self, inputs: Any, loss: Any, logits: Any, labels: Any, *, last: bool) -> None:
        """Take what `prediction_step` gave for a batch; nothing of it counts where no row is this rank's own."""
        trainer, rows = self._trainer, find_batch_size(inputs) or 1
        if loss is not None:
            self._tally.add(loss, 0 if self._idle else trainer.loss_calls.weight(inputs, rows))
        if logits is not None and trainer.preprocess_logits_for_metrics is not None:
            logits = trainer.preprocess_logits_for_metrics(logits, labels)
        parts = {"predictions": logits, "label_ids": labels, "inputs": None, "losses": None}
        if "inputs" in self._wanted:
            parts["inputs"] = trainer._prepare_input(inputs[trainer.main_input_name])
        if "loss" in self._wanted and loss is not None:
            parts["losses"] = loss.detach().float().repeat(rows)
        if self._idle:
            parts = collectives.map_tensors(lambda each: (each if each.dim() else each[None])[:0], parts)
        parts = {name: part for name, part in parts.items() if part is not None}
        if trainer.args.eval_use_gather_object:
            pieces = collectives.gather_objects(parts)
        else:
            pieces = [{name: trainer.gather_function(part) for name, part in parts.items()}]
        for rank, piece in enumerate(pieces, start=1):
            self._keep(piece, last=last and rank == len(pieces))

    def _keep(self, parts: dict[str, Any], *, last: bool) -> None:
        """Hand rows to metrics that are computed batch by batch, and keep them for what comes at the end."""
        compute, there = self._trainer.compute_metrics, {"predictions", "label_ids"} <= parts.keys()
        if self._trainer.args.batch_eval_metrics and compute is not None and there:
            self._metrics = compute(EvalPrediction(**parts), compute_result=last)
        if not self._streaming:
            for name, part in parts.items():
                self._parts[name].add(part)

    @property
    def num_samples(self) -> int:
        """Give the number of samples: of the data set where it is known, else of what was seen on all ranks."""
        known = known_samples(self._loader) or 0
        return known or int(collectives.sum_over_ranks(torch.tensor(self._rows, device=self._trainer.args.device)))

    def result(self, prefix: str) -> tuple[Any, Any, dict[str, Any]]:
        """Give predictions, labels and metrics. On all ranks."""
        parts = {name: part.result() for name, part in self._parts.items()}
        metrics = self._metrics or {}
        compute = self._trainer.compute_metrics
        there = parts["predictions"] is not None and parts["label_ids"] is not None
        if compute is not None and there and not self._trainer.args.batch_eval_metrics:
            metrics = compute(EvalPrediction(**parts))
        metrics = plain_numbers(dict(metrics))
        loss = self._tally.mean()
        if loss is not None:
            metrics[f"{prefix}_loss"] = loss
        if self._trainer.model_preparation_time is not None:
            metrics[f"{prefix}_model_preparation_time"] = self._trainer.model_preparation_time
        return parts["predictions"], parts["label_ids"], prefixed(metrics, prefix)


PARTS = ("predictions", "label_ids", "inputs", "losses")
