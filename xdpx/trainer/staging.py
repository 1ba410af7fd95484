"""Search with `backend="xdpx"`: each trial is one run, trained in stages; a promoted trial is resumed exactly.

`xdpx.search` decides which trials are started and promoted. Here its orders are carried out: the run of the trial, in
its own folder, resumes from its checkpoint, trains until it has seen the samples ordered, saves, and is scored.
"""

from __future__ import annotations

import inspect
import math
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch

from xdpx.checkpoints import folders
from xdpx.config.faults import ConfigError, Fault, did_you_mean, named
from xdpx.engines.pytorch import collectives
from xdpx.search.journal import Journal, facts_of
from xdpx.search.schedules import Budget
from xdpx.search.search import Search, make_search
from xdpx.search.spaces import Space, Value, Values
from xdpx.search.together import search_together
from xdpx.search.trials import Order, Result
from xdpx.trainer import resuming
from xdpx.trainer.data.plan import TrainingPlan
from xdpx.trainer.hooks.events import TrainerCallback
from xdpx.trainer.hooks.state import TrainerControl, TrainerState, restore_states, states_of
from xdpx.trainer.outputs import TrainOutput
from xdpx.trainer.parts import TrainerRun
from xdpx.utils.decisions import updates_of

if TYPE_CHECKING:
    from xdpx.trainer.arguments import TrainingArguments

SOURCE = "hyperparameter_search"
LENGTH = frozenset({"num_train_epochs", "max_steps"})
"""Arguments that no space may contain: the search decides how long a trial is trained."""

FIXED = frozenset({"output_dir", "save_only_model", "auto_find_batch_size"})
DEFAULT_SPACE: dict[str, Any] = {
    "learning_rate": {"type": "float", "values": [1e-6, 1e-4], "log": True},
    "seed": {"type": "int", "values": [1, 40]},
    "per_device_train_batch_size": {"type": "categorical", "values": [4, 8, 16, 32, 64]},
}


class StagedTrial(UserDict[str, Value]):
    """The values of one trial, as `model_init`, `hp_name` and callbacks see them: `trial["learning_rate"]`.

    Args:
        number: of the trial, from 0.
        values: by the name of the argument.
    """

    def __init__(self, number: int, values: Mapping[str, Value]) -> None:
        super().__init__(values)
        self.number = number

    @property
    def params(self) -> Values:
        """The values as a dict, as a trial of Optuna has them."""
        return dict(self.data)


