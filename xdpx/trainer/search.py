"""Hyperparameter search: train with many settings of the arguments, chosen by our own search, Optuna or Ray Tune."""

from __future__ import annotations

import importlib.util
import inspect
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from xdpx.engines.pytorch import collectives
from xdpx.logger import log
from xdpx.search.spaces import Space as XdpxSpace
from xdpx.trainer.arguments.values import plain, plain_kinds
from xdpx.trainer.parts import Search, TrainerRun
from xdpx.trainer.staging import SOURCE, StagedTrials, StageMethods
from xdpx.utils.metric_names import is_higher_better


class BestRun(NamedTuple):
    """The best trial of a search; `objective` is a list when there are several directions."""

    run_id: str
    objective: Any
    hyperparameters: dict[str, Any]
    run_summary: Any | None = None


Model = TypeVar("Model")
BACKENDS = {"optuna": "optuna", "ray": "ray.tune", "xdpx": "xdpx"}
SPEED = ("_runtime", "_per_second", "_compilation_time", "_model_preparation_time")
COUNTS = ("epoch", "num_input_tokens_seen")


def _is_score(name: str) -> bool:
    return name not in COUNTS and "_mem_" not in name and not name.endswith(SPEED)


def default_objective(metrics: dict[str, float]) -> float:
    """Return the loss of an evaluation, or the sum of its other metrics when there are any.

    Speed, memory and counts are no metrics of the model.
    """
    left = {name: value for name, value in metrics.items() if _is_score(name)}
    loss = left.pop("eval_loss", None)
    return sum(left.values()) if left or loss is None else loss


def warn_of_direction(metrics: Mapping[str, float], direction: str | list[str] | None) -> None:
    """Warn once if the default objective is better the other way than the search takes it, so the worst trial wins."""
    scores = [name for name in metrics if _is_score(name)]
    names = [name for name in scores if name != "eval_loss"] or scores
    ways = {is_higher_better(name.removeprefix("eval_")) for name in names}
    if direction not in ("minimize", "maximize") or ways != {direction == "minimize"}:
        return
    better, needed = ("higher", "maximize") if direction == "minimize" else ("lower", "minimize")
    problem = f"direction is '{direction}', but the objective is {' + '.join(names)}, of which {better} is better"
    consequence = f"the worst trial will be returned as the best. Give direction='{needed}'."
    log.warning(f"{SOURCE}: {problem}: {consequence}", once=True)


def warn_of_smoothing(metrics: Mapping[str, float], objective: object, values: Iterable[str]) -> None:
    """Warn once if trials are compared by a loss that each computes with another label smoothing."""
    if "label_smoothing_factor" in values and "eval_loss" in metrics and objective == metrics["eval_loss"]:
        problem = "label_smoothing_factor changes what eval_loss is, so trials with different values are not comparable"
        remedy = "Give compute_metrics, or a compute_objective of another metric."
        log.warning(f"{SOURCE}: {problem}. {remedy}", once=True)


def default_space_optuna(trial: Any) -> dict[str, Any]:
    """Suggest learning rate, epochs, seed and batch size."""
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-6, 1e-4, log=True),
        "num_train_epochs": trial.suggest_int("num_train_epochs", 1, 5),
        "seed": trial.suggest_int("seed", 1, 40),
        "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [4, 8, 16, 32, 64]),
    }


def default_space_ray(trial: object) -> dict[str, Any]:
    """Return the ranges of learning rate, epochs, seed and batch size."""
    from ray import tune

    del trial
    return {
        "learning_rate": tune.loguniform(1e-6, 1e-4),
        "num_train_epochs": tune.choice(list(range(1, 6))),
        "seed": tune.uniform(1, 40),
        "per_device_train_batch_size": tune.choice([4, 8, 16, 32, 64]),
    }


SearchResult = BestRun | list[BestRun] | None
Space = Callable[[Any], dict[str, Any]]


