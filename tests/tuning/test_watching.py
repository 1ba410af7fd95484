"""What the user sees of a search while it is at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from xdpx.tuning.plan import Plan
from xdpx.tuning.watching import Watch


def test_what_a_trial_warns_of_is_told_by_the_search(
    planned: Callable[..., Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned()
    search = plan.search()
    runs = plan.runs_of(0, search.ready()[0].values)
    stages = plan.stages_of(runs, 0, plan.budget.total)
    Watch(plan, search).warned(stages)  # there is no log yet
    Path(stages[0].folder).mkdir(parents=True)
    text = (
        "| 2026-01-02T03:04:05+00:00 warning: valid_subset: 'dev' is trained on too\n| 2026 step 4: no warning: said\n"
    )
    Path(stages[0].folder, "log.txt").write_text(text)
    Watch(plan, search).warned(stages)
    assert capsys.readouterr().err.count("warning: ") == 1
