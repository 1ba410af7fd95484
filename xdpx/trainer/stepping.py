"""An engine whose update calls the overridable methods of a Trainer, and its groups of micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from xdpx.engines.base import Facts, GradientSize, Traced
from xdpx.engines.origin import NonFiniteOrigin
from xdpx.engines.pytorch.gradients import sizes_of
from xdpx.engines.pytorch.nonfinite import Guard
from xdpx.engines.pytorch.out_of_memory import raised_on_all
from xdpx.engines.pytorch.profiling import traced
from xdpx.engines.pytorch.strategies.states import any_trained, parameters_of
from xdpx.engines.pytorch.tracing_back import origin_of
from xdpx.engines.pytorch.unmoved import Unmoved
from xdpx.engines.pytorch.update import LOSS, LossShares, UpdateTaker
from xdpx.logger import log
from xdpx.optimizers.pytorch.scheduling import steps_on_metric
from xdpx.trainer.accelerator import Accelerator
from xdpx.trainer.data.feeding import rows_of
from xdpx.trainer.loss.calls import LossCalls
from xdpx.trainer.parts import TrainerRun
from xdpx.utils.decisions import due

NOTHING = nullcontext()

FINITE_LOSS = "finite_loss"
"""Name of the fact in which NaN or infinite micro-batches count as the mean of the others of their update."""


class Group(list[Any]):
    """The micro-batches of one update, with the number of targets in all of them over all ranks, None if unknown."""

    def __init__(self, batches: Iterable[Any], num_items: Any) -> None:
        super().__init__(batches)
        self.num_items = num_items


class StepMethods(Protocol):
    """Methods of a Trainer that an update calls. Looked up at each call, because users may replace them."""

    loss_calls: LossCalls

    @property
    def accelerator(self) -> Accelerator:
        """Stand-in for accelerate's Accelerator, which tells scripts whether gradients are synchronized."""
        ...

    def floating_point_ops(self, inputs: Any) -> int:
        """Return the FLOPs of a micro-batch."""
        ...

    def _get_learning_rate(self) -> float: ...


