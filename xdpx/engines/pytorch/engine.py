"""The PyTorch engine: optimizer updates, evaluation steps, snapshots."""

from __future__ import annotations

import platform
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal, wrong_return
from xdpx.engines.base import (
    Batch,
    Facts,
    GradientSize,
    Predictions,
    ReadWeights,
    Schedule,
    Split,
    Task,
    Traced,
    rates_of,
    resume_schedule,
    schedule_state,
)
from xdpx.engines.origin import NonFiniteOrigin
from xdpx.engines.pytorch.averaging import AveragedModel, OptimizersAverage, keeps_average
from xdpx.engines.pytorch.exact import ExactRows
from xdpx.engines.pytorch.gradients import (
    backward_of,
    divisor_of,
    sizes_of,
    use_row_gradients,
    warn_of_weights_outside,
)
from xdpx.engines.pytorch.kernels import compile_in_place, prefer_deterministic, require_deterministic, use_tf32
from xdpx.engines.pytorch.loss_scale import LossScale
from xdpx.engines.pytorch.memory import keep_freed_memory
from xdpx.engines.pytorch.nonfinite import Guard, all_finite
from xdpx.engines.pytorch.optimizing import check, load, set_rates, settings_of
from xdpx.engines.pytorch.options import AUTOCAST, EngineOptions, pick_device
from xdpx.engines.pytorch.out_of_memory import InParts, advised, free_cache, joined
from xdpx.engines.pytorch.products import Products, is_there
from xdpx.engines.pytorch.profiling import traced
from xdpx.engines.pytorch.state import PyTorchState, averaging_copy, copied, fill_model
from xdpx.engines.pytorch.strategies import Single, Strategy
from xdpx.engines.pytorch.strategies.states import parameters_of
from xdpx.engines.pytorch.tracing_back import origin_of
from xdpx.engines.pytorch.transfer import to_arrays, to_device, to_float
from xdpx.engines.pytorch.unmoved import Unmoved
from xdpx.engines.pytorch.unsaved import unsaved_values, warn_of_unsaved, warn_of_unsaved_tensors
from xdpx.engines.pytorch.update import LOSS, Gradients, StepsInBackward, SummedLosses, UpdateTaker
from xdpx.engines.pytorch.world import alone
from xdpx.logger import log
from xdpx.utils.seeds import seed_python_and_numpy, seeded

FORMAT = "xdpx-pytorch-1"
IN_BACKWARD = "but the optimizer steps within the backward pass"


