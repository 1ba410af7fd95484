"""A search from start to end: its tables and figures, its end by a signal, its trials that fail."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev

import pytest

import xdpx
from xdpx.run import main

Words = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def _as_users_start_them(search: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork trials off a server, as users do: forked off this process, they inherit what its other threads locked."""
    monkeypatch.setattr("xdpx.tuning.executors.local.START", "forkserver")


def rows_of(path: Path) -> list[dict[str, str]]:
    header, *lines = path.read_text().splitlines()
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def test_a_search_leaves_tables_figures_and_a_config_that_trains(search: Words, tmp_path: Path) -> None:
    assert main(search(save_above_score=0.0, cull_keep_ratio=0.4)) == 0
    tuned = tmp_path / "tuned"
    rows = rows_of(tuned / "results.tsv")
    assert [float(row["score"]) for row in rows] == sorted((float(row["score"]) for row in rows), reverse=True)
    assert {row["state"] for row in rows} == {"finished", "culled"}
    assert {row["decision"] for row in rows_of(tuned / "decisions.tsv")} >= {"begun", "culled", "promoted", "finished"}
    assert (tuned / "overview.png").read_bytes().startswith(b"\x89PNG")
    status = json.loads((tuned / "status.json").read_text())
    assert status["status"] == "finished"
    assert Path(status["best_weights"][0]).is_file()
    assert main(["x-viz", "save_dir=" + str(tuned / "trial_0")]) == 0
    assert main(["x-train", str(tuned / "best.hjson"), "plots=false"]) == 0
    assert json.loads((tuned / "best/status.json").read_text())["best_score"] == pytest.approx(status["best_score"])
    before = (tuned / "decisions.tsv").read_text()
    assert main(["x-tune", str(tmp_path / "tune.json")]) == 0  # has nothing left to do
    assert (tuned / "decisions.tsv").read_text() == before


def test_a_search_with_other_values_does_not_go_on_in_the_same_folder(
    search: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(search(max_trials=1, schedule="full", assess_interval=None)) == 2  # no key of full
    (tmp_path / "tune.json").write_text(json.dumps(without(tmp_path / "tune.json", "assess_interval")))
    assert main(["x-tune", str(tmp_path / "tune.json")]) == 0
    capsys.readouterr()
    assert main(["x-tune", str(tmp_path / "tune.json"), "--dry"]) == 0
    told = capsys.readouterr().out
    assert "nothing is stored" not in told
    assert f"continues the search in {tmp_path}/tuned" in told
    for words in (["seed=2"], ["seed=2", "--dry"]):
        assert main(["x-tune", str(tmp_path / "tune.json"), *words]) == 2
        assert (
            f"seed (command line): is 2, but the search in {tmp_path}/tuned was started with 1."
            in capsys.readouterr().err
        )


def without(path: Path, key: str) -> dict[str, object]:
    return {name: value for name, value in json.loads(path.read_text()).items() if name != key}


def test_a_signal_stops_the_trials_and_the_same_command_goes_on(search: Words, tmp_path: Path) -> None:
    words = search(base={"max_update": 2000, "eval_interval": 500, "log_interval": 500}, max_trials=2, parallel_runs=2)
    words += ["assess_interval=500"]

    def interrupt() -> None:
        while not list(tmp_path.glob("tuned/trial_*/train.log.tsv")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert main(words) == 85
    thread.join()
    assert json.loads((tmp_path / "tuned/status.json").read_text())["status"] == "preempted"
    states = {json.loads(path.read_text())["status"] for path in tmp_path.glob("tuned/trial_*/status.json")}
    assert states <= {"preempted", "finished"}


def test_failed_trials_are_named_and_do_not_end_the_search(
    search: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"learning_rate": {"type": "categorical", "values": [1e38, 0.01]}}
    assert main(search(space=space, base={"clip_norm": 0}, tuner="grid", max_trials=2, parallel_runs=2)) == 0
    failed = next(row for row in rows_of(tmp_path / "tuned/results.tsv") if row["state"] == "failed")
    assert "diverged" in failed["why"]
    space = {"learning_rate": {"type": "categorical", "values": [1e38, 2e38]}}
    words = search(space=space, base={"clip_norm": 0}, tuner="grid", max_trials=2, parallel_runs=2)
    assert main([*words, f"save_dir={tmp_path}/second"]) == 2
    assert "all 2 failed" in capsys.readouterr().err
    status = json.loads((tmp_path / "second/status.json").read_text())
    assert status["status"] == "failed"
    assert "all 2 failed" in status["reason"]


def test_a_trial_of_folds_and_seeds_from_python_has_their_mean_and_its_interval(search: Words, tmp_path: Path) -> None:
    words = search(schedule="full", folds=True, seeds=[1, 2], max_trials=1)
    base = json.loads((tmp_path / "train.json").read_text())
    base["__parent__"] = [base["__parent__"], [{"train_subset": "train"}, {"train_subset": "other"}]]
    (tmp_path / "train.json").write_text(json.dumps(base))
    (tmp_path / "tune.json").write_text(json.dumps(without(tmp_path / "tune.json", "assess_interval")))
    found = xdpx.tune(words[1])
    [row] = rows_of(tmp_path / "tuned/results.tsv")
    logs = sorted((tmp_path / "tuned/trial_0").glob("fold_*.seed_*/valid.log.tsv"))
    at_steps = list(zip(*([float(line["valid_acc"]) for line in rows_of(log)] for log in logs), strict=True))
    best = max(at_steps, key=fmean)
    assert len(best) == 4
    assert found.score == pytest.approx(fmean(best))
    reach = 12.706 * stdev([fmean(best[:2]), fmean(best[2:])]) / 2**0.5  # of Student, over the two folds
    ends = [float(row[name]) for name in ("score", "low", "high")]
    low, high = max(0.0, fmean(best) - reach), min(1.0, fmean(best) + reach)  # an accuracy is between 0 and 1
    assert ends == pytest.approx([fmean(best), low, high], abs=1e-3)
    assert found.trial == 0
    assert found.values == {name: pytest.approx(float(row[name])) for name in ("learning_rate", "batch_size")}