class Trials:
    """Runs the trials of a search.

    Args:
        run: of the Trainer; its `search` holds space and objective.
        methods: of the Trainer, to train and score one trial.
    """

    def __init__(self, run: TrainerRun, methods: StageMethods) -> None:
        self._run, self._methods, self._search = run, methods, run.search

    def search(self, n_trials: int, direction: str | list[str], backend: Any, **kwargs: Any) -> SearchResult:
        """Run a search and return its best run, or one for each best trial when there are several directions.

        Raises:
            RuntimeError: the backend is not installed, or there is no `model_init`.
            ValueError: the backend is unknown, or does not take this kind of space or this direction; or trials should
                run in threads.
        """
        if self._methods.model_init is None:
            raise RuntimeError(f"{SOURCE}: each trial needs a new model. Give the Trainer `model_init`.")
        search = self._search
        search.backend, search.replaced = (chosen := _backend(backend, search.space)), {}
        search.direction = direction
        try:
            if chosen == "xdpx":
                return self._xdpx(search.space, n_trials, direction, **kwargs)
            if search.space is not None and not callable(search.space):
                raise ValueError(f"{SOURCE}: a dict of dimensions or a Space is for backend='xdpx', not '{chosen}'.")
            if chosen == "optuna":
                return self._optuna(search.space or default_space_optuna, n_trials, direction, **kwargs)
            return self._ray(search.space or default_space_ray, n_trials, direction, **kwargs)
        finally:
            search.backend = None
            _put_back(self._run)

    def attempt(self, trial: object, checkpoint: str | None = None) -> float:
        """Train one trial, and return its last objective."""
        search, methods = self._search, self._methods
        search.objective = None
        methods.train(resume_from_checkpoint=checkpoint, trial=trial)
        achieved: float | None = search.objective  # at its last evaluation while training
        return _take_objective(search, methods.evaluate()) if achieved is None else achieved

    def _xdpx(self, space: object, n_trials: int, direction: str | list[str], **kwargs: Any) -> BestRun | None:
        if callable(space):
            raise ValueError(
                f"{SOURCE}: with backend='xdpx', hp_space is a dict of dimensions or a Space, not a function. Write "
                "{'learning_rate': {'type': 'float', 'values': [1e-5, 1e-3], 'log': True}}."
            )
        trials = StagedTrials(self._run, self._methods, partial(_take_objective, self._search))
        found = trials.search(space, n_trials=n_trials, direction=direction, **kwargs)  # type: ignore[arg-type]
        best = None if found is None else found.best
        if found is None or best is None:
            return None
        return BestRun(str(best.number), best.best, dict(best.values), found.decisions)

    def _optuna(self, space: Space, n_trials: int, direction: str | list[str], **kwargs: Any) -> SearchResult:
        import optuna

        if kwargs.get("n_jobs", 1) != 1:
            raise ValueError(
                f"{SOURCE}: n_jobs is {kwargs['n_jobs']!r}, but trials in threads would train the same model. "
                "Leave n_jobs out, and start several programs on one study instead: give them the same study_name and "
                "storage, and load_if_exists=True."
            )
        self._search.space, world = space, self._run.parts.world
        if not world.is_main:  # only the first process talks to Optuna; the others get the trials from it
            catch = kwargs.get("catch", ())
            self._follow(optuna.TrialPruned, *(catch if isinstance(catch, tuple | list) else (catch,)))
            return None

        def tried_together(trial: Any) -> float:
            if world.size > 1:
                space(trial)  # draws every value, to be sent to the others
                collectives.broadcast_object(optuna.trial.FixedTrial(trial.params, trial.number))
            return self.attempt(trial)

        names = ("timeout", "n_jobs", "gc_after_trial", "catch")
        options = {name: kwargs.pop(name) for name in names if name in kwargs}
        several = isinstance(direction, list)
        kwargs["directions" if several else "direction"] = direction
        study = optuna.create_study(**kwargs)
        study.optimize(tried_together, n_trials=n_trials, **options)
        collectives.broadcast_object(None)  # there are no more
        if several:
            return [BestRun(str(best.number), best.values, best.params) for best in study.best_trials]
        return BestRun(str(study.best_trial.number), study.best_value, study.best_params)

    def _follow(self, *survived: type[Exception]) -> None:
        """Train the trials that the first process sends, until it sends None; `survived` errors end only a trial."""
        nothing: Any = None
        while (trial := collectives.broadcast_object(nothing)) is not None:
            with suppress(*survived):
                self.attempt(trial)

    def _ray(self, space: Space, n_trials: int, direction: str | list[str], **kwargs: Any) -> BestRun:
        if direction not in ("minimize", "maximize"):
            raise ValueError(
                f"{SOURCE}: direction is {direction!r}. Use 'minimize' or 'maximize'; for several directions, "
                "backend='optuna'."
            )
        from ray import tune

        self._search.space = space
        self._run.forget_model()  # each trial makes its own
        gpu = {"gpu": 1} if self._run.args.n_gpu > 0 else {}
        resources = kwargs.pop("resources_per_trial", {"cpu": 1, **gpu})
        task = tune.with_resources(tune.with_parameters(_ray_trial, trials=self), resources)
        names = ("scheduler", "search_alg", "max_concurrent_trials", "time_budget_s")
        config = {name: kwargs.pop(name) for name in names if name in kwargs}
        mode = "min" if direction == "minimize" else "max"
        tuner = tune.Tuner(
            task,
            param_space=space(None),
            tune_config=tune.TuneConfig(metric="objective", mode=mode, num_samples=n_trials, **config),
            run_config=tune.RunConfig(**kwargs),
        )
        found = tuner.fit()
        best = found.get_best_result()
        metrics, tried = best.metrics or {}, best.config or {}
        return BestRun(metrics["trial_id"], metrics["objective"], tried, found)


