"""Search hyperparameters: train with many settings of the arguments, driven by Optuna or Ray Tune."""

from __future__ import annotations

import importlib.util
import inspect
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from xdpx.engines.pytorch import collectives
from xdpx.logger import log


class BestRun(NamedTuple):
    """The best trial of a search; `objective` is a list when there are several directions."""

    run_id: str
    objective: Any
    hyperparameters: dict[str, Any]
    run_summary: Any | None = None


Model = TypeVar("Model")
BACKENDS = {"optuna": "optuna", "ray": "ray.tune"}
SPEED = ("_runtime", "_per_second", "_compilation_time", "_model_preparation_time")


def default_objective(metrics: dict[str, float]) -> float:
    """Give the loss of an evaluation, or the sum of its other metrics when there are any."""
    left = {name: value for name, value in metrics.items() if name != "epoch" and not name.endswith(SPEED)}
    loss = left.pop("eval_loss", None)
    return sum(left.values()) if left or loss is None else loss


def default_space_optuna(trial: Any) -> dict[str, Any]:
    """Suggest learning rate, epochs, seed and batch size."""
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-6, 1e-4, log=True),
        "num_train_epochs": trial.suggest_int("num_train_epochs", 1, 5),
        "seed": trial.suggest_int("seed", 1, 40),
        "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [4, 8, 16, 32, 64]),
    }


def default_space_ray(trial: Any) -> dict[str, Any]:
    """Give the ranges of learning rate, epochs, seed and batch size."""
    from ray import tune

    del trial
    return {
        "learning_rate": tune.loguniform(1e-6, 1e-4),
        "num_train_epochs": tune.choice(list(range(1, 6))),
        "seed": tune.uniform(1, 40),
        "per_device_train_batch_size": tune.choice([4, 8, 16, 32, 64]),
    }


Found = BestRun | list[BestRun] | None


def search(trainer: Any, n_trials: int, direction: str | list[str], backend: Any, **kwargs: Any) -> Found:
    """Run a search and give its best run, or one for each best trial when there are several directions.

    Raises:
        RuntimeError: neither backend is installed, or there is no `model_init`.
        ValueError: the backend is not known.
    """
    if trainer.model_init is None:
        raise RuntimeError("hyperparameter_search: each trial needs a new model. Give the Trainer `model_init`.")
    chosen = _backend(backend)
    trainer.hp_search_backend = chosen
    trainer.hp_space = trainer.hp_space or (default_space_optuna if chosen == "optuna" else default_space_ray)
    try:
        return (_optuna if chosen == "optuna" else _ray)(trainer, n_trials, direction, **kwargs)
    finally:
        trainer.hp_search_backend = None


def _backend(wanted: Any) -> str:
    there = [name for name, module in BACKENDS.items() if importlib.util.find_spec(module.split(".")[0])]
    name = str(getattr(wanted, "value", wanted or "")) or (there[0] if there else "optuna")
    if name not in BACKENDS:
        raise ValueError(f"hyperparameter_search: backend is '{name}'. Use one of {', '.join(BACKENDS)}.")
    if name not in there:
        package = "ray[tune]" if name == "ray" else name
        raise RuntimeError(f"hyperparameter_search: {name} is not installed. Install it: pip install '{package}'.")
    return name


def _try(trainer: Any, trial: Any, checkpoint: str | None = None) -> float:
    """Train one trial, and give what it achieved."""
    trainer.objective = None
    trainer.train(resume_from_checkpoint=checkpoint, trial=trial)
    if trainer.objective is None:  # it was never evaluated while training
        trainer.objective = trainer.compute_objective(trainer.evaluate())
    return trainer.objective  # type: ignore[no-any-return]


def _optuna(trainer: Any, n_trials: int, direction: str | list[str], **kwargs: Any) -> Found:
    import optuna

    if not trainer.is_world_process_zero():  # the first process asks Optuna, and the others follow it
        for _ in range(n_trials):
            _try(trainer, collectives.broadcast_object(None))
        return None
    options = {name: kwargs.pop(name) for name in ("timeout", "n_jobs", "gc_after_trial", "catch") if name in kwargs}
    several = isinstance(direction, list)
    kwargs["directions" if several else "direction"] = direction
    study = optuna.create_study(**kwargs)
    study.optimize(partial(_tried_together, trainer), n_trials=n_trials, **options)
    if several:
        return [BestRun(str(best.number), best.values, best.params) for best in study.best_trials]
    return BestRun(str(study.best_trial.number), study.best_value, study.best_params)


