"""Collects the outputs of an evaluation or prediction on the host, computes metrics over all, and measures the cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.memory import MemoryWatch
from xdpx.logger import log
from xdpx.reports.results import plain_numbers, prefixed, speed_metrics
from xdpx.reports.run_tables import beside
from xdpx.trainer.accelerator import Accelerator
from xdpx.trainer.data.agreement import StreamOrders
from xdpx.trainer.data.feeding import rows_of, with_last
from xdpx.trainer.data.joining import Joiner
from xdpx.trainer.data.loaders import own_rows
from xdpx.trainer.data.plan import known_samples, length
from xdpx.trainer.loss.calls import Inputs, LossCalls
from xdpx.trainer.loss.counts import LossTally
from xdpx.trainer.outputs import EvalLoopOutput, EvalPrediction
from xdpx.trainer.parts import TrainerRun

PARTS = ("predictions", "label_ids", "inputs", "losses")
SPEED = ("runtime", "samples_per_second", "steps_per_second")
"""Ends of the names of what `Cost` measures."""


class Cost:
    """Measures time and memory of an evaluation or a prediction.

    Args:
        run: of the Trainer.
        prefix: of the names of the metrics.
    """

    def __init__(self, run: TrainerRun, prefix: str) -> None:
        self._run, self._prefix, self._started = run, prefix, 0.0
        self._prepares = run.model_preparation_time is None  # within the time measured
        self._memory = MemoryWatch(run.args.device, wanted=not run.args.skip_memory_metrics)

    def begin(self, loader: Any) -> Any:
        """Start the clock, now that the loader is built, and return the loader."""
        self._started = time.time()
        return loader

    def time(self, output: EvalLoopOutput) -> dict[str, float]:
        """Return the seconds, and samples and steps per second."""
        args, metrics, samples = self._run.args, output.metrics or {}, output.num_samples or 0
        steps = -(-samples // (args.eval_batch_size * args.world_size))
        preparing = metrics.get(f"{self._prefix}_model_preparation_time", 0.0) if self._prepares else 0.0
        started = self._started + preparing
        return speed_metrics(self._prefix, started, num_samples=samples, num_steps=steps)

    def memory(self, stage: str) -> dict[str, int]:
        """Return memory metrics; the first call outside of training adds those of `init`."""
        run = self._run
        if run.is_in_train:
            return self._memory.metrics(stage)
        of_init, run.memory_of_init = run.memory_of_init, {}
        return of_init | self._memory.metrics(stage)


class ScoreMethods(Protocol):
    """Attributes and methods of a Trainer that users set or override to change how metrics are computed."""

    compute_metrics: Callable[..., dict[str, Any]] | None
    preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None
    loss_calls: LossCalls
    main_input_name: str

    @property
    def gather_function(self) -> Callable[[Any], Any]:
        """What puts together the rows of all processes."""
        ...

    @property
    def accelerator(self) -> Accelerator:
        """Stand-in for accelerate's Accelerator; its `gather_for_metrics` is the default of `gather_function`."""
        ...

    def _prepare_input(self, data: Any) -> Any: ...