class PyTorchEngine:
    """Implements `engines.base.Engine`. Each process drives one device.

    Args:
        task: a function that makes the task, so that the seed of `start` decides the random weights of its model.
            (A finished task is taken as it is.)
        make_optimizer: makes the optimizer of a model, any subclass of torch's; see `gradients.py` for the abilities
            it may declare beyond that. None for an engine that only scores.
        schedule: learning rate factors by update number; None keeps the groups' own rates.
        options: device, precision, clipping, averaging, seed.
        read_weights: reads a file of pretrained weights; None does not load any.
        strategy: distributes training over processes; its `prepare` must modify the model in place (`Single`,
            `Replicated`, `Sharded`). None trains in this process alone, on the device of the options.
        split: splits a batch when memory runs out, so that the same update is computed from smaller micro-batches;
            None never splits. Only dropout masks depend on the split.

    Attributes:
        tell: called with the name of each of `events`: on_substep_end between micro-batches, and
            on_pre_optimizer_step and on_optimizer_step around the step, which also divides and clips gradients.
        exact: splits batches for scoring so that a row gets the same bits in any batch; None does not split them.
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
        strategy: Strategy | None = None,
        split: Split | None = None,
    ) -> None:
        self.options = options or EngineOptions()
        self.strategy = strategy or Single(alone(pick_device(self.options.device)))
        self.device = self.strategy.world.device
        self._make_task: Callable[[], Task] = task if callable(task) else lambda: task
        self._make_optimizer = make_optimizer
        self._schedule = schedule
        self._read_weights = read_weights
        self._in_parts = InParts(split)
        self._looked_outside = False
        self._unsaved: dict[str, Any] = {}
        self.exact = ExactRows() if self.options.exact else None
        self.tell: Callable[[str], object] = _unheard
        self.hear_nonfinite: Callable[[int], object] = _unheard
        guarded = {"skip", "keep"} if self.device.type == "cpu" else {"skip"}
        self.checks_each = self.options.nonfinite_steps in guarded and self.options.precision != "fp16"
        if self.device.type == "cpu":
            keep_freed_memory()
        else:
            prefer_deterministic()
        if self.options.deterministic:
            require_deterministic()
        use_tf32(self.options.tf32)

    def start(self, seed: int) -> PyTorchState:
        """Build the model under `seed`, load pretrained weights, and build the optimizer."""
        task = self._build(seed)
        if self._read_weights is not None:
            task.load_pretrained(self._read_weights)
        return self._for_training(task)

    def update(self, state: PyTorchState, group: Sequence[Batch]) -> tuple[PyTorchState, Facts]:
        """Take one update. See `engines.base.Engine.update`."""
        number, taker = state.num_updates + 1, state.taker
        if taker is None:
            raise RuntimeError("this is a bug: a state without an optimizer only scores.")
        _set_mode(state.task.model, training=True)
        if state.own_average is not None:
            state.own_average.hide()
        self._seed_update(number, self.strategy.world.rank)
        state.task.begin_update(number)
        sums, state.update_parts = self._in_parts.do(
            lambda batches: self._add_gradients(taker, state, batches),
            group, state.update_parts, what=f"update {number}", release=lambda: self._drop_gradients(state),
        )  # fmt: skip
        with advised("the optimizer"):
            facts = self.strategy.sum_facts(sums)
            taken = taker.take(number, facts)
            self.strategy.after_step(state.optimizer, number)
        state.num_updates = number
        facts |= {"grad_norm": taken.norm, "clipped": taken.clipped, "learning_rate": taken.learning_rate}
        if self.options.precision == "fp16":
            facts["skipped"] = float(taken.skipped)
        if taken.left_out:
            log.warning(f"update {number}: its loss or gradient is NaN or infinite; it was left out (nonfinite_steps).")
            told = {"num_tokens": facts["num_tokens"], "learning_rate": taken.learning_rate, "skipped": 1.0}
            facts = dict.fromkeys(facts, 0.0) | told  # so that sums are those of the others
        return state, facts

    def origin(self, state: PyTorchState, group: Sequence[Batch], number: int) -> NonFiniteOrigin | None:
        """Return where NaN or infinity first appears. See `engines.base.Updater.origin`."""
        return self._origin(state, group, number, self.strategy.world.rank)

    def _origin(self, state: PyTorchState, group: Sequence[Batch], number: int, rank: int) -> NonFiniteOrigin | None:
        """Run an update again with the random numbers of process `rank`; return where NaN or infinity first appears."""
        _set_mode(state.task.model, training=True)
        if state.own_average is not None:
            state.own_average.hide()
        self._seed_update(number, rank)
        state.task.begin_update(number)
        if backward_of(state.optimizer) is not None:
            return None  # its backward pass would move the weights

        def take_again(batch: Batch, last: bool) -> Generator[Tensor]:
            # Shards collect gradients until a pass exchanges them: what is left there would be part of the next update.
            with self.strategy.accumulating(state.task.model, last and self.strategy.shards):
                for loss_sum, _, _ in self._passes(state.task, to_device(batch, self.device)):
                    torch.autograd.backward(state.loss_scale.scaled(loss_sum))
                    yield loss_sum.detach()

        def work(batches: list[Batch]) -> NonFiniteOrigin | None:
            self._seed_update(number, rank)
            return origin_of(state.task.model, batches, take_again)

        return self._in_parts.do(
            work, group, state.update_parts, what=f"update {number}, taken again",
            release=lambda: free_cache(self.device),
        )[0]  # fmt: skip

    def again(self, state: PyTorchState, saved: Mapping[str, Any], number: int) -> NonFiniteOrigin | None:
        """Return where NaN or infinity first appeared in a saved update. See `engines.base.Updater.again`."""
        del state
        return self._origin(self.restore(saved["state"]), saved["group"], number, saved.get("rank", 0))

    def traced(self, state: PyTorchState, folder: str) -> AbstractContextManager[Traced]:
        """Return a context manager that traces the updates inside it with torch.profiler."""
        return traced(state.task.model, folder)

    def score(self, state: PyTorchState, batch: Batch) -> Predictions:
        """Return predictions, made with the averaged weights if there are any."""
        self._meet(state)
        task = self._scored(state)
        _set_mode(task.model, training=False)
        parts, state.score_parts = self._in_parts.do(
            lambda batches: [self._predict(state, task, each) for each in batches],
            [batch], state.score_parts, what="scoring", release=lambda: free_cache(self.device),
        )  # fmt: skip
        return joined(parts)

    def take_score(self, state: PyTorchState, score: float) -> None:
        """Pass a score to the schedule."""
        if self._schedule is not None:
            self._schedule.take_score(score)

    def snapshot(self, state: PyTorchState, *, wanted: bool | None = None) -> dict[str, Any]:
        """Copy everything to the host, weights and optimizer state unsharded; see `engines.base.Engine.snapshot`."""
        self._meet(state)
        if state.own_average is not None:
            state.own_average.hide()
        warn_of_unsaved(self._unsaved, state.task)
        warn_of_unsaved_tensors(state.optimizer)
        strategy = self.strategy.state_dict(state.optimizer)
        give = partial(self.strategy.weights, wanted=wanted, copied=True)
        return {
            "format": FORMAT,
            "num_updates": state.num_updates,
            "precision": self.options.precision,
            "rule": type(state.optimizer).__name__,
            "loss_scale": asdict(state.loss_scale),
            "init_scale": self.options.init_scale,
            "parts": {"update": state.update_parts, "score": state.score_parts},
            "ema_decay": self.options.ema_decay,
            "swa": list(self.options.swa),
            "model": give(state.task.model),
            "optimizer": self.strategy.optimizer_state(state.task.model, state.optimizer, wanted=wanted, copied=True),
            "averaged": None if state.averaged is None else give(state.averaged.model),
            "schedule": schedule_state(self._schedule),
            **copied(
                {
                    "strategy": strategy,
                    "task": state.task.state_dict(),
                    "settings": state.settings,
                }
            ),
        }

    def restore(self, saved: Mapping[str, Any]) -> PyTorchState:
        """Rebuild a state from its snapshot. Settings of options and optimizer that were changed since take effect.

        Raises:
            ConfigError: the snapshot is of another model, optimizer or kind of run.
        """
        if saved.get("format") != FORMAT:
            raise _resume_fault("engine", f"is pytorch, but the checkpoint is of another ('{saved.get('format')}').")
        _refuse_another_average(self.options, saved)
        state = self._for_training(self._build(self.options.seed), saved["model"])
        if state.averaged is not None:
            fill_model(state.averaged.model, saved["averaged"], source="resume", strategy=self.strategy)
        _load_optimizer(state, saved)
        if saved.get("strategy"):
            self.strategy.load_state_dict(saved["strategy"])
        if saved.get("task"):
            state.task.load_state_dict(saved["task"])
        same_scale = saved.get("init_scale", self.options.init_scale) == self.options.init_scale
        if self.options.precision == saved["precision"] == "fp16" and same_scale:
            vars(state.loss_scale).update(saved["loss_scale"])
        state.num_updates = saved["num_updates"]
        resume_schedule(self._schedule, saved)
        if state.optimizer is not None and state.num_updates:
            _Scheduled(state.optimizer, self._schedule).before(
                state.num_updates
            )  # restores the rates of the last update, also when no update is left to take
        if self._in_parts.split is not None:
            state.update_parts, state.score_parts = saved["parts"]["update"], saved["parts"]["score"]
        return state

    def weights(self, state: PyTorchState) -> dict[str, Any]:
        """Return a copy of the weights to save, by name; {} on all processes but the first."""
        self._meet(state)
        return self.strategy.weights(self._scored(state).model, copied=True)

    def is_finite(self, state: PyTorchState) -> bool:
        """Return whether every weight is finite, including the averaged ones."""
        self._meet(state)
        averaged = () if state.averaged is None else state.averaged.model.parameters()
        return all_finite((*state.task.model.parameters(), *averaged))

    def gradient_sizes(self, state: PyTorchState) -> dict[str, GradientSize]:
        """Return the gradient size of each weight, as applied in the last update: divided and clipped."""
        return sizes_of(state.task.model)  # the step has divided them in place

    def with_weights(self, weights: Mapping[str, Any]) -> PyTorchState:
        """Return a state that can only score.

        Raises:
            ConfigError: the weights belong to another model.
        """
        state = self._placed(self._build(self.options.seed))
        fill_model(state.task.model, weights, source="checkpoint", strategy=self.strategy)
        return state

    @property
    def device_text(self) -> str:
        """The name of the device; for a CPU also the number of threads, which affects the last bits."""
        if self.device.type == "cuda":
            return f"{self.device} ({torch.cuda.get_device_name(self.device)})"
        return f"{self.device} ({platform.processor() or platform.machine()}, threads: {torch.get_num_threads()})"

    def model_and_optimizer(self, state: PyTorchState) -> tuple[Any, Any]:
        """Return the trained model and its optimizer."""
        return state.task.model, state.optimizer

    def closing_line(self) -> str:
        """Return "": there is nothing to remark."""
        return ""

    def facts_to_host(self, facts: Facts) -> dict[str, float]:
        """Wait for the device once and return plain floats."""
        return to_float(facts)

    def predictions_to_host(self, predictions: Predictions) -> dict[str, Any]:
        """Return numpy arrays for tensors with rows and floats for scalars."""
        return to_arrays(predictions)

    def _build(self, seed: int) -> Task:
        with seeded(seed):
            task = self._make_task()
        _refuse_lazy(task.model)
        return task

    def _placed(self, task: Task, *, averages: bool = False) -> PyTorchState:
        """Return a state that can only score, with a copy of the task if weights are averaged."""
        averaged = averaging_copy(task) if averages else None  # before `prepare`: a sharded model cannot be copied
        with advised("the model"):
            for each in (task, averaged):
                if each is not None:
                    each.model = self.strategy.prepare(each.model)
        return PyTorchState(task, averaged=averaged)

    def _for_training(self, task: Task, weights: Mapping[str, Any] | None = None) -> PyTorchState:
        """Return a state for training a new task, from given weights or the task's own."""
        state = self._placed(task, averages=self.options.averages)
        task.model.train()  # also the parts that came in evaluation mode, as all models of transformers do
        if weights is not None:
            fill_model(task.model, weights, source="resume", strategy=self.strategy)
        if self._make_optimizer is not None:
            state.optimizer = self._make_optimizer(state.task.model)
            check(state.optimizer, self._schedule)
            if keeps_average(state.optimizer):
                self._refuse_with_own_average(state.optimizer)
                state.own_average = OptimizersAverage(state.optimizer)
            if backward_of(state.optimizer) is not None:
                self._refuse_in_backward(state.task, state.optimizer)
            for group in state.optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
            state.settings = settings_of(state.optimizer, state.task.model)
            dense = self.strategy.world.size > 1 or self.options.compile is not None
            if self.device.type == "cpu" and not dense:  # rows are neither exchanged nor compiled
                use_row_gradients(state.task.model, state.optimizer)
            _tell_size(state.task.model, state.optimizer)
        self._unsaved = unsaved_values(task)
        if self.options.compile is not None:
            compile_in_place(state.task.model, self.options.compile, dynamic=True)
        if self.options.precision == "fp16":
            state.loss_scale = LossScale(self.options.init_scale)
        if state.optimizer is not None:
            state.taker = self._taker(state)
            self.strategy.begin(state.task.model, state.optimizer)
        return state

    def _refuse_with_own_average(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise ConfigError for options that conflict with an optimizer that averages weights itself."""
        name, options = type(optimizer).__name__, self.options
        key = "ema_decay" if options.swa_start is None else "swa_start"
        found = []
        if options.averages:
            problem = f"is {getattr(options, key)}, but {name} keeps an average of its own."
            found.append(Fault(key, problem, "Leave it out."))
        if self._schedule is not None and self._schedule.momentum(1) is not None:
            found.append(Fault("cycle_momentum", f"is true, but {name} averages by its momentum. Set it to false."))
        if found:
            raise ConfigError(THIS_RUN, found)

    def _refuse_in_backward(self, task: Task, optimizer: torch.optim.Optimizer) -> None:
        """Raise ConfigError for options that would act too late if the backward pass updates the weights (LOMO)."""
        options, rates = self.options, {group["lr"] for group in optimizer.param_groups}
        wrong = {
            "clip_norm": (options.clip_norm > 0, f"is {options.clip_norm}", "Set it to 0."),
            "fp16": (options.precision == "fp16", "is true", "Use bf16, or none."),
            "nonfinite_steps": (options.nonfinite_steps == "skip", "is 'skip'", "Leave it out."),
            "auto_ga": (self._in_parts.split is not None, "is true", "Set it to false."),
            "nproc": (self.strategy.world.size > 1, f"is {self.strategy.world.size}", "Use one process."),
            "task": (type(task).train_passes is not Task.train_passes, "takes several passes", "Use another."),
            "optimizer": (len(rates) > 1, f"is given {len(rates)} learning rates", "Use one for all layers."),
        }
        found = [Fault(key, f"{what}, {IN_BACKWARD}.", do) for key, (is_so, what, do) in wrong.items() if is_so]
        if found:
            raise ConfigError(THIS_RUN, found)
        log.warning(f"{type(optimizer).__name__} steps within the backward pass: gnorm is 0, nothing is clipped.")

    def _taker(self, state: PyTorchState) -> UpdateTaker:
        average = None
        if state.averaged is not None:
            moved = parameters_of(state.optimizer)
            average = AveragedModel(state.averaged.model, state.task.model, moved, self.options)
        gradients: Gradients = SummedLosses(state.optimizer, self.strategy, self.options, state.loss_scale)
        if backward_of(state.optimizer) is not None:
            gradients = StepsInBackward(self.device)
        rates = _Scheduled(state.optimizer, self._schedule)
        guard = None
        if self.options.nonfinite_steps == "skip":
            advice = "see with log_interval: 1 where it begins"
            guard = Guard("skip", scaled=self.options.precision == "fp16", advice=advice, hear=self._hear)
        elif self.options.nonfinite_steps == "keep" and self.device.type == "cpu":
            guard = Guard("keep", scaled=self.options.precision == "fp16", hear=self._hear)
        unmoved = Unmoved.of(self.strategy, state.task.model.parameters(), state.optimizer)
        return UpdateTaker(self.strategy, gradients, rates, self._tell, guard=guard, average=average, unmoved=unmoved)

    def _tell(self, event: str) -> None:
        self.tell(event)

    def _hear(self, number: int) -> None:
        self.hear_nonfinite(number)

    def _seed_update(self, num_update: int, rank: int) -> None:
        """Make dropout, and what users draw, depend only on (seed, number of the update, rank): resuming repeats it."""
        # Odd multipliers keep neighbouring seeds and updates apart: seed 1 update 2 differs from seed 2 update 1.
        mixed = self.options.seed * 0x9E3779B97F4A7C15 + rank * 0xD1B54A32D192ED03 + num_update
        mixed &= 0x7FFFFFFFFFFFFFFF
        torch.default_generator.manual_seed(mixed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(mixed)
        seed_python_and_numpy(mixed)

    def _meet(self, state: PyTorchState) -> None:
        """Make all processes agree on one model before it is scored or saved, if they train independently (BMUF)."""
        if state.optimizer is not None:
            self.strategy.meet(state.optimizer, state.num_updates)

    def _scored(self, state: PyTorchState) -> Task:
        """Return the task whose model is evaluated and saved: with averaged weights once the average has begun."""
        if state.own_average is not None:
            state.own_average.show()
        begun = self.options.has_begun(state.num_updates)
        return state.averaged if state.averaged is not None and begun else state.task

    def _predict(self, state: PyTorchState, task: Task, batch: Batch) -> Predictions:
        exactly = nullcontext() if self.exact is None else self.exact.inside(task)
        with torch.inference_mode(), self._autocast(), self._products(state, task), exactly:
            placed = to_device(batch, self.device)
            return self.strategy.through(task.model, lambda: task.valid_step(placed))

    def _products(self, state: PyTorchState, task: Task) -> AbstractContextManager[None]:
        """Return a context manager in which linear layers use oneDNN, where that is faster."""
        plain = self.options.precision == "fp32" and self.options.compile is None and self.strategy.world.size == 1
        if not (plain and self.device.type == "cpu" and is_there()):
            return nullcontext()
        if state.optimizer is not None:  # weights change between evaluations, sometimes without torch noticing
            return Products(task.model, keeps=False).inside()
        if state.products is None:
            state.products = Products(task.model, keeps=True)
        return state.products.inside()

    def _add_gradients(self, taker: UpdateTaker, state: PyTorchState, group: Sequence[Batch]) -> dict[str, Any]:
        """Add up the gradients of the loss sums of all micro-batches; return the sums of the facts."""
        self._seed_update(state.num_updates + 1, self.strategy.world.rank)
        state.optimizer.zero_grad(set_to_none=True)
        fused = backward_of(state.optimizer)
        if fused is not None and len(group) > 1:
            raise refusal("update_freq", f"is {len(group)}, {IN_BACKWARD}.", "Set it to 1.")
        rates = _Scheduled(state.optimizer, self._schedule)

        def backward(loss_sum: Tensor, count: Any) -> None:
            if fused is None:
                torch.autograd.backward(state.loss_scale.scaled(loss_sum))
            else:
                rates.before(state.num_updates + 1)
                fused(loss_sum / divisor_of(count), rates.after(skipped=False))

        def work(batch: Batch, last: bool) -> Generator[Facts]:
            del last
            yield {"num_tokens": batch.get("ntokens", 0)}
            for found in self._passes(state.task, to_device(batch, self.device)):
                _refuse_other_results(found)
                loss_sum, count, facts = found
                if not self._looked_outside and not self.strategy.shards:  # whose parameters are others in use
                    warn_of_weights_outside(loss_sum, parameters_of(state.optimizer), state.task.model)
                self._looked_outside = True
                backward(loss_sum, count)
                yield {LOSS: loss_sum.detach(), "count": count, **facts}

        return taker.add_gradients(state.task.model, group, work)

    def _passes(self, task: Task, batch: Batch) -> Generator[Any]:
        """Yield (loss sum, count, facts) of each pass over a batch, computed in the precision of the options."""
        if type(task).train_passes is Task.train_passes:  # one pass: asking for a second would gather shards in vain
            with self._autocast():
                only = self.strategy.through(task.model, lambda: task.train_step(batch))
            yield only
            return
        own: Any = task.train_passes(batch)  # of a user, perhaps
        if not isinstance(own, Generator):  # a list would be computed in another precision, and out of reach of DDP
            remedy = "Yield (loss_sum, count, facts) of each pass."
            raise wrong_return("task", task, "train_passes", f"a {type(own).__name__}, not a generator", remedy)
        with closing(own) as passes:
            while True:
                with self._autocast():
                    found = self.strategy.through(task.model, lambda: next(passes, None))
                if found is None:
                    return
                yield found

    def _drop_gradients(self, state: PyTorchState) -> None:
        state.optimizer.zero_grad(set_to_none=True)
        free_cache(self.device)

    def _autocast(self) -> AbstractContextManager[Any]:
        kind = AUTOCAST.get(self.options.precision)
        return nullcontext() if kind is None else torch.autocast(self.device.type, dtype=kind)


class _Scheduled:
    """Implements `update.Rates` with a schedule that is a function of the number of the update."""

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Schedule | None) -> None:
        self._optimizer, self._schedule = optimizer, schedule
        self._rate = 0.0
        self._left: list[float] | None = None  # of each group, after the last update

    def before(self, number: int) -> None:
        """Set the learning rates of this update, and remember the highest of all groups."""
        if self._schedule is not None:
            if self._left not in (None, self._rates()):
                log.warning(
                    "a callback has changed the learning rate in the optimizer, but lr_scheduler sets it again before "
                    "every update, so this has no effect. Use an lr_scheduler of your own.",
                    once=True,
                )
            set_rates(self._optimizer, *rates_of(self._schedule, number))
        self._rate = max(self._rates())

    def after(self, *, skipped: object) -> float:
        """Return the remembered learning rate; skipped updates advance the schedule too."""
        del skipped
        self._left = self._rates()
        return self._rate

    def _rates(self) -> list[float]:
        return [float(group["lr"]) for group in self._optimizer.param_groups]


def _unheard(event: object) -> None:
    """Ignore an event."""


def _set_mode(model: nn.Module, *, training: bool) -> None:
    # Visiting every module costs more than checking the first.
    if model.training != training:
        model.train(training)


def _refuse_lazy(model: nn.Module) -> None:
    """Raise ConfigError for lazy weights, shaped by the first batch: optimizer and average are made before it."""
    every = (*model.named_parameters(), *model.named_buffers())
    lazy = [name for name, weight in every if nn.parameter.is_lazy(weight)]
    if lazy:
        problem = f"has weights that get their shape from the first batch ({', '.join(lazy)}), which comes too late."
        raise refusal("model", problem, "Give them a shape: nn.Linear for nn.LazyLinear.")


def _refuse_other_results(found: object) -> None:
    """Raise ConfigError if a user's loss or task does not return (loss sum with a gradient, count, facts)."""
    if not (isinstance(found, tuple | list) and len(found) == 3 and isinstance(found[2], Mapping)):
        kinds = [type(each).__name__ for each in found] if isinstance(found, tuple | list) else []
        given = f"({', '.join(kinds)})" if kinds else f"a {type(found).__name__}"
        problem = f"gives {given}, but three values are needed: the sum of losses, their count, and a dict of facts."
        remedy = "Return loss_sum, count, {} if there are no facts."
        raise refusal("loss", problem, remedy)
    _refuse_without_gradient(found[0])
    _refuse_other_facts({"count": found[1], **found[2]})
    # Not of tensors, which may be on a GPU that would have to be waited for.
    if isinstance(found[1], int | float) and not found[1] >= 0:
        raise refusal("loss", f"gives the count {found[1]}.", "Return how many the sum is of.")


def _refuse_without_gradient(loss_sum: object) -> None:
    """Raise ConfigError if a user's loss or task returns something that has no backward pass."""
    if not isinstance(loss_sum, Tensor):
        found = f"a {type(loss_sum).__name__}"
    elif loss_sum.numel() != 1:
        found = f"a tensor of shape {tuple(loss_sum.shape)}"
    elif not loss_sum.requires_grad:
        found = "a tensor that depends on no trained weight"
    else:
        return
    problem = f"returns {found} as its first value. It must be a tensor of one number that has a gradient."
    remedy = "Return the sum over rows, without item(), float() or detach(); and leave a weight it depends on unfrozen."
    raise refusal("loss", problem, remedy)


def _refuse_other_facts(facts: Facts) -> None:
    """Raise ConfigError if a user's loss or task returns a count or a fact that is not one number."""
    for name, value in facts.items():
        if value.numel() != 1 if isinstance(value, Tensor) else not isinstance(value, Real):
            shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
            found = f"a {type(value).__name__}{shape}"
            problem = f"gives {found} as {name}, but count and facts are summed over batches: one number each."
            raise refusal("loss", problem, "Sum over the rows, or log it by add_summary.")


def _refuse_another_average(options: EngineOptions, saved: Mapping[str, Any]) -> None:
    """Raise ConfigError if averaged weights are missing or unexpected in a snapshot, or averaged differently."""
    start, interval = before = tuple(saved.get("swa", options.swa))
    if (saved["averaged"] is not None) != options.averages:
        key = "ema_decay" if start is None and options.swa_start is None else "swa_start"
        had = "no averaged weights" if saved["averaged"] is None else "averaged weights"
        raise _resume_fault(key, f"is {getattr(options, key)}, but the checkpoint has {had}.")
    if options.swa_start is None and start is not None:
        problem = f"is {options.ema_decay}, but what the checkpoint averages is SWA from update {start}."
        raise _resume_fault("ema_decay", problem)
    if options.swa_start is not None and saved["num_updates"] >= options.swa_start and before != options.swa:
        had = f"{start} and swa_interval {interval}" if start is not None else "none"
        problem = f"has begun with update {options.swa_start}, but the average of the checkpoint has swa_start {had}."
        raise _resume_fault("swa_start", problem)


def _load_optimizer(state: PyTorchState, saved: Mapping[str, Any]) -> None:
    own = type(state.optimizer).__name__
    if saved["rule"] != own:
        raise _resume_fault("optimizer", f"is {own} here, but {saved['rule']} in the checkpoint.")
    try:
        # Copied, because torch would otherwise continue training in the snapshot's own tensors.
        before = [group["params"] for group in saved.get("settings") or state.settings]
        if state.own_average is not None and before != [group["params"] for group in state.settings]:
            raise ValueError(
                "other weights are trained now, or in other groups, and its average is that of the old ones"
            )
        load(state.optimizer, copied(saved["optimizer"]), before=saved.get("settings"), now=state.settings)
    except (ValueError, KeyError) as error:
        raise _resume_fault("optimizer", f"does not fit the checkpoint: {error}") from error


def _resume_fault(key: str, problem: str) -> ConfigError:
    remedy = "Resume with the old value; or start in a new save_dir from the weights (pretrained_model)."
    return refusal(key, problem, remedy)


def _tell_size(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    every = sum(weight.numel() for weight in model.parameters())
    trained = sum(weight.numel() for group in optimizer.param_groups for weight in group["params"])
    log.info(f"{type(model).__name__}: {every:,} parameters, {'all' if trained == every else f'{trained:,}'} trained")
