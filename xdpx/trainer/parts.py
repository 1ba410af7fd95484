"""State of a Trainer, as the functions of this package see it: fixed parts, and what changes while it trains.

The `Trainer` class is for users: methods to override and attributes they know from the original. The functions behind
it take its `TrainerRun`, or parts of it; attributes of the Trainer that are stored there are declared with `Shared`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from xdpx.checkpoints.folders import Ranks
from xdpx.checkpoints.memory_folders import MemoryFolders
from xdpx.datasets.plan import Position
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
from xdpx.trainer.data.randomness import Randomness
from xdpx.trainer.evaluation import Evaluation
from xdpx.trainer.hooks.events import CallbackHandler
from xdpx.trainer.hooks.state import TrainerControl, TrainerState, is_exportable
from xdpx.trainer.loss.counts import TokenCounter
from xdpx.trainer.loss.model_loss import CORRECTABLE, LossFacts
from xdpx.training.accumulation import LOOKED_AT, MetricAccumulator
from xdpx.training.callbacks.logging import LOG
from xdpx.training.preemption import Preemption

Value = TypeVar("Value")


@dataclass(frozen=True)
class TrainerParts:
    """The parts of a Trainer that never change.

    Attributes:
        world: rank of this process, number of processes, and device.
        strategy: how training is distributed over processes.
        precision: number format that the model computes in.
    """

    world: World
    strategy: Strategy
    precision: Precision

    @property
    def begins_anew_together(self) -> bool:
        """Whether several processes can restart together when one runs out of memory (`auto_find_batch_size`)."""
        return self.world.size > 1 and self.strategy.passes_alone

    def ranks(self) -> Ranks:
        """Return the processes that save checkpoints together."""
        world = self.world
        return Ranks(
            world.rank, world.size, world.local_rank, collectives.barrier, collectives.broadcast_object,
            collectives.gather_objects,
        )  # fmt: skip


class Midway(NamedTuple):
    """A place between two updates at which an evaluation was cut short, with which a resumed run begins.

    Attributes:
        control: the flags of the control.
        ended_epoch: the epoch, from 0, whose end was signalled just before; None if a step was.
        scored: the metrics of those of several sets that were evaluated before, by their prefix.
        at_start: whether this is the evaluation of `eval_on_start`, before the first update.
    """

    control: Mapping[str, bool]
    ended_epoch: int | None = None
    scored: Mapping[str, dict[str, float]] = MappingProxyType({})
    at_start: bool = False


class Continued(NamedTuple):
    """What a resumed run needs of its checkpoint.

    Attributes:
        path: of the checkpoint.
        loader: the state of the data loader of this process.
        open_epoch: the epoch, from 0, whose end was not signalled yet; None if there was none, or if it is not known.
        unlogged: what the updates after the last log gave, see `TrainerRun.unlogged`; empty if there were none.
        midway: what the callbacks had asked for when a signal cut an evaluation short, see `Midway`; None if none was.
    """

    path: str
    loader: Any
    open_epoch: int | None = None
    unlogged: Mapping[str, Any] = MappingProxyType({})
    midway: Midway | None = None


@dataclass
class Search:
    """State of a hyperparameter search.

    Attributes:
        backend: "optuna", "ray" or "xdpx"; None while no search runs.
        space: a function that returns the values of a trial, or for Ray their ranges; for "xdpx" the dimensions.
        name_of: returns the folder name of a trial.
        objective_of: computes the objective from metrics; None uses `search.default_objective`.
        direction: whether the objective is minimized or maximized; a list for several.
        objective: the last objective of the current trial.
        trial: the current one.
        replaced: arguments that the current trial has set, with their values before.
    """

    backend: str | None = None
    space: Callable[[Any], dict[str, Any]] | Space | Mapping[str, Any] | None = None
    name_of: Callable[[Any], str] | None = None
    objective_of: Callable[[dict[str, float]], float] | None = None
    direction: str | list[str] | None = None
    objective: float | None = None
    trial: Any = None
    replaced: dict[str, Any] = field(default_factory=dict)


class TrainerRun:
    """Everything that changes while a Trainer trains and evaluates; one object for the life of the Trainer.

    Attributes:
        parts: world, strategy and precision, which never change.
        args: how to train; users may replace them between two calls of `train`.
        loss_facts: how the model computes its loss, found out once; users may correct it.
        model, model_wrapped: the user's model, and what is called in its place.
        optimizer, lr_scheduler: None until they are made; users may pass objects that are only duck-typed.
        callback_handler, state, control: the callbacks, the progress of training, and what callbacks ask for next.
        asks_alike: whether `control` is the same on all processes without communication; if not, see `agree`.
        search: state of a hyperparameter search.
        average: of the weights (EMA, SWA, or the optimizer's own); None if none is kept.
        plan: epochs, steps and batches of this training.
        batch_size: training samples per micro-batch of this process.
        batch_size_of_args: the `train_batch_size` of the arguments when it was taken from there.
        accumulator: what updates gave since the last log. See `_log_step` of `trainer.flow`.
        token_counter: counts input tokens that are not in the state yet.
        made_schedule: whether the schedule was made by the Trainer, and not passed in by the user.
        made_optimizer: the last optimizer that the Trainer made, and the arguments that it was made with.
        memory: measures the memory use of the current training.
        neftune_hook: adds noise to embeddings, while it is attached.
        modules: all modules of the model that was trained last, cached so that a step need not traverse it.
        is_in_train: whether `train` is running.
        accumulation: micro-batches of the current update.
        operations: floating point operations that are not in the state yet.
        saved_step: the last step that was saved.
        copies: checkpoints kept in memory; None if none are kept.
        folder: where this training writes: the output folder, or that of a trial of a search.
        continued: the checkpoint to resume from; None for a new training.
        place: in the data, after the last update.
        reading: whether the batches of an update are being read, or their reading was cut off.
        before_read: random generators of the host, `ahead` of the loader, and generators of its collator, before that
            reading; None if no signal may cut it off.
        has_read: whether those of an update were read in this training; before, its data loader has no place yet.
        open_epoch: the epoch, from 0, whose end is not signalled yet; None between epochs.
        preemption: notes signals, which may end evaluations of this training; None if they may not.
        evaluation: what a signal may end; None outside of one, or if no signal may end it.
        midway: where an evaluation was cut short; None if none was.
        scored: the sets of that evaluation, or of the next one, that need not be evaluated, see `Midway`.
        grad_norm, learning_rate: of the last update; None before the first.
        started: when training began, in seconds of `time.time`.
        tokens_before: input tokens seen before that.
        loss_sum, logged_step: sum of the losses since the last log; the step of that log.
        loss_total: the sum of the losses up to the last log.
        true_total: the same without the filter of `logging_nan_inf_filter`.
        left_out: updates of this training, up to the last log, that `nonfinite_steps` skipped.
        logged_tokens: input tokens seen up to the last log.
        read_once: the arguments that are read when the Trainer is made, as they were then.
        memory_of_init: memory metrics of building the Trainer, until they are reported.
        model_preparation_time: seconds to wrap the model in the first evaluation, if it was not trained before.
        evaluation_type: dtype that inputs are cast to during a fp16/bf16 full evaluation; None otherwise.
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
    folder: str

    optimizer: Any = None
    lr_scheduler: Any = None
    made_schedule = False
    made_optimizer: tuple[Any, dict[str, Any]] = None, {}
    asks_alike = True
    average: AverageInPlace | OptimizersAverage | None = None
    is_in_train = False
    batch_size_of_args = 0
    accumulation = 1
    operations = 0
    saved_step: int | None = None
    copies: MemoryFolders | None = None
    continued: Continued | None = None
    place = Position()
    before_read: tuple[Randomness, dict[str, Any], dict[str, Any]] | None = None
    reading = has_read = False
    open_epoch: int | None = None
    evaluation: Evaluation | None = None
    preemption: Preemption | None = None
    midway: Midway | None = None
    scored: Mapping[str, dict[str, float]] = MappingProxyType({})
    grad_norm: Any = None
    learning_rate: float | None = None
    tokens_before = 0
    logged_step = 0
    loss_total = 0.0
    true_total = 0.0
    left_out = 0
    logged_tokens = 0
    told_of_nonfinite = False
    model_preparation_time: float | None = None
    evaluation_type: torch.dtype | None = None
    _found_facts: LossFacts | None = None  # `loss_facts` before users corrected them

    def __init__(self) -> None:
        self.state, self.control, self.accumulator = TrainerState(), TrainerControl(), _accumulator()
        self.loss_facts, self.search = LossFacts(), Search()
        self.modules: list[nn.Module] = []
        self.memory_of_init: dict[str, int] = {}
        self.read_once: dict[str, Any] = {}

    @property
    def inspects(self) -> bool:
        """Whether gradients are inspected: if asked for, and if each process has the whole gradients."""
        strategy = self.parts.strategy
        return bool(self.args.inspect_gradient) and not (strategy.shards or strategy.writes_own_state)

    def fire(self, event: str, *brought: Any) -> None:
        """Call an event of the callbacks, and replace `control` by the one returned.

        Args:
            event: its name, e.g. "on_save".
            brought: the metrics or logs, for events that have them.
        """
        tell = getattr(self.callback_handler, event)
        self.control = tell(self.args, self.state, self.control, *brought)

    def take_facts(self, found: LossFacts) -> None:
        """Set what was found out about the loss of a new model; what users have corrected for the former one stays."""
        before, corrected = self._found_facts, {}
        if before is not None:
            pairs = {name: (getattr(before, name), getattr(self.loss_facts, name)) for name in CORRECTABLE}
            corrected = {name: now for name, (was, now) in pairs.items() if now != was}
        self._found_facts, self.loss_facts = deepcopy(found), replace(found, **corrected)

    def take_batch_size(self, *, anew: bool = False) -> None:
        """Take the batch size from the arguments if `anew` or changed there; else keep the one that fitted memory."""
        if anew or self.args.train_batch_size != self.batch_size_of_args:
            self.batch_size = self.batch_size_of_args = self.args.train_batch_size

    def begin_logs(self, device: torch.device) -> None:
        """Reset the sums for logging to nothing, or to what the continued run had not logged yet."""
        self.accumulator = _accumulator()
        self.loss_sum = torch.zeros((), device=device)
        self.loss_total = self.true_total = 0.0
        self.left_out, self.logged_step, self.logged_tokens = (
            0, self.state.global_step, self.state.num_input_tokens_seen,
        )  # fmt: skip
        before = self.continued.unlogged if self.continued else {}
        self.grad_norm, self.learning_rate = before.get("grad_norm"), before.get("learning_rate")
        if before:
            self.loss_sum += before["loss"]
            self.loss_total = -before["loss"]  # the mean loss of a training is that of its own updates
            self.logged_step -= before["updates"]

    def unlogged(self) -> dict[str, Any]:
        """Return facts of the updates since the last log, as plain values; empty if there are none. On all processes.

        Sum of their losses, their number, and the gradient norm and learning rate of the last one.
        """
        left_out = int(self.accumulator.peek(LOG).sums.get("left_out", 0))
        updates = self.state.global_step - self.logged_step - left_out
        if updates <= 0:
            return {}
        return {
            "loss": float(collectives.mean_over_ranks(self.loss_sum.detach().clone())), "updates": updates,
            "grad_norm": None if self.grad_norm is None else float(self.grad_norm), "learning_rate": self.learning_rate,
        }  # fmt: skip

    def warn_of_nonfinite(self, what: str) -> None:
        """Warn, once, that training goes on although something is NaN or infinite."""
        if not self.told_of_nonfinite:
            self.told_of_nonfinite = True
            log.warning(
                f"{what}: training continues, as in the original, but the result will be useless. Checkpoints record "
                "whether their weights are finite, and the newest finite one is kept. To skip such updates, or to "
                "stop at them, set nonfinite_steps to 'skip' or 'raise'."
            )

    def agree(self) -> None:
        """Raise each flag of `control` that any process has raised, if they may differ; on all processes."""
        if not self.asks_alike:
            self.control.agree()

    def forget_model(self) -> None:
        """Drop the references to the model; e.g. each Ray trial makes its own in another process."""
        self.model = self.model_wrapped = self.callback_handler.model = None  # type: ignore[assignment]

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the model has its averaged weights, if an average is kept and has begun."""
        return nullcontext() if self.average is None else self.average.in_place(self.state.global_step)

    def exportable(self) -> list[Any]:
        """Return the callbacks whose state goes into checkpoints, and the control."""
        return [each for each in [*self.callback_handler.callbacks, self.control] if is_exportable(each)]


def _accumulator() -> MetricAccumulator:
    return MetricAccumulator(to_float, windows=(LOG,), tolerated=LOOKED_AT)


class Shared(Generic[Value]):
    """Descriptor of an attribute of a Trainer that is stored in its `_run`, for users to read and set.

    Args:
        part: path from the Trainer to the object that stores it, e.g. "_run.parts".
        name: its name there, if different.
    """

    def __init__(self, part: str = "_run", name: str = "") -> None:
        self._part, self._name = attrgetter(part), name

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = self._name or name

    def __get__(self, owner: object, kind: type | None = None) -> Value:
        if owner is None:
            return self  # type: ignore[return-value]  # accessed on the class
        return getattr(self._part(owner), self._name)  # type: ignore[no-any-return]

    def __set__(self, owner: object, value: Value) -> None:
        setattr(self._part(owner), self._name, value)
