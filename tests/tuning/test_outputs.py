"""What a search leaves: whose weights are removed at its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from xdpx.search.trials import Result
from xdpx.tuning.outputs import prune
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