class Seen:
    """Accumulates the loss of an evaluation, and on the host the rows that metrics are computed from.

    Args:
        methods: of the Trainer, for computing metrics.
        run: of the Trainer.
        loader: yields the batches to evaluate.
        streaming: keep no rows, because compute_metrics gets each batch at once.
    """

    def __init__(self, methods: ScoreMethods, run: TrainerRun, loader: Any, *, streaming: bool) -> None:
        args = run.args
        self._methods, self._run, self._loader, self._streaming = methods, run, loader, streaming
        self._tally = LossTally(args.device)
        self._wanted, self._by_batch = set(args.include_for_metrics), args.batch_eval_metrics
        if unknown := sorted(self._wanted - {"inputs", "loss"}):
            log.warning(
                f"include_for_metrics: has {', '.join(unknown)}, which has no effect. Use 'inputs' or 'loss'.",
                once=True,
            )
        joiner = partial(Joiner, concatenate=args.eval_do_concat_batches, expected=length(loader))
        self._parts = {name: joiner(what=name) for name in PARTS}
        self._metrics: dict[str, Any] = {}
        self._rows = 0
        gather = methods.gather_function
        # rows that only fill up the last round are left out before, whatever the shape of what is gathered
        self._gather = collectives.gather_rows if gather == methods.accelerator.gather_for_metrics else gather
        self.idle = False

    def batches(self) -> Iterator[tuple[Inputs, bool]]:
        """Yield (batch, whether it is the last one); always False without `batch_eval_metrics`."""
        pairs = with_last(self._loader) if self._by_batch else ((batch, False) for batch in self._loader)
        for inputs, last in StreamOrders("eval_dataset").noted(self._loader, pairs):
            yield self._observed(inputs), last

    def _observed(self, inputs: Inputs) -> Inputs:
        """Count the rows of a batch; drop those that only pad the last round of all ranks, unless all are such."""
        rows = rows_of(inputs) or 0
        own = own_rows(self._loader, rows)
        self._rows += own
        self.idle = rows > 0 and own == 0
        if self.idle or own == rows:
            return inputs
        cut: Inputs = collectives.map_tensors(lambda each: each[:own] if each.dim() else each, inputs)
        return cut

    def add(self, inputs: Inputs, loss: Tensor | None, logits: Any, labels: Any, *, last: bool) -> None:
        """Add the results of `prediction_step` for a batch; if all its rows are padding, they do not count."""
        methods, rows = self._methods, rows_of(inputs) or 1
        if loss is not None:
            loss = loss.detach() if isinstance(loss, Tensor) else torch.tensor(loss, device=self._run.args.device)
            mean = loss.mean() if loss.dim() else loss  # a user's prediction_step may give one loss for each row
            self._tally.add(mean, 0 if self.idle else methods.loss_calls.targets(inputs, rows), rows)
        if logits is not None and methods.preprocess_logits_for_metrics is not None:
            logits = methods.preprocess_logits_for_metrics(logits, labels)
        parts = {"predictions": logits, "label_ids": labels, "inputs": None, "losses": None}
        if "inputs" in self._wanted:
            parts["inputs"] = inputs if self._by_batch else self._main_input(inputs)
        if "loss" in self._wanted and loss is not None:
            losses = loss.float().flatten()
            parts["losses"] = losses if len(losses) == rows else losses.mean().repeat(rows)
        if self.idle:
            parts = collectives.map_tensors(lambda each: (each if each.dim() else each[None])[:0], parts)
        parts = {name: part for name, part in parts.items() if part is not None}
        if self._run.args.eval_use_gather_object:
            pieces = collectives.gather_objects(parts)
        else:
            pieces = [{name: self._of_all(name, part) for name, part in parts.items()}]
        for rank, piece in enumerate(pieces, start=1):
            self._keep(piece, last=last and rank == len(pieces))

    def _main_input(self, inputs: Inputs) -> Any:
        """Return the input that `include_for_metrics=["inputs"]` asks for where metrics see all rows at once."""
        name = self._methods.main_input_name
        if name not in inputs:
            raise KeyError(
                f"include_for_metrics: has 'inputs', which are '{name}' of each batch, but a batch has only "
                f"{', '.join(inputs)}. Set `main_input_name` of the model to one of these, or leave 'inputs' out."
            )
        return self._methods._prepare_input(inputs[name])

    def _of_all(self, name: str, part: Any) -> Any:
        """Return a part with the rows of all processes."""
        if name != "inputs" or not (self._by_batch and isinstance(part, Mapping)):
            return self._gather(part)
        rows = rows_of(part)
        whole = {key: value[:rows] if isinstance(value, list) else value for key, value in part.items()}
        return type(part)({key: self._of_all_inputs(value) for key, value in whole.items()})  # type: ignore[call-arg]

    def _of_all_inputs(self, value: Any) -> Any:
        """Return an input with the rows of all processes, also if it is a list; what has no rows stays as it is."""
        if collectives.holds_only_tensors(value):
            return self._gather(value)
        return list(chain(*collectives.gather_objects(value))) if isinstance(value, list) else value

    def _keep(self, parts: dict[str, Any], *, last: bool) -> None:
        """Pass rows to `compute_metrics` if it works batch by batch; keep them for the end unless streaming."""
        compute, there = self._methods.compute_metrics, {"predictions", "label_ids"} <= parts.keys()
        if self._by_batch and compute is not None and there:
            self._metrics = compute(EvalPrediction(**parts), compute_result=last)
            parts.pop("inputs", None)  # in the end nothing asks for them
        if not self._streaming:
            for name, part in parts.items():
                self._parts[name].add(part)

    def result(self, prefix: str) -> EvalLoopOutput:
        """Return predictions, labels and metrics, whose names get `prefix`. On all ranks."""
        compute = self._methods.compute_metrics
        parts = {name: part.result() for name, part in self._parts.items()}
        metrics = self._metrics
        there = parts["predictions"] is not None and parts["label_ids"] is not None
        if compute is not None and there and not self._by_batch:
            metrics = compute(EvalPrediction(**parts))
        _refuse_metrics(metrics)
        metrics = collectives.broadcast_object(plain_numbers(dict(metrics)))  # so that all ranks decide alike
        loss = self._tally.mean(over_targets=self._methods.loss_calls.averages_targets)
        _warn_of_names(metrics, prefix, has_loss=loss is not None)
        if loss is not None:
            metrics[f"{prefix}_loss"] = loss
        metrics |= beside(metrics, log.take_accumulated())
        if self._run.model_preparation_time is not None:
            metrics[f"{prefix}_model_preparation_time"] = self._run.model_preparation_time
        return EvalLoopOutput(parts["predictions"], parts["label_ids"], prefixed(metrics, prefix), self._num_samples())

    def _num_samples(self) -> int:
        """Return the number of samples: the size of the data set if known, else the rows seen on all ranks."""
        args, known = self._run.args, known_samples(self._loader) or 0
        if known and not args.dataloader_drop_last:
            return known
        seen = int(collectives.sum_over_ranks(torch.tensor(self._rows, device=args.device)))
        if known > seen and (seen or not length(self._loader)):
            log.warning(
                f"dataloader_drop_last: is True, which also holds for evaluations and predictions: {known - seen:,} of "
                f"{known:,} examples are left out, as they do not fill a batch of {args.eval_batch_size} on each "
                "process. Set it to False to see all examples.",
                once=True,
            )
        return known or seen


