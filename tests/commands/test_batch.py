from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from xdpx.commands import batch
from xdpx.config.loading import Run, fingerprint, load
from xdpx.config.user_modules import load_user_modules


@pytest.fixture
def loop(desk: Path) -> list[Run]:
    load_user_modules()
    return load("loop", "x-draw")


def test_the_runs_of_a_loop_are_all_done_and_a_table_ends_them(
    loop: list[Run], capfd: pytest.CaptureFixture[str]
) -> None:
    assert batch.run_all(loop) == 0
    assert [Path(f"out/{side}/picture.txt").exists() for side in (3, 4, 5)] == [True] * 3
    rows = [line.split()[:3] for line in capfd.readouterr().err.splitlines()[-3:]]
    assert rows == [["1", "side=3", "finished"], ["2", "side=4", "finished"], ["3", "side=5", "finished"]]


def test_what_finished_before_is_skipped_when_started_again(loop: list[Run]) -> None:
    batch.run_all(loop[:2])
    assert [batch.has_finished(run) for run in loop] == [True, True, False]
    before = Path("out/3/picture.txt").stat().st_mtime_ns
    assert batch.run_all(load("loop", "x-draw", inspect=batch.inspect)) == 0
    assert Path("out/3/picture.txt").stat().st_mtime_ns == before
    assert Path("out/5/picture.txt").exists()


def test_a_run_with_other_values_or_overwrite_is_not_taken_as_finished(loop: list[Run]) -> None:
    batch.run_all(loop[:2])
    assert not batch.has_finished(load("loop", "x-draw", ["dropout=0.5"])[0])
    assert not batch.has_finished(load("loop", "x-draw", ["overwrite=true"])[0])
    assert batch.has_finished(load("loop", "x-draw", ["resume=true"])[0])


def test_a_stage_of_training_has_finished_itself_but_not_the_stage_after_it(loop: list[Run]) -> None:
    run = loop[0]
    Path("out/3").mkdir(parents=True)
    status = {"status": "finished", "fingerprint": fingerprint(run), "step": 5, "total_steps": 10, "train_steps": 5}
    Path("out/3/status.json").write_text(json.dumps(status))
    same_stage = replace(run, values={**run.values, "train_steps": 5})
    assert batch.has_finished(same_stage)
    assert not batch.has_finished(run)
    assert not batch.has_finished(replace(same_stage, values={**same_stage.values, "resume": True}))
    assert batch.has_finished(replace(same_stage, values={**same_stage.values, "resume": "auto"}))


def test_a_damaged_status_is_not_taken_as_finished(loop: list[Run]) -> None:
    Path("out/3").mkdir(parents=True)
    for text in ("{", "[]", '{"status": "finished"}'):
        Path("out/3/status.json").write_text(text)
        assert not batch.has_finished(loop[0])


def test_a_failure_stops_the_loop_unless_told_to_keep_going(loop: list[Run], capfd: pytest.CaptureFixture[str]) -> None:
    runs = load("loop", "x-draw", ["mishap=preempted"])
    assert batch.run_all(runs) == 85
    assert [line.split()[2] for line in capfd.readouterr().err.splitlines()[-3:]] == ["preempted", "not", "not"]
    assert batch.run_all(runs, keep_going=True) == 85
    assert [line.split()[2] for line in capfd.readouterr().err.splitlines()[-3:]] == ["preempted"] * 3


def test_a_run_that_reads_what_earlier_ones_write_is_begun_when_they_have_ended(loop: list[Run]) -> None:
    waiting = replace(loop[2], awaits=True)
    pool = batch._Pool([], 3, keep_going=False, verbose=False)
    assert [pool._room_for(run) for run in (loop[1], waiting)] == [3, 1]


def test_a_run_that_is_killed_is_told_with_its_signal(desk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_user_modules()
    assert batch.run_all(load("loop", "x-draw", ["mishap=killed"])) == 137
    assert "killed by SIGKILL" in capfd.readouterr().err


def test_runs_at_the_same_time_share_the_threads_and_mark_their_lines(
    loop: list[Run], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert batch.run_all(loop, jobs=2) == 0
    lines = capfd.readouterr().out.splitlines()
    assert sorted(line[:11] for line in lines) == ["[1] drawing", "[2] drawing", "[3] drawing"]
    threads = max(1, (os.cpu_count() or 1) // 2)
    assert all(line.endswith(f"with {threads} threads") for line in lines)


def start_waiting(words: list[str]) -> subprocess.Popen[str]:
    """Start the door on runs that wait, and return when one of them does."""
    command = [sys.executable, "-c", "import sys; from xdpx.run import main; sys.exit(main())", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    while "waiting" not in process.stdout.readline():
        assert process.poll() is None
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_table_still_comes(desk: Path, number: signal.Signals) -> None:
    process = start_waiting(["x-draw", "loop", "mishap=wait"])
    process.send_signal(number)
    _, told = process.communicate(timeout=300)
    assert process.returncode in {85, 130}
    assert told.count("not started") == 2


def test_runs_end_when_the_process_that_started_them_is_killed(desk: Path) -> None:
    process = start_waiting(["x-draw", "loop", "mishap=wait"])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate(timeout=300)
    deadline = time.monotonic() + 300
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_the_table_says_what_sets_each_run_apart(loop: list[Run]) -> None:
    results = [batch.Outcome(run, "finished", 1.25, 0) for run in loop]
    Path("out/3").mkdir(parents=True)
    Path("out/3/status.json").write_text(json.dumps({"best_score": 0.91234}))
    lines = batch.table(results).splitlines()[1:]
    assert lines[0].split() == ["run", "what", "varies", "status", "seconds", "best", "score"]
    assert lines[1].split() == ["1", "side=3", "finished", "1.2", "0.9123"]
    assert lines[2].split() == ["2", "side=4", "finished", "1.2", "-"]


def test_the_table_has_no_scores_where_nothing_is_scored(loop: list[Run]) -> None:
    lines = batch.table([batch.Outcome(run, "finished", 1.25, 0) for run in loop]).splitlines()[1:]
    assert lines[0].split() == ["run", "what", "varies", "status", "seconds"]
    assert lines[1].split() == ["1", "side=3", "finished", "1.2"]
