import os
import time
from pathlib import Path

import pytest

from xdpx.reports.aggregation import aggregate, differing_settings, find_runs


def age(run, seconds=3600):
    for path in Path(run).iterdir():
        os.utime(path, (time.time() - seconds,) * 2)
    return run


def test_the_best_row_of_each_run_comes_with_score_and_step_first(make_run):
    row = aggregate([age(make_run())])[0]
    assert list(row)[:3] == ["run", "best_score", "step"]
    assert (row["best_score"], row["step"], row["valid_f1_1"]) == (0.9, 200, 0.8)


def test_a_run_being_written_is_starred(make_run):
    live, done = make_run("live"), age(make_run("done"))
    assert [row["run"] for row in aggregate([live, done])] == [f"*{live}", done]


def test_full_sorts_by_score_and_adds_speed_and_what_differs(make_run):
    low = age(make_run("low", scores=(0.1,), learning_rate=1e-3))
    high = age(make_run("high", scores=(0.7,), learning_rate=1e-4))
    rows = aggregate([low, high], full=True)
    assert [row["run"] for row in rows] == [high, low]
    assert (rows[0]["learning_rate"], rows[0]["ups"], rows[0]["train_wall"]) == (1e-4, 10, 5)
    assert "batch_size" not in rows[0]


def test_full_puts_the_lowest_first_where_lower_is_better(make_run):
    options = {"ascending_metric": False, "major_metric": "loss"}
    worse, better = age(make_run("worse", scores=(0.1,), **options)), age(make_run("better", scores=(0.7,), **options))
    assert [row["run"] for row in aggregate([worse, better], full=True)] == [better, worse]


def test_full_puts_the_best_first_of_each_metric_where_runs_have_different_ones(make_run):
    low, high = age(make_run("low", scores=(0.1,))), age(make_run("high", scores=(0.7,)))
    loss = age(make_run("loss", scores=(0.5,), ascending_metric=False, major_metric="loss"))
    assert [row["run"] for row in aggregate([low, loss, high], full=True)] == [high, low, loss]


def test_runs_are_found_at_any_depth_and_keywords_must_all_be_in_the_path(make_run, tmp_path):
    make_run("a/lr1"), make_run("a/deep/lr2"), make_run("b/lr1")
    assert find_runs([str(tmp_path)], ["lr"]) == [str(tmp_path / name) for name in ("a/deep/lr2", "a/lr1", "b/lr1")]
    assert find_runs([str(tmp_path / "a")], ["lr", "deep"]) == [str(tmp_path / "a/deep/lr2")]
    with pytest.raises(FileNotFoundError, match="no such folder"):
        find_runs([str(tmp_path / "nowhere")])


def test_a_run_below_several_roots_is_found_once(make_run, tmp_path, monkeypatch):
    make_run("a/lr1")
    monkeypatch.chdir(tmp_path)
    assert find_runs([".", "./a", str(tmp_path)]) == ["./a/lr1"]


def test_settings_that_say_where_a_run_ran_are_not_compared():
    left, right = {"save_dir": "a", "lr": 1, "seed": 1}, {"save_dir": "b", "lr": 2, "seed": 1, "ema": 0.9}
    assert differing_settings([left, right]) == ["lr", "ema"]
    assert differing_settings([]) == []
