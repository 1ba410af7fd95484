"""All configs are checked before anything starts; trials are compared at equal samples, whatever their batches."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hjson
import pytest

from xdpx.config.faults import ConfigError
from xdpx.config.loading import load
from xdpx.run import main
from xdpx.tuning.plan import Plan, altered_by, make_plan

Words = Callable[..., list[str]]


def faults_of(words: list[str]) -> str:
    from xdpx.commands import batch

    with pytest.raises(ConfigError) as raised:
        load(words[1], "x-tune", inspect=batch.inspect)
    return str(raised.value)


def test_every_fault_of_all_three_configs_is_told_at_once(search: Words, tmp_path: Path) -> None:
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned/thesis.tex").write_text("mine")
    space = {
        "learning_rte": {"type": "float", "values": [1e-3, 1e-1]}, "dropout": {"type": "float", "values": [0.0, 1.5]},
        "loss": {"type": "categorical", "values": ["cross_entropy", "crss"]},
    }  # fmt: skip
    told = faults_of(search(space=space))
    assert "'learning_rate'" in told
    assert "space_config: dropout: is 1.5" in told
    assert "'crss'" in told
    assert "not belong to a search of x-tune" in told


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"space": {"max_update": {"type": "int", "values": [1, 9]}}}, "cannot be searched"),
        ({"space": {"major_metric": {"type": "categorical", "values": ["acc", "loss"]}}}, "ranked by one score"),
        ({"space": {"ascending_metric": {"type": "categorical", "values": [True, False]}}}, "ranked by one score"),
        ({"space": {"batch_size": {"type": "int", "values": [0, 8]}}}, "space_config: batch_size: is 0"),
        ({"space": {"batch_size": {"type": "float", "values": [4, 8]}}}, "space_config: batch_size: is 5.52786"),
        ({"space": {"update_freq": {"type": "categorical", "values": [1, None]}}}, "space_config: update_freq: is"),
        ({"space": {"valid_subset": {"type": "categorical", "values": ["dev", "other"]}}}, "ranked by one score"),
        ({"space": {"train_steps": {"type": "int", "values": [1, 9]}}}, "decided by the search itself"),
        ({"space": {"f1_average": {"type": "categorical", "values": ["macro", "micro"]}}}, "ranked by one score"),
        (
            {
                "space": {"loss": {"type": "categorical", "values": ["cross_entropy", "focal"]}},
                "base": {"major_metric": "loss", "ascending_metric": False},
            },
            "each loss computes differently",
        ),
        (
            {
                "space": {"smoothing": {"type": "float", "values": [0.0, 0.3]}},
                "base": {"loss": "label_smooth_ce", "major_metric": "loss", "ascending_metric": False},
            },
            "which smoothing changes for the same predictions",
        ),
        ({"space": {"save_best_only": {"type": "categorical", "values": [True]}}}, "decided by the search itself"),
        ({"base": {"data_dir": "nowhere"}}, "nowhere"),
        ({"min_ref": 3}, "none would be culled"),
        ({"seeds": [1, 1]}, "twice"),
        ({"seeds": []}, "1 fault"),
        ({"folds": True}, "there are no folds to take the mean over"),
        ({"base_config": "./trian"}, "train.json"),
        ({"base_config": "train"}, "write './train' for the file beside this one"),
    ],
)
def test_what_no_search_can_do_is_refused(search: Words, keys: dict[str, Any], words: str) -> None:
    assert words in faults_of(search(**keys))


def test_a_batch_of_half_the_size_gets_twice_the_updates_and_as_many_samples(planned: Callable[..., Plan]) -> None:
    plan = planned(base={"tolerance": 40})
    [half] = plan.runs_of(0, {"batch_size": 8})
    assert plan.runs_of(0, {"batch_size": 8.0})[0].values == half.values
    assert {key: half.values[key] for key in ("max_update", "eval_interval", "tolerance")} == {
        "max_update": 24, "eval_interval": 8, "tolerance": 80,
    }  # fmt: skip
    assert [plan.stages_of([half], 0, samples)[0].until for samples in (64, 65, 192)] == [8, 9, 24]


def test_an_interval_of_one_point_zero_is_the_whole_run_and_not_one_update(planned: Callable[..., Plan]) -> None:
    plan = planned(assess_interval=1.0)
    assert plan.budget.samples_of(plan.options["assess_interval"]) == plan.budget.total


def test_a_parameter_with_a_condition_is_not_there_where_it_does_not_hold(planned: Callable[..., Plan]) -> None:
    space = {
        "lr_scheduler": {"type": "categorical", "values": ["one_cycle", "constant"]},
        "warmup_steps": {"type": "int", "values": [1, 3], "when": {"lr_scheduler": "one_cycle"}},
    }
    plan = planned(space=space)
    assert "warmup_steps" not in plan.runs_of(0, {"lr_scheduler": "constant"})[0].values
    assert plan.runs_of(0, {"lr_scheduler": "one_cycle", "warmup_steps": 2})[0].values["warmup_steps"] == 2


def test_a_trial_trains_every_fold_with_every_seed(search: Words, tmp_path: Path) -> None:
    words = search(folds=True, seeds=[1, 2])
    base = json.loads((tmp_path / "train.json").read_text())
    parents = [base.pop("__parent__"), [{"train_subset": "train"}, {"train_subset": "other"}]]
    (tmp_path / "train.json").write_text(json.dumps({"__parent__": parents, **base}))
    plan = make_plan(load(words[1], "x-tune")[0])
    found = {(run.values["train_subset"], run.values["seed"]): run.values["save_dir"] for run in plan.runs_of(5, {})}
    assert len(found) == 4
    assert found["other", 2].endswith("tuned/trial_5/fold_1.seed_2")
    assert "set folds: true" in faults_of_one(words, tmp_path)


@pytest.mark.parametrize(
    "folds",
    [
        [{"major_metric": "acc"}, {"major_metric": "loss", "ascending_metric": False}],
        [{"batch_size": 8}, {"batch_size": 12}],
    ],
)
def test_folds_whose_scores_have_no_mean_are_refused(
    search: Words, tmp_path: Path, folds: list[dict[str, object]]
) -> None:
    words = search(folds=True, space={"dropout": {"type": "float", "values": [0.0, 0.5]}})
    base = json.loads((tmp_path / "train.json").read_text())
    parents, own = [base.pop("__parent__"), folds], {key: base[key] for key in base if key not in folds[0]}
    (tmp_path / "train.json").write_text(json.dumps({"__parent__": parents, **own}))
    assert f"base_config: {next(iter(folds[0]))}: is [" in faults_of(words)


def faults_of_one(words: list[str], tmp_path: Path) -> str:
    config = json.loads((tmp_path / "tune.json").read_text())
    (tmp_path / "tune.json").write_text(json.dumps({**config, "folds": False}))
    return faults_of(words)


def test_dry_says_what_will_be_searched_and_touches_nothing(
    search: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*search(), "--dry"]) == 0
    assert "at most 3 trials over learning_rate, batch_size" in capsys.readouterr().out
    assert not (tmp_path / "tuned").exists()


def test_a_search_whose_journal_lost_its_beginning_is_not_mixed_with_another(search: Words, tmp_path: Path) -> None:
    (tmp_path / "tuned/trial_0").mkdir(parents=True)
    (tmp_path / "tuned/search.jsonl").write_text('{"facts": {"see')
    assert "without its first line" in faults_of(search())
    (tmp_path / "tuned/trial_0").rmdir()  # killed before it wrote anything
    load(search()[1], "x-tune")


def test_a_value_that_two_points_of_the_space_have_is_blamed_by_its_own_parameter_alone(search: Words) -> None:
    space = {
        "hidden_size": {"type": "categorical", "values": [8, 16]},
        "dropout": {"type": "categorical", "values": [0, "0.1", 0.3]},
    }
    told = faults_of(search(space=space))
    assert "space_config: dropout: is '0.1'. Use a number: write 0.1 without quotes." in told
    assert "hidden_size" not in told


@pytest.mark.parametrize(
    ("base", "told"),
    [
        ({"major_metric": "best_threshold"}, "the highest best_threshold wins"),
        ({"major_metric": "best_threshold", "ascending_metric": True}, ""),
        ({"major_metric": "acc"}, ""),
    ],
)
def test_a_metric_whose_direction_nothing_tells_is_named(
    planned: Callable[..., Plan], base: dict[str, Any], told: str
) -> None:
    plan = planned(base=base)
    assert plan.better == "higher"
    assert [told in doubt for doubt in plan.doubts()] == [True] * bool(told)


def test_what_a_key_alters_is_declared_with_it() -> None:
    assert altered_by("smoothing", {("", "loss"): "label_smooth_ce"}) == {"loss"}
    assert altered_by("mask_prob", {("", "processor"): "bert_lm"}) == {"score"}


def test_a_search_notes_the_rows_that_its_trials_are_trained_and_scored_on(
    planned: Callable[..., Plan], data_dir: Path
) -> None:
    choice = {"data_dir": {"type": "categorical", "values": [str(data_dir), f"{data_dir}/../data"]}}
    noted = planned(space=choice, base={"train_subset": "other"}).facts()["data"]
    folders = (data_dir, f"{data_dir}/../data")
    assert set(noted) == {f"{folder}/{split}.pt" for folder in folders for split in ("other", "dev")}
    assert len(set(noted.values())) == 2


@pytest.mark.parametrize(
    ("most", "told"),
    [
        (3, "the grid has 12 points, of which max_trials allows the first 3, with one value of hidden_size, dropout."),
        (6, "the grid has 12 points, of which max_trials allows the first 6, with one value of hidden_size."),
        (11, "the grid has 12 points, of which max_trials allows the first 11. Raise max_trials"),
        (12, ""),
    ],
)
def test_a_grid_that_is_cut_off_is_told(planned: Callable[..., Plan], most: int, told: str) -> None:
    space = {"hidden_size": {"type": "int", "values": [8, 9]}, "dropout": {"type": "float", "values": [0, 0.5]}}
    space |= {"seed": {"type": "categorical", "values": [1, 2, 3]}}
    plan = planned(space=space, tuner="grid", max_trials=most, float_samples=2)
    assert [told in doubt for doubt in plan.doubts()] == [True] * bool(told)


@pytest.mark.parametrize(("startup", "told"), [(3, True), (2, False)])
def test_a_model_that_never_proposes_is_told(planned: Callable[..., Plan], startup: int, told: bool) -> None:
    pytest.importorskip("optuna")
    doubts = [*planned(tuner="tpe", startup_trials=startup, max_trials=3).doubts()]
    assert ["all 3 trials are random: tpe begins after startup_trials" in doubt for doubt in doubts] == [True] * told


@pytest.mark.parametrize("log", [False, True])
def test_an_end_that_no_step_reaches_is_told(planned: Callable[..., Plan], log: bool) -> None:
    space = {"hidden_size": {"type": "int", "values": [8, 33], "step": 2 if log else 8, "log": log}}
    assert [*planned(space=space).doubts()] == [
        f"hidden_size is at most 32: from 8 by step {2 if log else 8}, 33 is not reached."
    ]


@pytest.mark.parametrize(("warmup", "swa", "found"), [(4, 6, (8, 12)), (0.1, 0.5, (0.1, 0.5)), (0, None, (0, None))])
def test_the_updates_of_a_schedule_are_as_many_samples_in_each_trial(
    planned: Callable[..., Plan], warmup: float, swa: float | None, found: tuple[float, float | None]
) -> None:
    plan = planned(base={"warmup_steps": warmup, "swa_start": swa})
    (run,) = plan.runs_of(0, {"learning_rate": 0.5, "batch_size": 8})
    assert (run.values["warmup_steps"], run.values["swa_start"]) == found
    (same,) = plan.runs_of(0, {"learning_rate": 0.5, "batch_size": 16})
    assert (same.values["warmup_steps"], same.values["swa_start"]) == (warmup, swa)


def test_the_base_counts_its_updates_with_its_own_update_freq(planned: Callable[..., Plan]) -> None:
    plan = planned(space={"update_freq": {"type": "int", "values": [1, 4]}})
    assert (plan.length.per_update, plan.budget.total) == (16, 12 * 16)
    assert [run.values["eval_interval"] for run in plan.runs_of(0, {"update_freq": 2})] == [2]
    assert [*plan.doubts()] == []


@pytest.mark.parametrize(
    ("values", "found"),
    [({"batch_size": 8, "update_freq": 1}, (24, 8, 0.5)), ({"batch_size": 8, "update_freq": 2}, (12, 4, 0.5)),
     ({"batch_size": 16, "update_freq": 4}, (3, 1, 0.25))],
)  # fmt: skip
def test_relative_numbers_of_updates_follow_update_freq_too(
    planned: Callable[..., Plan], values: dict[str, int], found: tuple[int, int, float]
) -> None:
    space = {"batch_size": {"type": "categorical", "values": [8, 16]}, "update_freq": {"type": "int", "values": [1, 4]}}
    base = {"max_update": "@{batch_size:16}/12", "eval_interval": "@{batch_size:16}/4"}
    plan = planned(space=space, base={**base, "warmup_steps": "@{batch_size:16}/0.25"})
    (run,) = plan.runs_of(0, values)
    assert tuple(run.values[key] for key in ("max_update", "eval_interval", "warmup_steps")) == found


def test_updates_of_a_base_without_a_batch_size_are_told(planned: Callable[..., Plan]) -> None:
    plan = planned(base={"batch_size": None})
    assert ["has no batch_size: keys that count updates" in doubt for doubt in plan.doubts()] == [True]


def test_a_schedule_that_a_trial_has_not_gets_no_key(planned: Callable[..., Plan]) -> None:
    space = {"batch_size": {"type": "categorical", "values": [8, 16]}}
    space |= {"lr_scheduler": {"type": "categorical", "values": ["one_cycle", "constant"]}}
    space |= {"warmup_steps": {"type": "categorical", "values": [2, 4], "when": {"lr_scheduler": "one_cycle"}}}
    plan = planned(space=space)
    (run,) = plan.runs_of(0, {"batch_size": 8, "lr_scheduler": "constant"})
    assert "warmup_steps" not in run.values
    (run,) = plan.runs_of(0, {"batch_size": 8, "lr_scheduler": "one_cycle", "warmup_steps": 4})
    assert run.values["warmup_steps"] == 4


def test_a_base_config_may_take_a_searched_key_from_a_macro(planned: Callable[..., Plan]) -> None:
    base = {"__def__": {"learning_rate": 0.1}, "learning_rate": "${learning_rate}", "save_dir": "out/${learning_rate}"}
    plan = planned(base=base)
    assert [run.values["learning_rate"] for run in plan.runs_of(0, {"learning_rate": 0.5, "batch_size": 8})] == [0.5]


def test_a_parameter_may_depend_on_a_choice_other_than_that_of_the_base_config(planned: Callable[..., Plan]) -> None:
    space = {
        "loss": {"type": "categorical", "values": ["cross_entropy", "label_smooth_ce"]},
        "smoothing": {"type": "float", "values": [0.1, 0.3], "when": {"loss": "label_smooth_ce"}},
    }
    assert planned(space=space).space.names == ["loss", "smoothing"]


def test_data_with_other_held_out_rows_are_told_of(
    planned: Callable[..., Plan], data_dir: Path, tmp_path: Path
) -> None:
    shutil.copytree(data_dir, tmp_path / "small")
    meta = hjson.loads((tmp_path / "small/meta.hjson").read_text())
    (tmp_path / "small/meta.hjson").write_text(hjson.dumps({**meta, "data_size": {**meta["data_size"], "dev": 7}}))
    both = [str(data_dir), str(tmp_path / "small")]
    plan = planned(space={"data_dir": {"type": "categorical", "values": both}}, base={"__parent__": "${data_dir}/meta"})
    assert [f"40 in {both[0]}, 7 in {both[1]}" in doubt for doubt in plan.doubts()] == [True]