def _warn_of_names(metrics: Mapping[str, Any], prefix: str, *, has_loss: bool) -> None:
    """Warn of metrics that have the name of something else that an evaluation gives: one of both is lost."""
    if has_loss and "loss" in metrics:
        log.warning(
            f"compute_metrics: its 'loss' is {prefix}_loss in the place of the loss that is trained. Rename it to have "
            "both.",
            once=True,
        )
    taken = [f"{prefix}_loss"] * has_loss + [f"{start}{name}" for start in ("", f"{prefix}_") for name in SPEED]
    if lost := [name for name in taken if name in metrics]:
        log.warning(
            f"compute_metrics: its {', '.join(lost)} is lost, as the Trainer itself logs that. Rename it.", once=True
        )


def _refuse_metrics(answer: Any) -> None:
    """Raise TypeError unless `compute_metrics` returned a dict of metrics by name."""
    if not isinstance(answer, Mapping) or not all(isinstance(name, str) for name in answer):
        raise TypeError(
            f"compute_metrics: returned {answer!r:.200}. Return a dict of metrics by name, such as {{'accuracy': 0.9}}."
        )


def warn_of_nothing(run: TrainerRun, output: EvalLoopOutput, prefix: str) -> None:
    """Warn if an evaluation gave neither a loss nor a metric, most often for want of labels."""
    if set(output.metrics or {}) - {f"{prefix}_model_preparation_time"}:
        return
    if output.num_samples and length(run.callback_handler.eval_dataloader) == 0:
        return  # all were left out, as `Seen` has said
    names = ", ".join(run.loss_facts.label_names) or "labels"
    log.warning(
        f"{prefix}: the evaluation of {output.num_samples} examples gave neither a loss nor a metric. Labels are "
        f"inputs named {names}: give each example all of these, or set label_names. If your loss needs no labels, set "
        "can_return_loss = True on the Trainer.",
        once=True,
    )