class OverrideEngine:
    """Implements `engines.base.Updater` on a Trainer. Its state is the wrapped model, which torch changes in place.

    One update is on_step_begin, `training_step` on each micro-batch, and then what `UpdateTaker` does. A request to
    stop in on_substep_end takes effect only after the whole update.

    Args:
        methods: the Trainer.
        run: its state; optimizer, schedule and arguments are looked up at each update: callbacks may replace them.
    """

    def __init__(self, methods: StepMethods, run: TrainerRun) -> None:
        self._methods, self._run = methods, run
        self._samples = 0  # of the current update, on this process
        self._shares: list[Tensor] = []  # losses of its micro-batches, if `logging_nan_inf_filter` asks for them
        self._filters = run.args.filters_losses
        precision, strategy = run.parts.precision, run.parts.strategy
        # Listed once, because walking through a model costs more than clipping.
        self._parameters, self._trained = list(run.model_wrapped.parameters()), _trained_by(run.optimizer)
        self._frozen = [each for each in self._parameters if not each.requires_grad]
        self._losses = LossShares(run.optimizer, self._parameters, strategy, precision)
        guard = Guard.of(run.args.nonfinite_steps, precision, hear=self._hear)
        self.checks_each = guard is not None and precision.scaler is None
        self._taker = UpdateTaker(
            strategy, self._losses, _Stepped(methods, run), run.fire, guard=guard, average=run.average,
            unmoved=Unmoved.of(strategy, self._parameters, run.optimizer),
        )  # fmt: skip
        self.hear_nonfinite: Callable[[int], object] = _nothing
        self._random = _random_states()
        self._sizes: dict[str, GradientSize] = {}
        self._num_items: int | None = None  # of the group last examined by `origin`

    def update(self, state: nn.Module, group: Group) -> tuple[nn.Module, Facts]:
        """Take one optimizer update.

        Facts: loss_sum (the loss of the update, as this process saw it), grad_norm before clipping, learning_rate,
        samples of this process, skipped, left_out (skipped by `nonfinite_steps`), and with `logging_nan_inf_filter`
        `FINITE_LOSS`.
        """
        run, losses = self._run, self._losses
        self._samples, self._shares = 0, []
        self._random = _random_states()
        run.accumulation = len(group)
        run.fire("on_step_begin")
        agreed = run.args.auto_find_batch_size and run.parts.begins_anew_together
        with raised_on_all(agreed) if agreed else NOTHING:
            sums = self._taker.add_gradients(state, group, partial(self._micro_batch, state, group.num_items))
        self._follow_optimizer()
        losses.max_norm = run.args.max_grad_norm
        with raised_on_all(agreed) if agreed else NOTHING:
            taken = self._taker.take(run.state.global_step + 1, sums)
        if run.inspects and due(run.state.global_step + 1, run.state.logging_steps):
            self._sizes = sizes_of(run.model)
        loss = sums[LOSS]
        if taken.left_out:
            loss = loss.new_zeros(()) if isinstance(loss, Tensor) else 0.0
        for weight in self._parameters:
            weight.grad = None
        return state, {
            LOSS: loss, "grad_norm": taken.norm, "learning_rate": taken.learning_rate, "samples": self._samples,
            "skipped": taken.skipped, "left_out": taken.left_out,
            **({FINITE_LOSS: _of_finite(self._shares)} if self._shares else {}),
        }  # fmt: skip

    def _follow_optimizer(self) -> None:
        """Take what the optimizer steps on now: a callback may have replaced it, or added weights to model and it."""
        self._losses.optimizer, trained = self._run.optimizer, _trained_by(self._run.optimizer)
        if trained != self._trained:
            self._trained = trained
            self._parameters[:] = self._run.model_wrapped.parameters()
        if any_trained(self._frozen):
            self._warn_of_thawed()

    def _warn_of_thawed(self) -> None:
        """Warn of weights that were frozen when training began, are not any more, and that the optimizer lacks."""
        known = {id(each) for each in parameters_of(self._run.optimizer)}
        names = [
            name
            for name, each in self._run.model.named_parameters()
            if each.requires_grad and id(each) not in known and any(each is frozen for frozen in self._frozen)
        ]
        self._frozen = [each for each in self._frozen if not each.requires_grad]
        if names:
            log.warning(
                f"requires_grad: was set during the training for {len(names)} weights, such as {names[0]}, which the "
                "optimizer does not have and so does not change. To train them from some step on, freeze them in "
                "on_train_begin of a callback, when the optimizer has them already, and not before train()."
            )

    def origin(self, state: nn.Module, group: Group, number: int) -> NonFiniteOrigin | None:
        """Return where NaN or infinity first appeared in the last update, by running it again; None if nowhere.

        Losses in the model's outputs are recorded a second time; the random state is that of the update.
        """
        if number != self._run.state.global_step + 1:
            return None
        methods = self._methods
        self._num_items = None if group.num_items is None else int(group.num_items)

        def take_again(inputs: Any, last: bool) -> Generator[Tensor]:
            methods.accelerator.gradient_state.sync_gradients = False
            strategy = self._run.parts.strategy
            # Shards collect gradients until a pass exchanges them: what is left would be part of the next update.
            with strategy.accumulating(state, last and strategy.shards):
                yield methods.loss_calls.step(state, inputs, group.num_items)

        before = _random_states()
        _set_random_states(self._random)
        try:
            return origin_of(self._run.parts.strategy.unwrap(state), group, take_again)
        finally:
            _set_random_states(before)

    def again(self, state: nn.Module, saved: Mapping[str, Any], number: int) -> NonFiniteOrigin | None:
        """Return where NaN or infinity first appeared in a saved update. See `engines.base.Updater.again`."""
        self._run.parts.strategy.unwrap(state).load_state_dict(saved["state"]["model"])
        self._run.state.global_step, self._random = (
            number - 1,
            tuple(torch.as_tensor(each) for each in saved["state"]["random"]),
        )
        state.train()
        count = saved["state"]["num_items"]
        batches = [_tensors(batch) for batch in saved["group"]]
        return self.origin(state, Group(batches, count), number)

    def traced(self, state: nn.Module, folder: str) -> AbstractContextManager[Traced]:
        """Return a context in which updates are traced by torch.profiler."""
        return traced(state, folder)

    def gradient_sizes(self, state: nn.Module) -> dict[str, GradientSize]:
        """Return the size of each weight's gradient, after clipping, in the last logged update."""
        return self._sizes

    def snapshot(self, state: nn.Module, *, wanted: bool | None = None) -> dict[str, Any]:
        """Return copies of the weights, of the random state before the last update, and of its number of targets."""
        weights = self._run.parts.strategy.weights(state, wanted=wanted, copied=True)
        return {"model": weights, "random": list(self._random), "num_items": self._num_items}

    def _hear(self, number: int) -> None:
        self.hear_nonfinite(number)

    def _micro_batch(self, model: nn.Module, num_items: Any, inputs: Any, last: bool) -> tuple[Facts]:
        """Add the gradients of a micro-batch; return its share of the loss."""
        methods, run = self._methods, self._run
        place = methods.accelerator.gradient_state
        place.sync_gradients = last
        place.num_steps = 1 if run.accumulation == 1 or methods.loss_calls.step_counts else run.accumulation
        loss = methods.loss_calls.step(model, inputs, num_items)
        run.operations += methods.floating_point_ops(inputs)
        run.token_counter.add(inputs)
        self._samples += rows_of(inputs) or 0
        if self._filters:
            self._shares.append(loss.detach())
        return ({LOSS: loss},)


