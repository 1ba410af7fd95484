"""One optimizer update, one evaluation step, snapshots: all that training on PyTorch needs of a device."""

from __future__ import annotations

import platform
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import nn

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.engines.base import Batch, Facts, Predictions, ReadWeights, Schedule, Split, Task
from xdpx.engines.pytorch.averaging import Average, share_of_new
from xdpx.engines.pytorch.gradients import Scaling, gradient_norm, numbers_of, scale_of, use_row_gradients
from xdpx.engines.pytorch.loss_scale import LossScale
from xdpx.engines.pytorch.memory import keep_freed_memory
from xdpx.engines.pytorch.options import AUTOCAST, EngineOptions, pick_device
from xdpx.engines.pytorch.shortage import InParts, advised, free_cache, joined
from xdpx.engines.pytorch.state import PyTorchState, averaging_copy, copied, fill_model, model_weights
from xdpx.engines.pytorch.transfer import to_arrays, to_device, to_float
from xdpx.logger import log

FORMAT = "xdpx-pytorch-1"


class PyTorchEngine:
    """Implements `engines.base.Engine` for one process and one device.

    Args:
        task: a function that makes the task, so that the seed of `start` decides the random weights of its model.
            (A finished task is taken as it is.)
        make_optimizer: from a model to its optimizer; see `optimizers/pytorch/adam.py` for what it must understand.
            None for an engine that only scores.
        schedule: learning rate factors by update number; None keeps the groups' own rates.
        options: device, precision, clipping, averaging, seed.
        read_weights: how a model reads pretrained weights; None leaves them unread.
        split: cuts a batch when memory runs out, so that the same update is taken from smaller micro-batches; None
            never cuts. Nothing but dropout, whose masks are others then, depends on the cut.

    Attributes:
        tell: called with the name of each of `events`: on_substep_end between micro-batches, and
            on_pre_optimizer_step and on_optimizer_step around the optimizer, which divides and clips gradients itself.
    """

    packages = ()
    events = ("on_substep_end", "on_pre_optimizer_step", "on_optimizer_step")

    def __init__(
        self,
        task: Task | Callable[[], Task],
        *,
        make_optimizer: Callable[[nn.Module], Any] | None = None,
        schedule: Schedule | None = None,
        options: EngineOptions | None = None,
        read_weights: ReadWeights | None = None,
        split: Split | None = None,
    ) -> None:
        self.options = options or EngineOptions()
        self.device = pick_device(self.options.device)
        self._make_task: Callable[[], Task] = task if callable(task) else lambda: task
        self._make_optimizer = make_optimizer
        self._schedule = schedule
        self._read_weights = read_weights
        self._in_parts = InParts(split)
        self.tell: Callable[[str], object] = _nobody
        if self.device.type == "cpu":
            keep_freed_memory()
        else:
            _prefer_repeatable_kernels()

    def start(self, seed: int) -> PyTorchState:
        """Build the model under `seed`, take over pretrained weights, and build the optimizer."""
        state = self._build(seed)
        load = getattr(state.task.model, "load_pretrained", None)
        if load is not None and self._read_weights is not None:
            load(self._read_weights)
        self._add_training_parts(state)
        return state

    def update(self, state: PyTorchState, group: Sequence[Batch]) -> tuple[PyTorchState, Facts]:
        """Take one update. See `engines.base.Engine.update`."""
        number = state.num_updates + 1
        _set_mode(state.task.model, training=True)
        if hasattr(state.task, "begin_update"):
            state.task.begin_update(number)
        facts, state.update_parts = self._in_parts.do(
            lambda batches: self._gradients(state, batches, number),
            group, state.update_parts, what=f"update {number}", release=lambda: self._drop_gradients(state),
        )  # fmt: skip
        state.num_updates = number
        with advised("the optimizer"):
            norm, scale = gradient_norm(state.optimizer), state.loss_scale.scale
            scaling = scale_of(norm, facts["count"], scale, self.options.clip_norm)
            facts["learning_rate"] = self._set_rates(state)
            self.tell("on_pre_optimizer_step")
            self._step(state, scaling)
            self.tell("on_optimizer_step")
        facts |= {"grad_norm": scaling.norm, "clipped": scaling.clipped}
        if self.options.precision == "fp16":
            facts["skipped"] = scaling.broken
        return state, facts

    def score(self, state: PyTorchState, batch: Batch) -> Predictions:
        """Give predictions with the averaged weights when kept."""
        task = self._scored(state)
        _set_mode(task.model, training=False)
        parts, state.score_parts = self._in_parts.do(
            lambda batches: [self._predict(task, each) for each in batches],
            [batch], state.score_parts, what="scoring", release=lambda: free_cache(self.device),
        )  # fmt: skip
        return joined(parts)

    def snapshot(self, state: PyTorchState) -> dict[str, Any]:
        """Copy everything to the host."""
        averaged = None if state.averaged is None else model_weights(state.averaged.model)
        return {
            "format": FORMAT,
            "num_updates": state.num_updates,
            "precision": self.options.precision,
            "rule": type(state.optimizer).__name__,
            "loss_scale": asdict(state.loss_scale),
            "parts": {"update": state.update_parts, "score": state.score_parts},
            "ema_decay": self.options.ema_decay,
            "swa": list(self.options.swa),
            **copied(
                {
                    "task": state.task.state_dict() if hasattr(state.task, "state_dict") else {},
                    "model": model_weights(state.task.model),
                    "optimizer": state.optimizer.state_dict(),
                    "averaged": averaged,
                }
            ),
        }

    def restore(self, saved: Mapping[str, Any]) -> PyTorchState:
        """Rebuild a state from its snapshot.

        Raises:
            ConfigError: the snapshot is of another model, optimizer or kind of run.
        """
        if saved.get("format") != FORMAT:
            raise _resume_fault("format", f"is {saved.get('format')!r}; this engine reads {FORMAT!r}.")
        _refuse_another_average(self.options, saved)
        state = self._build(self.options.seed)
        fill_model(state.task.model, saved["model"], source="resume")
        self._add_training_parts(state)
        if state.averaged is not None:
            fill_model(state.averaged.model, saved["averaged"], source="resume")
        _load_optimizer(state.optimizer, saved)
        if saved.get("task"):
            cast(Any, state.task).load_state_dict(saved["task"])
        if self.options.precision == "fp16" and saved["precision"] == "fp16":
            state.loss_scale = LossScale(**saved["loss_scale"])
        state.num_updates = saved["num_updates"]
        if self._in_parts.split is not None:
            state.update_parts, state.score_parts = saved["parts"]["update"], saved["parts"]["score"]
        return state

    def weights(self, state: PyTorchState) -> dict[str, Any]:
        """Give a copy of the weights to keep, by name."""
        kept: dict[str, Any] = copied(model_weights(self._scored(state).model))
        return kept

    def gradient_sizes(self, state: PyTorchState) -> dict[str, tuple[float, float]]:
        """Give (mean, largest) absolute gradient of each weight, as the last update took it: divided and clipped."""
        # The optimizer has divided them in place.
        trained = {name: each for name, each in state.task.model.named_parameters() if each.grad is not None}
        sizes = {name: numbers_of(weight).abs() for name, weight in trained.items()}
        return {name: (float(size.sum()) / trained[name].numel(), float(size.max())) for name, size in sizes.items()}

    def with_weights(self, weights: Mapping[str, Any]) -> PyTorchState:
        """Give a state that only scores.

        Raises:
            ConfigError: the weights are those of another model.
        """
        state = self._build(self.options.seed)
        fill_model(state.task.model, weights, source="checkpoint")
        return state

    @property
    def device_text(self) -> str:
        """Name the device; of a CPU also the threads, which decide the last bits."""
        if self.device.type == "cuda":
            return f"{self.device} ({torch.cuda.get_device_name(self.device)})"
        return f"{self.device} ({platform.processor() or platform.machine()}, {torch.get_num_threads()} threads)"

    def shown(self, state: PyTorchState) -> tuple[Any, Any]:
        """Give the model that is trained, and its optimizer."""
        return state.task.model, state.optimizer

    def closing_line(self) -> str:
        """Say nothing."""
        return ""

    def facts_to_host(self, facts: Facts) -> dict[str, float]:
        """Wait for the device, once, and give plain floats."""
        return to_float(facts)

    def predictions_to_host(self, predictions: Predictions) -> dict[str, Any]:
        """Give numpy arrays for tensors with rows and floats for single numbers."""
        return to_arrays(predictions)

    def _build(self, seed: int) -> PyTorchState:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            task = self._make_task()
        with advised("the model"):
            task.model.to(self.device)
        return PyTorchState(task)

    def _add_training_parts(self, state: PyTorchState) -> None:
        if self._make_optimizer is not None:
            state.optimizer = self._make_optimizer(state.task.model)
            for group in state.optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
            if self.device.type == "cpu":
                use_row_gradients(state.task.model, state.optimizer)
            _tell_size(state.task.model, state.optimizer)
        if self.options.averages:
            state.averaged = averaging_copy(state.task)
            groups = [] if state.optimizer is None else state.optimizer.param_groups
            moved = (weight for group in groups for weight in group["params"])
            state.average = Average(state.averaged.model, state.task.model, moved)
        if self.options.precision == "fp16":
            state.loss_scale = LossScale(self.options.init_scale)

    def _seed_update(self, num_update: int) -> None:
        """Make dropout depend on (seed, number of the update) alone, so that a resumed run repeats it."""
        # An odd multiplier keeps neighbouring seeds and updates from meeting: seed 1 update 2 is not seed 2 update 1.
        mixed = (self.options.seed * 0x9E3779B97F4A7C15 + num_update) & 0x7FFFFFFFFFFFFFFF
        torch.default_generator.manual_seed(mixed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(mixed)

    def _scored(self, state: PyTorchState) -> Task:
        """Give the task whose model is evaluated and kept: the averaged one as soon as there is an average."""
        begun = state.num_updates >= (self.options.swa_start or 0)
        return state.averaged if state.averaged is not None and begun else state.task

    def _predict(self, task: Task, batch: Batch) -> Predictions:
        with torch.inference_mode(), self._autocast():
            return task.valid_step(to_device(batch, self.device))

    def _gradients(self, state: PyTorchState, group: Sequence[Batch], number: int) -> dict[str, Any]:
        """Sum the gradients of all loss sums of update `number`; give the sums of its facts."""
        self._seed_update(number)
        state.optimizer.zero_grad(set_to_none=True)
        facts: dict[str, Any] = {"loss_sum": 0.0, "count": 0, "num_tokens": 0}
        scale = state.loss_scale.scale
        for index, batch in enumerate(group):
            if index:
                self.tell("on_substep_end")
            facts["num_tokens"] += batch.get("ntokens", 0)
            for loss_sum, count, found in self._passes(state.task, to_device(batch, self.device)):
                (loss_sum * scale if scale != 1.0 else loss_sum).backward()
                sums = {"loss_sum": loss_sum.detach(), "count": count, **found}
                facts |= {name: facts.get(name, 0) + value for name, value in sums.items()}
        return facts

    def _passes(self, task: Task, batch: Batch) -> Generator[Any]:
        """Yield what each pass over a batch gives; most tasks take one."""
        several = getattr(task, "train_passes", None)
        if several is None:
            with self._autocast():
                only = task.train_step(batch)
            yield only
            return
        with closing(several(batch)) as passes:
            while True:
                with self._autocast():
                    found = next(passes, None)
                if found is None:
                    return
                yield found

    def _drop_gradients(self, state: PyTorchState) -> None:
        state.optimizer.zero_grad(set_to_none=True)
        free_cache(self.device)

    def _set_rates(self, state: PyTorchState) -> float:
        """Set this update's learning rates; give the one of the group that learns fastest."""
        groups = state.optimizer.param_groups
        if self._schedule is not None:
            factor, momentum = (
                self._schedule.factor(state.num_updates),
                self._schedule.momentum(state.num_updates),
            )
            for group in groups:
                group["lr"] = group["initial_lr"] * factor
                if momentum is not None:
                    group["betas"] = (momentum, group["betas"][1])
        return max(float(group["lr"]) for group in groups)

    def _step(self, state: PyTorchState, scaling: Scaling) -> None:
        state.optimizer.grad_scale, state.optimizer.found_inf = scaling.divisor, scaling.broken
        state.optimizer.step()
        share = share_of_new(self.options, state.num_updates)
        if state.average is not None and share is not None:
            state.average.move(share)
        if self.options.precision == "fp16":
            # The only wait for the device in an update: the next one must know its loss scale.
            overflow = bool(scaling.broken)
            state.loss_scale.after(overflow=overflow, options=self.options, num_updates=state.num_updates)

    def _autocast(self) -> AbstractContextManager[Any]:
        kind = AUTOCAST.get(self.options.precision)
        return nullcontext() if kind is None else torch.autocast(self.device.type, dtype=kind)


def _nobody(event: str) -> None:
    """Hear of an event that nobody listens to."""


def _set_mode(model: nn.Module, *, training: bool) -> None:
    # Walking over every module costs more than looking at the first.
    if model.training != training:
        model.train(training)


def _refuse_another_average(options: EngineOptions, saved: Mapping[str, Any]) -> None:
    """Raise ConfigError where averaged weights are missing, are too many, or are the mean of others."""
    start, interval = before = tuple(saved.get("swa", options.swa))
    if (saved["averaged"] is not None) != options.averages:
        key = "ema_decay" if start is None and options.swa_start is None else "swa_start"
        had = "no averaged weights" if saved["averaged"] is None else "averaged weights"
        raise _resume_fault(key, f"is {getattr(options, key)}, but the checkpoint has {had}.")
    if options.swa_start is not None and saved["num_updates"] >= options.swa_start and before != options.swa:
        had = f"{start} and swa_interval {interval}" if start is not None else "none"
        problem = f"has begun with update {options.swa_start}, but the average of the checkpoint has swa_start {had}."
        raise _resume_fault("swa_start", problem)


def _load_optimizer(optimizer: Any, saved: Mapping[str, Any]) -> None:
    own = type(optimizer).__name__
    if saved["rule"] != own:
        raise _resume_fault("optimizer", f"is {own} here, but {saved['rule']} in the checkpoint.")
    try:
        # Copied, because torch would go on training in the very tensors of the snapshot.
        optimizer.load_state_dict(copied(saved["optimizer"]))
    except (ValueError, KeyError) as error:
        raise _resume_fault("optimizer", f"does not fit the checkpoint: {error}") from error


def _resume_fault(key: str, problem: str) -> ConfigError:
    return ConfigError(THIS_RUN, [Fault(key, problem, "Resume with the settings that the checkpoint was made with.")])


def _prefer_repeatable_kernels() -> None:
    """Choose kernels that give the same bits twice, where there are such; torch warns where there are none."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False


def _tell_size(model: nn.Module, optimizer: Any) -> None:
    every = sum(weight.numel() for weight in model.parameters())
    trained = sum(weight.numel() for group in optimizer.param_groups for weight in group["params"])
    log.info(f"{type(model).__name__}: {every:,} parameters, {'all' if trained == every else f'{trained:,}'} trained")
