"""What a search leaves: whose weights are removed at its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from xdpx.search.trials import Result
from xdpx.tuning.outputs import _reference, finish, prune
from xdpx.tuning.plan import Plan


def test_the_weights_of_a_failed_trial_are_removed_however_good_its_score_was(
    planned: Callable[..., Plan], tmp_path: Path
) -> None:
    plan = planned(save_above_score=0.5, max_trials=2)
    search = plan.search()
    total = plan.budget.total
    search.tell(Result(0, total, None, [(total // 2, 0.9)], ended=True, note="diverged"))
    search.tell(Result(1, total, 0.8))
    for trial in range(2):
        (tmp_path / f"tuned/trial_{trial}").mkdir(parents=True)
        (tmp_path / f"tuned/trial_{trial}/checkpoint-8.pt").touch()
    prune(plan, search)
    assert not (tmp_path / "tuned/trial_0/checkpoint-8.pt").exists()
    assert (tmp_path / "tuned/trial_1/checkpoint-8.pt").exists()


def test_it_is_said_that_every_trial_failed_though_one_has_a_score(
    planned: Callable[..., Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(max_trials=2)
    search, total = plan.search(), plan.budget.total
    for order in search.ready():
        search.tell(Result(order.number, total, None, [(total // 2, 0.9)], ended=True, note="diverged"))
    (tmp_path / "tuned").mkdir()
    finish(plan, search)
    assert "no trial came to its end: all 2 failed" in capsys.readouterr().err


def test_a_reference_is_read_by_the_metric_of_the_search_and_named_if_it_lacks_it(
    planned: Callable[..., Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/args.py").write_text(repr({"batch_size": 16, "major_metric": "loss", "ascending_metric": False}))
    rows = "epoch\tstep\tvalid_acc\tvalid_loss\tbest_score\n1\t4\t0.5\t0.6\t0.6\n1\t8\t0.7\t0.8\t0.6\n"
    (tmp_path / "other/valid.log.tsv").write_text(rows)
    assert _reference(str(tmp_path / "other"), plan) == [(64, 0.5), (128, 0.7)]
    assert "has no evaluation" not in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert _reference(str(tmp_path / "empty"), plan) == []
    assert "has no evaluation with acc" in capsys.readouterr().err