def _tried_together(trainer: Any, trial: Any) -> float:
    if trainer.world.size > 1:
        import optuna

        trainer.hp_space(trial)  # asks for every value, so that the others can be told
        collectives.broadcast_object(optuna.trial.FixedTrial(trial.params, trial.number))
    return _try(trainer, trial)


def _ray(trainer: Any, n_trials: int, direction: str | list[str], **kwargs: Any) -> BestRun:
    from ray import tune

    trainer.model = trainer.model_wrapped = trainer.callback_handler.model = None  # is made anew by each trial
    resources = kwargs.pop("resources_per_trial", {"cpu": 1, **({"gpu": 1} if trainer.args.n_gpu > 0 else {})})
    task = tune.with_resources(tune.with_parameters(_ray_trial, trainer=trainer), resources)
    names = ("scheduler", "search_alg", "max_concurrent_trials", "time_budget_s")
    config = {name: kwargs.pop(name) for name in names if name in kwargs}
    mode = "min" if direction == "minimize" else "max"
    tuner = tune.Tuner(
        task,
        param_space=trainer.hp_space(None),
        tune_config=tune.TuneConfig(metric="objective", mode=mode, num_samples=n_trials, **config),
        run_config=tune.RunConfig(**kwargs),
    )
    found = tuner.fit()
    best = found.get_best_result()
    metrics, tried = best.metrics or {}, best.config or {}
    return BestRun(metrics["trial_id"], metrics["objective"], tried, found)


def _ray_trial(config: dict[str, Any], trainer: Any) -> None:
    from ray import tune

    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        objective = _try(trainer, dict(config))
    else:
        with checkpoint.as_directory() as folder:
            objective = _try(trainer, dict(config), folder)
    tune.report({"objective": objective})


def take_trial(trainer: Any, trial: Any) -> None:
    """Set the arguments to the values of a trial."""
    trainer._trial = trial
    if trainer.hp_search_backend is None or trial is None:
        return
    values = trainer.hp_space(trial) if trainer.hp_search_backend == "optuna" else trial
    for name, value in values.items():
        if not hasattr(trainer.args, name):
            log.warning(f"hyperparameter_search: there is no argument '{name}', so its value changes nothing.")
            continue
        now = getattr(trainer.args, name)
        setattr(trainer.args, name, value if now is None else type(now)(value))
    log.info(f"trial: {', '.join(f'{name} {value}' for name, value in values.items())}")
    trainer._train_batch_size = trainer.args.train_batch_size


def report(trainer: Any, trial: Any, step: int, metrics: dict[str, float]) -> None:
    """Tell the search how a trial does, which may end it."""
    if trainer.hp_search_backend is None or trial is None:
        return
    trainer.objective = trainer.compute_objective(dict(metrics))
    if trainer.hp_search_backend == "ray":
        _report_to_ray(trainer)
    elif hasattr(trial, "study") and len(trial.study.directions) == 1:
        import optuna

        trial.report(trainer.objective, step)
        if trial.should_prune():
            trainer.callback_handler.on_train_end(trainer.args, trainer.state, trainer.control)
            raise optuna.TrialPruned


def _report_to_ray(trainer: Any) -> None:
    from ray import tune

    metrics = {"objective": trainer.objective}
    if not trainer.control.should_save:
        tune.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        saved = trainer._tune_save_checkpoint(folder)
        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(saved))


def new_model(model_init: Callable[..., Model], trial: Any) -> Model:
    """Call `model_init`, with the trial where it takes one.

    Raises:
        RuntimeError: it gives nothing.
    """
    given = len(model_init.keywords) if isinstance(model_init, partial) else 0
    taken = len(inspect.signature(model_init).parameters) - given
    if taken > 1:
        raise RuntimeError(f"model_init: takes {taken} arguments. Let it take none, or the trial of a search.")
    model = model_init(trial) if taken else model_init()
    if model is None:
        raise RuntimeError("model_init: gave None. Return the model.")
    return model