def _ray_trial(config: dict[str, Any], trials: Trials) -> None:
    from ray import tune

    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        objective = trials.attempt(dict(config))
    else:
        with checkpoint.as_directory() as folder:
            objective = trials.attempt(dict(config), folder)
    tune.report({"objective": objective})


def _backend(wanted: Any, space: object) -> str:
    there = [name for name, module in BACKENDS.items() if importlib.util.find_spec(module.split(".")[0])]
    name = str(getattr(wanted, "value", wanted or ""))
    if not name:
        name = "xdpx" if isinstance(space, Mapping | XdpxSpace) else there[0] if there[0] != "xdpx" else "optuna"
    if name not in BACKENDS:
        raise ValueError(f"{SOURCE}: backend is '{name}'. Use one of {', '.join(BACKENDS)}.")
    if name not in there:
        package = "ray[tune]" if name == "ray" else name
        remedy = f"Install it: pip install '{package}'; or use backend='xdpx', which needs no package."
        raise RuntimeError(f"{SOURCE}: {name} is not installed. {remedy}")
    return name


def take_trial(run: TrainerRun, trial: Any) -> None:
    """Set the arguments to the values of a trial."""
    search, args = run.search, run.args
    search.trial = trial
    if search.backend is None or trial is None:
        return
    _put_back(run)  # a space may leave out what it gave to the trial before
    values = search.space(trial) if search.backend == "optuna" and callable(search.space) else trial
    if not isinstance(values, Mapping):
        raise TypeError(f"{SOURCE}: hp_space returned {values!r:.60}. Return a dict of arguments and their values.")
    kinds = plain_kinds(type(args))
    for name, value in values.items():
        if not hasattr(args, name):
            if search.backend == "xdpx":
                continue  # meant for `model_init`
            log.warning(
                f"Trying to set {name} in the hyperparameter search but there is no corresponding field in "
                "`TrainingArguments`: its value changes nothing.",
                under="transformers.trainer",
            )
            continue
        now = search.replaced[name] = getattr(args, name)
        setattr(args, name, value if now is None else _as_kind(value, kinds.get(name, type(now))))
    log.info(f"trial: {', '.join(f'{name} {value}' for name, value in values.items())}")
    run.take_batch_size(anew=True)


def _put_back(run: TrainerRun) -> None:
    """Restore the arguments that the last trial has set."""
    for name, value in run.search.replaced.items():
        setattr(run.args, name, value)
    run.search.replaced = {}


def _as_kind(value: Any, kind: type) -> Any:
    """Return a value as the type of its argument: a float that a space draws for a seed becomes an int."""
    return plain(value, kind) if kind in (bool, float) else kind(value)


def report(run: TrainerRun, trial: Any, step: int, metrics: dict[str, float], *, save: Callable[[str], str]) -> None:
    """Report the objective of a trial, which may prune it; `save` writes a checkpoint for Ray and returns its path."""
    search = run.search
    if search.backend in (None, "xdpx") or trial is None:
        return
    objective = _take_objective(search, dict(metrics))
    if search.backend == "ray":
        _report_to_ray({"objective": objective}, save if run.control.should_save else None)
    elif collectives.broadcast_object(_is_pruned(trial, objective, step)):  # as the first process says, on all
        import optuna

        run.callback_handler.on_train_end(run.args, run.state, run.control)
        raise optuna.TrialPruned


def _is_pruned(trial: Any, objective: float, step: int) -> bool:
    """Report an objective to Optuna; return whether it ends the trial. False where the trial only fixes values."""
    if not hasattr(trial, "study") or len(trial.study.directions) > 1:
        return False
    trial.report(objective, step)
    return bool(trial.should_prune())


def _take_objective(search: Search, metrics: dict[str, float]) -> float:
    objective_of = search.objective_of or default_objective
    if objective_of is default_objective:
        warn_of_direction(metrics, search.direction)
    search.objective = objective_of(metrics)
    warn_of_smoothing(metrics, search.objective, search.replaced)
    return search.objective


def _report_to_ray(metrics: dict[str, float], save: Callable[[str], str] | None) -> None:
    from ray import tune

    if save is None:
        tune.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(save(folder)))


def new_model(model_init: Callable[..., Model], trial: object) -> Model:
    """Call `model_init`, with the trial if it takes an argument, and return the model.

    Raises:
        RuntimeError: it returns None, or takes more than one argument.
    """
    given = len(model_init.keywords) if isinstance(model_init, partial) else 0
    taken = len(inspect.signature(model_init).parameters) - given
    if taken > 1:
        raise RuntimeError(f"model_init: takes {taken} arguments. Let it take none, or the trial of a search.")
    model = model_init(trial) if taken else model_init()
    if model is None:
        raise RuntimeError("model_init: returned None. Return the model.")
    return model