class StageMethods(Protocol):
    """Attributes and methods of a Trainer that users set or override to change how a trial is trained and scored."""

    model_init: Any

    def train(
        self, resume_from_checkpoint: str | bool | None = None, trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:  # fmt: skip
        """Train, with the values of the trial."""
        ...

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Evaluate the model."""
        ...

    def get_train_dataloader(self) -> Any:
        """Return the batches to train on."""
        ...

    def set_initial_training_values(self, args: TrainingArguments, dataloader: Any) -> tuple[Any, ...]:
        """Return the first seven numbers of the plan."""
        ...

    def call_model_init(self, trial: Any = None) -> torch.nn.Module:
        """Make a new model."""
        ...

    def _take_model(self, model: torch.nn.Module) -> None: ...

    def _hp_search_setup(self, trial: Any) -> None: ...

    def _get_output_dir(self, trial: Any) -> str: ...

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None: ...


class StageEnd(TrainerCallback):
    """Stops a training at the end of its stage, saves it there as it is, and then scores it.

    The state saved is that of an uninterrupted training at this update, because the evaluation comes afterwards.

    Args:
        share: of the whole training, at which the stage ends, in (0, 1].
        score: evaluates the current model, and returns the objective of the search.
    """

    def __init__(self, share: float, score: Callable[[], float]) -> None:
        self._share, self._score = share, score
        self._stopping = False
        self.score: float | None = None

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop after the last update of the stage; a checkpoint due now is left to `on_epoch_end`."""
        if state.global_step >= updates_of(self._share, state.max_steps):
            control.should_training_stop = self._stopping = True
            control.should_save = False

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save; if the stage ends in the middle of an epoch, neither log nor evaluate."""
        if self._stopping:
            control.should_save = True
            if state.epoch is None or not float(state.epoch).is_integer():
                control.should_log = control.should_evaluate = False

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Score the model that was saved."""
        if self._stopping:
            self.score = self._score()


class StagedTrials:
    """Searches with a Trainer, one order after another; on all of its processes.

    Args:
        run: of the Trainer.
        methods: of the Trainer, to train and score one trial.
        objective_of: computes the objective from the metrics of an evaluation.
    """

    def __init__(
        self, run: TrainerRun, methods: StageMethods, objective_of: Callable[[dict[str, float]], float]
    ) -> None:
        self._run, self._methods, self._objective_of = run, methods, objective_of

    def search(
        self, written: Space | Mapping[str, object] | None, *, n_trials: int, direction: str | list[str],
        algorithm: str = "asha", tuner: str = "random", seed: int = 1, parallel_runs: int = 1, **options: Value,
    ) -> Search | None:  # fmt: skip
        """Search to the end, continuing the journal in `output_dir` if there is one; None except on the first process.

        Args:
            written: the space, or what `Space.read` takes; None for learning rate, seed and batch size.
            n_trials: maximum number of trials to start.
            direction: minimize or maximize.
            algorithm: schedule of `xdpx.search`, which decides what trials are promoted.
            tuner: tuner of `xdpx.search`, which proposes the values of new trials.
            seed: of the tuner.
            parallel_runs: size of a bracket (`algorithm="bracket"`); results are taken in groups of this size.
            options: parameters of the schedule and the tuner, e.g. `eta`.

        Raises:
            ConfigError: the request is invalid, with every reason, or `output_dir` holds another search.
            OSError: another search is running in `output_dir`, or it cannot be written.
        """
        space = written if isinstance(written, Space) else Space.read(written or DEFAULT_SPACE, source="hp_space")
        self._refuse(space, direction)
        budget, args, world = self._budget(), self._run.args, self._run.parts.world
        wanted: Any = {
            "budget": budget, "max_trials": n_trials, "tuner": tuner, "schedule": algorithm, "seed": seed,
            "parallel": parallel_runs, "direction": direction, **options,
        }  # fmt: skip

        def build(recorded: Mapping[int, Values]) -> Search:
            return make_search(space, recorded=recorded, **wanted)

        build({})  # so that an invalid request is refused on all processes
        base, callbacks = dict(vars(args)), states_of(self._run.exportable())
        stages = _Stages(self._run, self._methods, self._objective_of, budget, base, callbacks)

        def journal() -> Journal:
            facts = {**facts_of(build({})), "arguments": resuming.digest_of(args)}
            return Journal(str(args.output_dir), facts=facts, build=build)

        try:
            return search_together(
                journal, stages.carry_out, is_first=world.is_main, broadcast=collectives.broadcast_object
            )
        finally:
            vars(args).clear()
            vars(args).update(base)

    def _refuse(self, space: Space, direction: str | list[str]) -> None:
        """Raise ConfigError with every fault of the space, the direction and the arguments."""
        args, faults = self._run.args, list[Fault]()
        if direction not in ("minimize", "maximize"):
            remedy = "Use 'minimize' or 'maximize'; for several directions, backend='optuna'."
            faults.append(Fault("direction", f"is {direction!r}.", remedy))
        if args.save_only_model:
            remedy = "Set it to False: a trial that goes on needs its optimizer."
            faults.append(Fault("save_only_model", "is True, so that no trial could be continued.", remedy))
        if args.auto_find_batch_size:
            remedy = "Set it to False, and choose a per_device_train_batch_size that fits."
            faults.append(Fault("auto_find_batch_size", "changes the batches of a running trial.", remedy))
        takes_trial = bool(inspect.signature(self._methods.model_init).parameters)
        known = vars(args)
        for name in space.names:
            if name in LENGTH:
                remedy = f"Set {name} of the arguments to the length of a whole training; the search shortens it."
                faults.append(Fault(f"hp_space.{name}", "is decided by the search.", remedy))
            elif name in FIXED:
                faults.append(Fault(f"hp_space.{name}", "cannot differ between trials.", "Set it in the arguments."))
            elif name not in known and not takes_trial:
                remedy = did_you_mean(name, known, "To use it for the model, let model_init take the trial.")
                faults.append(Fault(f"hp_space.{name}", "is not an argument of TrainingArguments.", remedy))
        if faults:
            raise ConfigError(SOURCE, faults)

    def _budget(self) -> Budget:
        """Return the length of a whole training, in samples."""
        methods, args = self._methods, self._run.args
        plan = TrainingPlan(*methods.set_initial_training_values(args, methods.get_train_dataloader()))
        total = plan.max_steps * plan.total_batch_size if args.max_steps > 0 else plan.num_train_samples
        return Budget(max(1, math.floor(total)), plan.total_batch_size, plan.num_examples)


class _Stages:
    """Carries out orders of the search, on all processes.

    Args:
        base: the arguments outside of trials.
        callbacks: the state that callbacks have at the start of a trial.
    """

    def __init__(
        self, run: TrainerRun, methods: StageMethods, objective_of: Callable[[dict[str, float]], float],
        budget: Budget, base: Mapping[str, Any], callbacks: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._run, self._methods, self._objective_of = run, methods, objective_of
        self._budget, self._base, self._callbacks = budget, base, callbacks

    def carry_out(self, order: Order) -> Result:
        """Continue the trial of an order, and return its result.

        NaN, infinity and, in a single process, lack of memory fail only this trial.

        Raises:
            ConfigError: its folder holds a run with other values.
        """
        trial = StagedTrial(order.trial, order.values)
        try:
            score, ended = self._stage(trial, order.samples)
            reached = order.samples if not ended else self._seen()
        except (FloatingPointError, torch.OutOfMemoryError, MemoryError) as error:
            if self._run.parts.world.size > 1 and not isinstance(error, FloatingPointError):
                raise  # the other processes are waiting in the middle of an update
            return Result(order.number, order.begin, None, note=named(error))
        finally:
            self._run.search.trial = None
        return Result(order.number, max(reached, order.begin), score, ended=ended)

    def _seen(self) -> int:
        """Return the number of samples seen by the training that just ended."""
        state = self._run.state
        return int(self._budget.total * state.global_step / max(1, state.max_steps))

    def _stage(self, trial: StagedTrial, samples: int) -> tuple[float, bool]:
        """Return the score at the end of a stage, and whether training ended by itself before that."""
        run, methods = self._run, self._methods
        self._begin(trial)
        share, folder = samples / self._budget.total, methods._get_output_dir(trial)
        checkpoint = self._checkpoint(folder, trial)
        if checkpoint is not None:
            state = resuming.read_state(checkpoint)
            if state.global_step >= updates_of(share, state.max_steps):  # interrupted between saving and scoring
                methods._take_model(methods.call_model_init(trial))
                methods._load_from_checkpoint(checkpoint)
                return self._score(), False
        end = StageEnd(share, self._score)
        run.callback_handler.add_callback(end)
        try:
            methods.train(resume_from_checkpoint=checkpoint, trial=trial)
        finally:
            run.callback_handler.remove_callback(end)
        return (self._score(), True) if end.score is None else (end.score, False)

    def _begin(self, trial: StagedTrial) -> None:
        """Reset arguments and callbacks, then set the values of this trial."""
        run, args = self._run, self._run.args
        vars(args).clear()
        vars(args).update(self._base)
        self._methods._hp_search_setup(trial)
        args.load_best_model_at_end = False  # the weights at the end of the stage are scored
        args.restore_callback_states_from_checkpoint = True
        if args.max_steps > 0:
            each = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
            args.max_steps = max(1, round(self._budget.total / each))
        restore_states(run.exportable(), self._callbacks)

    def _checkpoint(self, folder: str, trial: StagedTrial) -> str | None:
        """Return the newest checkpoint of the trial, on all processes.

        Raises:
            ConfigError: it is of a run with other values.
        """
        ranks = self._run.parts.ranks()
        found: str | None = ranks.broadcast(folders.newest(folder) if ranks.rank == 0 else None)
        if found is None:
            return None
        params = resuming.read_state(found).trial_params
        if params != trial.params:
            problem = f"'{found}' belongs to a run with {params}, but this trial has {trial.params}."
            raise ConfigError(SOURCE, [Fault("output_dir", problem, "Choose another output_dir, or empty it.")])
        return found

    def _score(self) -> float:
        """Return the objective of an evaluation as during training, i.e. without fp16/bf16 full evaluation."""
        before, self._run.is_in_train = self._run.is_in_train, True
        try:
            return float(self._objective_of(dict(self._methods.evaluate())))
        finally:
            self._run.is_in_train = before