def _of_finite(shares: list[Tensor]) -> Tensor:
    """Return the loss of an update whose NaN or infinite micro-batches count as the mean of the others; NaN if all."""
    each = torch.stack(shares)
    return torch.where(each.isfinite(), each, float("nan")).nanmean() * len(shares)


def _tensors(tree: Any) -> Any:
    """Return a nested dict with NumPy arrays as tensors, as a collator returns them."""
    if isinstance(tree, Mapping):
        return {name: _tensors(value) for name, value in tree.items()}
    return torch.from_numpy(tree) if isinstance(tree, np.ndarray) else tree


def _trained_by(optimizer: Any) -> tuple[int, ...]:
    """Return numbers that change when an optimizer is replaced or gets more weights."""
    return id(optimizer), *(len(group["params"]) for group in getattr(optimizer, "param_groups", ()))


def _nothing(number: int) -> None:
    """Do nothing; used when no callback examines non-finite updates."""


def _random_states() -> tuple[Tensor, ...]:
    """Return the states of torch's random generators: of the CPU, and of the current GPU if CUDA is in use."""
    cuda = (torch.cuda.get_rng_state(),) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    return (torch.get_rng_state(), *cuda)


def _set_random_states(states: tuple[Tensor, ...]) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state)


class _Stepped:
    """Implements `update.Rates` with a torch scheduler, which counts the steps taken."""

    def __init__(self, methods: StepMethods, run: TrainerRun) -> None:
        self._methods, self._run = methods, run
        self._steps = not steps_on_metric(run.lr_scheduler)

    def before(self, number: int) -> None:
        """Do nothing: `after` has set the rates at the previous update."""

    def after(self, *, skipped: object) -> float:
        """Return the learning rate of this update; advance the schedule unless the update was skipped."""
        rate = self._methods._get_learning_rate()
        if self._steps and not skipped:
            self._run.lr_scheduler.step()
        return rate
