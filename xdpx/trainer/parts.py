"""What the functions of this room work on, instead of on a Trainer: its fixed parts, and what changes as it trains.

A `Trainer` is for users: points to override, and attributes that they know from the original. Its functions are given
its `TrainerRun` or what they need of it; the attributes of the Trainer that live there are declared by `Shared`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from xdpx.checkpoints.folders import Ranks
from xdpx.checkpoints.memory_folders import MemoryFolders
from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.averaging import AverageInPlace, OptimizersAverage
from xdpx.engines.pytorch.memory import MemoryWatch
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.strategies import Strategy
from xdpx.engines.pytorch.transfer import to_float
from xdpx.engines.pytorch.world import World
from xdpx.logger import log
from xdpx.models.pytorch.modules import neftune
from xdpx.search.spaces import Space
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.data.plan import TrainingPlan
from xdpx.trainer.hooks.events import CallbackHandler
from xdpx.trainer.hooks.state import TrainerControl, TrainerState, is_exportable
from xdpx.trainer.loss.counts import TokenCounter
from xdpx.trainer.loss.model_loss import LossFacts
from xdpx.training.accumulation import LOOKED_AT, MetricAccumulator
from xdpx.training.callbacks.logging import LOG

Value = TypeVar("Value")


@dataclass(frozen=True)
class TrainerParts:
    """What a Trainer is put together from, once for all.

    Attributes:
        world: where this process stands among the others, and its device.
        strategy: how training is spread over processes.
        precision: in which numbers the model computes.
    """

    world: World
    strategy: Strategy
    precision: Precision

    @property
    def begins_anew_together(self) -> bool:
        """Whether there are other processes, and all can hear that memory ran out on one (`auto_find_batch_size`)."""
        return self.world.size > 1 and self.strategy.passes_alone

    def ranks(self) -> Ranks:
        """Return who saves together."""
        world = self.world
        return Ranks(
            world.rank, world.size, world.local_rank, collectives.barrier, collectives.broadcast_object,
            collectives.gather_objects,
        )  # fmt: skip


class Continued(NamedTuple):
    """What is needed once more when the data begins to flow again: the checkpoint, and what its loader said."""

    path: str
    loader: Any


@dataclass
class Search:
    """What is searched for.

    Attributes:
        backend: who drives the search; None while there is none.
        space: the values of a trial, or for Ray their ranges; for our own search the dimensions.
        name_of: the folder of a trial.
        objective_of: how metrics become the number that is to be small, or large; None: their loss, or their sum.
        objective: what the present trial achieved last.
        trial: the present one.
    """

    backend: str | None = None
    space: Callable[[Any], dict[str, Any]] | Space | Mapping[str, Any] | None = None
    name_of: Callable[[Any], str] | None = None
    objective_of: Callable[[dict[str, float]], float] | None = None
    objective: float | None = None
    trial: Any = None


class TrainerRun:
    """What changes while a Trainer trains and evaluates. It is one object for the life of the Trainer.

    Attributes:
        parts: what stays as it is.
        args: how to train; users may replace them between two calls of `train`.
        loss_facts: what was asked once about the loss of the model; users may correct it.
        model, model_wrapped: the user's model, and what is called in its place.
        optimizer, lr_scheduler: None until they are made; what users give may only look like one.
        callback_handler, state, control: whom events are told, where training stands, what is asked for next.
        asks_alike: whether all processes ask for the same; else they agree on it, see `agree`.
        search: for hyperparameters.
        average: of the weights (EMA, SWA, or that of the optimizer); None where none is kept.
        plan: the numbers of this training.
        batch_size: samples that this process takes at once.
        accumulator: what updates gave since the last log. See `_log_step` of `trainer.flow`.
        token_counter: input tokens that are not in the state yet.
        made_schedule: whether the schedule was made by the Trainer, and not given.
        memory: watches what the present training takes.
        neftune_hook: adds noise to embeddings, while it is attached.
        modules: all modules of the model that was trained last, so that a step need not walk through it.
        is_in_train: whether `train` is at work.
        accumulation: micro-batches of the present update.
        operations: floating point operations that are not in the state yet.
        saved_step: the last step that was saved.
        copies: of the state, in memory; None where none are kept.
        continued: the checkpoint of which the data has not been entered yet.
        started: when training began, in seconds of `time.time`.
        tokens_before: input tokens seen before that.
        loss_sum, logged_step: of the updates since the last log; the step of that log.
        loss_total: the sum of the losses up to the last log.
        true_total: the same without the filter of `logging_nan_inf_filter`.
        left_out: updates of this training, up to the last log, that `nonfinite_steps` left out.
        logged_tokens: input tokens seen up to the last log.
        memory_of_init: what building the Trainer took, until it is told.
        model_preparation_time: seconds, of the first evaluation without training.
        evaluation_type: the type that a full evaluation casts inputs to.
    """

    parts: TrainerParts
    args: TrainingArguments
    model: nn.Module
    model_wrapped: nn.Module
    callback_handler: CallbackHandler
    plan: TrainingPlan
    token_counter: TokenCounter
    memory: MemoryWatch
    neftune_hook: neftune.Handle
    loss_sum: Tensor
    started: float
    batch_size: int

    optimizer: Any = None
    lr_scheduler: Any = None
    made_schedule = False
    asks_alike = True
    average: AverageInPlace | OptimizersAverage | None = None
    is_in_train = False
    accumulation = 1
    operations = 0
    saved_step: int | None = None
    copies: MemoryFolders | None = None
    continued: Continued | None = None
    tokens_before = 0
    logged_step = 0
    loss_total = 0.0
    true_total = 0.0
    left_out = 0
    logged_tokens = 0
    told_of_nonfinite = False
    model_preparation_time: float | None = None
    evaluation_type: torch.dtype | None = None

    def __init__(self) -> None:
        self.state, self.control, self.accumulator = TrainerState(), TrainerControl(), _accumulator()
        self.loss_facts, self.search = LossFacts(), Search()
        self.modules: list[nn.Module] = []
        self.memory_of_init: dict[str, int] = {}

    @property
    def inspects(self) -> bool:
        """Whether gradients are looked at: as asked for, and where a process has the whole of them."""
        strategy = self.parts.strategy
        return bool(self.args.inspect_gradient) and not (strategy.shards or strategy.writes_own_state)

    def fire(self, event: str, *brought: Any) -> None:
        """Tell an event to the callbacks, and take over the control that comes back.

        Args:
            event: its name, e.g. "on_save".
            brought: the metrics or logs, of an event that brings some.
        """
        tell = getattr(self.callback_handler, event)
        self.control = tell(self.args, self.state, self.control, *brought)

    def begin_logs(self, device: torch.device) -> None:
        """Begin a training where the state stands: nothing of an earlier one is in its logs."""
        self.accumulator = _accumulator()
        self.loss_sum = torch.zeros((), device=device)
        self.loss_total = self.true_total = 0.0
        self.left_out, self.logged_step, self.logged_tokens = (
            0, self.state.global_step, self.state.num_input_tokens_seen,
        )  # fmt: skip

    def warn_of_nonfinite(self, what: str) -> None:
        """Say once, as soon as it is known, that training goes on although something is NaN or infinite."""
        if not self.told_of_nonfinite:
            self.told_of_nonfinite = True
            log.warning(
                f"{what}: training goes on, as that of the original does, but nothing good can come of it. Checkpoints "
                "say whether their weights are finite, and the newest that is stays. To leave such updates out, or to "
                "stop at them, set nonfinite_steps to 'skip' or 'raise'."
            )

    def agree(self) -> None:
        """Let all processes do what one of them asks for, where they may differ; after events, on all processes."""
        if not self.asks_alike:
            self.control.agree()

    def forget_model(self) -> None:
        """Let go of the model, which is then made anew, e.g. by each trial of a search in another process."""
        self.model = self.model_wrapped = self.callback_handler.model = None  # type: ignore[assignment]

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the model has its averaged weights, where an average is kept and has begun."""
        return nullcontext() if self.average is None else self.average.in_place(self.state.global_step)

    def exportable(self) -> list[Any]:
        """Return the callbacks, and the control, whose state goes into checkpoints."""
        return [each for each in [*self.callback_handler.callbacks, self.control] if is_exportable(each)]


def _accumulator() -> MetricAccumulator:
    return MetricAccumulator(to_float, windows=(LOG,), tolerated=LOOKED_AT)


class Shared(Generic[Value]):
    """An attribute of a Trainer that lives in its `_run`, for users to read and set.

    Args:
        part: where it lives, from the Trainer on, e.g. "_run.parts".
        name: what it is called there, where that is another name.
    """

    def __init__(self, part: str = "_run", name: str = "") -> None:
        self._part, self._name = attrgetter(part), name

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = self._name or name

    def __get__(self, owner: object, kind: type | None = None) -> Value:
        if owner is None:
            return self  # type: ignore[return-value]  # asked of the class
        return getattr(self._part(owner), self._name)  # type: ignore[no-any-return]

    def __set__(self, owner: object, value: Value) -> None:
        setattr(self._part(owner), self._name, value)
