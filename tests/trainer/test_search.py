"""Searching hyperparameters: what each trial is given, what comes back, what is refused."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from xdpx import Trainer, TrainingArguments
from xdpx.trainer import search
from xdpx.trainer.parts import Search, TrainerRun

HAS_OPTUNA = importlib.util.find_spec("optuna") is not None
HAS_RAY = importlib.util.find_spec("ray") is not None


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layer(x).squeeze(-1)
        return {"loss": nn.functional.mse_loss(y, labels), "logits": y}


def searcher(folder: Any, **changes: Any) -> Trainer:
    rows = [{"x": torch.tensor([float(i)]), "labels": torch.tensor(2.0 * i)} for i in range(8)]
    args = TrainingArguments(str(folder), use_cpu=True, disable_tqdm=True, num_train_epochs=2, **changes)
    return Trainer(args=args, train_dataset=rows, eval_dataset=rows, model_init=lambda: Line())


@pytest.mark.skipif(not HAS_OPTUNA, reason="optuna is not installed")
def test_the_best_of_the_trials_comes_back_with_what_it_was_given(tmp_path: Any) -> None:
    tried: list[float] = []

    def space(trial: Any) -> dict[str, Any]:
        tried.append(trial.suggest_categorical("learning_rate", [1e-6, 0.1]))
        return {"learning_rate": tried[-1]}

    trainer = searcher(tmp_path, save_strategy="epoch", eval_strategy="epoch")
    import optuna

    sampler = optuna.samplers.GridSampler({"learning_rate": [1e-6, 0.1]})
    best = trainer.hyperparameter_search(
        space, n_trials=2, backend="optuna", hp_name=lambda trial: f"lr-{trial.number}", sampler=sampler
    )
    assert isinstance(best, search.BestRun)
    assert best.hyperparameters == {"learning_rate": 0.1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lr-0", "lr-1"]
    assert all((tmp_path / name / "metrics.jsonl").exists() for name in ("lr-0", "lr-1"))
    assert trainer.hp_search_backend is None
    assert trainer.args.learning_rate == 5e-5  # that of the user again, not of the last trial


@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason="ray is not installed")
def test_the_best_of_the_trials_on_a_local_ray_comes_back(tmp_path: Any, monkeypatch: Any) -> None:
    import ray
    from ray import tune

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        best = searcher(tmp_path / "runs", save_strategy="no", eval_strategy="epoch").hyperparameter_search(
            lambda trial: {"learning_rate": tune.grid_search([1e-6, 0.1])},
            n_trials=1, backend="ray", storage_path=str(tmp_path / "ray"), verbose=0,
        )  # fmt: skip
    finally:
        ray.shutdown()
    assert isinstance(best, search.BestRun)
    assert best.hyperparameters == {"learning_rate": 0.1}


@pytest.mark.skipif(HAS_OPTUNA, reason="optuna is installed")
def test_a_backend_that_is_not_installed_says_how_to_get_it(tmp_path: Any) -> None:
    with pytest.raises(RuntimeError, match="pip install 'optuna'"):
        searcher(tmp_path).hyperparameter_search(backend="optuna")


def test_a_backend_that_is_not_known_is_refused(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="backend is 'dice'. Use one of optuna, ray"):
        searcher(tmp_path).hyperparameter_search(backend="dice")


@pytest.mark.skipif(not HAS_OPTUNA, reason="optuna is not installed")
def test_trials_in_threads_which_would_share_a_model_are_refused(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="n_jobs is 2.*start several programs on one study"):
        searcher(tmp_path).hyperparameter_search(backend="optuna", n_jobs=2)


def test_a_search_without_model_init_is_refused(tmp_path: Any) -> None:
    args = TrainingArguments(str(tmp_path), use_cpu=True)
    with pytest.raises(RuntimeError, match="model_init"):
        Trainer(Line(), args).hyperparameter_search()


def test_the_objective_is_the_loss_or_the_sum_of_the_metrics() -> None:
    aside = {"epoch": 1.0, "eval_runtime": 9.0, "eval_samples_per_second": 9.0, "num_input_tokens_seen": 512}
    aside |= {"eval_mem_cpu_alloc_delta": 4096, "before_init_mem_cpu": 8192}
    assert search.default_objective({"eval_loss": 0.5, **aside}) == 0.5
    assert search.default_objective({"eval_loss": 0.5, "eval_f1": 0.2, "eval_em": 0.1, **aside}) == pytest.approx(0.3)


@pytest.mark.parametrize("backend", ["xdpx", "optuna"])
def test_a_direction_in_which_the_worst_trial_would_win_is_warned_of(tmp_path: Any, capsys: Any, backend: str) -> None:
    if backend == "optuna" and not HAS_OPTUNA:
        pytest.skip("optuna is not installed")
    space: Any = {"seed": {"type": "categorical", "values": [1]}} if backend == "xdpx" else lambda trial: {}
    cases = (("minimize", "acc"), ("maximize", "mse"), ("maximize", "acc"), ("minimize", "mse"))
    for number, (direction, metric) in enumerate(cases):
        trainer = searcher(tmp_path / str(number), save_strategy="no")
        name = f"{backend}_{metric}"  # else of an earlier test the same was said already
        trainer.compute_metrics = lambda _, name=name: {name: 0.5}
        trainer.hyperparameter_search(space, n_trials=1, direction=direction, backend=backend)
        warned = "the worst trial will be returned as the best" in capsys.readouterr().err
        assert warned == (number < 2)


def test_trials_compared_by_a_loss_that_label_smoothing_changes_are_warned_of(capsys: Any) -> None:
    for name, metrics in (("seed", {}), ("label_smoothing_factor", {"eval_acc": 0.5}), ("label_smoothing_factor", {})):
        assert "changes what eval_loss is" not in capsys.readouterr().err
        search._take_objective(Search(replaced={name: 0}), {"eval_loss": 1.0, **metrics})
    assert "changes what eval_loss is" in capsys.readouterr().err


def test_values_of_a_trial_are_not_cut_where_the_argument_is_a_float_that_the_user_gave_as_an_integer(
    tmp_path: Any,
) -> None:
    trainer = searcher(tmp_path, weight_decay=0, max_grad_norm=1)
    trainer.hp_search_backend = "ray"
    search.take_trial(trainer._run, {"weight_decay": 0.1, "max_grad_norm": 0.5, "warmup_steps": 0.2})
    assert (trainer.args.weight_decay, trainer.args.max_grad_norm, trainer.args.warmup_steps) == (0.1, 0.5, 0.2)


def test_values_of_a_trial_take_the_type_of_the_argument(tmp_path: Any) -> None:
    trainer = searcher(tmp_path)
    trainer.hp_search_backend = "ray"
    search.take_trial(trainer._run, {"num_train_epochs": 3, "seed": 7.0, "unheard_of": 1})
    assert (trainer.args.num_train_epochs, trainer.args.seed) == (3.0, 7)
    assert type(trainer.args.seed) is int


def test_a_trial_without_a_value_has_that_of_the_user_and_not_of_the_trial_before(tmp_path: Any) -> None:
    trainer = searcher(tmp_path, learning_rate=0.5)
    trainer.hp_search_backend = "ray"
    tried = []
    for trial in ({"learning_rate": 0.1, "seed": 7}, {"seed": 8}):
        search.take_trial(trainer._run, trial)
        tried.append((trainer.args.learning_rate, trainer.args.seed))
    assert tried == [(0.1, 7), (0.5, 8)]


def test_a_trial_begins_with_the_weights_of_its_own_seed(tmp_path: Any) -> None:
    trainer = searcher(tmp_path, save_strategy="no")
    made: list[float] = []

    def model() -> Line:
        line = Line()
        made.append(line.layer.weight.item())
        return line

    trainer.model_init, trainer.hp_search_backend = model, "ray"
    for seed in (7, 8, 7):
        trainer.train(trial={"seed": seed, "max_steps": 1})
    assert made[0] == made[2] != made[1]


class Classes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        logits = self.layer(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def test_a_trial_trains_with_its_own_label_smoothing_and_noise_and_not_with_those_of_the_trial_before(
    tmp_path: Any,
) -> None:
    rows = [{"x": torch.tensor([float(i)]), "labels": i % 2} for i in range(8)]
    args = TrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, max_steps=1, save_strategy="no")
    trainer = Trainer(args=args, train_dataset=rows, model_init=Classes)
    trainer.hp_search_backend = "ray"
    losses = [trainer.train(trial={"label_smoothing_factor": each}).training_loss for each in (0.0, 0.6, 0.0)]
    assert losses[0] == losses[2] != losses[1]
    for trial in ({"neftune_noise_alpha": 5.0}, {"seed": 1}):
        trainer._hp_search_setup(trial)
        assert trainer.neftune_noise_alpha == trial.get("neftune_noise_alpha")


def test_a_value_that_a_trial_cannot_change_is_warned_of(tmp_path: Any, capsys: Any) -> None:
    trainer = searcher(tmp_path, save_strategy="no")
    trainer.hp_search_backend = "ray"
    trainer.train(trial={"bf16": True, "max_steps": 1})
    assert "bf16: is True now, but was False when the Trainer was made" in capsys.readouterr().err


@pytest.mark.skipif(not HAS_RAY, reason="ray is not installed")
@pytest.mark.parametrize("direction", ["min", ["minimize"]])
def test_a_direction_that_ray_would_take_for_the_other_is_refused(tmp_path: Any, direction: Any) -> None:
    with pytest.raises(ValueError, match="Use 'minimize' or 'maximize'"):
        searcher(tmp_path).hyperparameter_search(n_trials=1, backend="ray", direction=direction)


def test_a_space_that_returns_no_dict_is_refused(tmp_path: Any) -> None:
    trainer = searcher(tmp_path)
    trainer.hp_search_backend, trainer._run.search.space = "optuna", lambda trial: None
    with pytest.raises(TypeError, match="hp_space returned None. Return a dict"):
        search.take_trial(trainer._run, "trial")


def test_a_model_is_made_with_the_trial_where_it_is_asked_for() -> None:
    assert search.new_model(lambda: "model", "trial") == "model"
    assert search.new_model(lambda trial: trial, "trial") == "trial"
    assert search.new_model(partial(lambda trial, size: (trial, size), size=3), "trial") == ("trial", 3)
    with pytest.raises(RuntimeError, match="takes 2"):
        search.new_model(lambda one, two: one, None)
    with pytest.raises(RuntimeError, match="returned None"):
        search.new_model(lambda: None, None)


def test_nothing_is_reported_outside_of_a_search() -> None:
    search.report(TrainerRun(), None, 1, {}, save=lambda folder: pytest.fail("nothing is saved"))
