from __future__ import annotations

from types import SimpleNamespace

from xdpx.reports.trackers.calling import Calling


def test_the_function_gets_a_copy_of_what_is_logged_and_the_step_on_the_first_process():
    heard, logs = [], {"loss": 1.0}
    for first in (True, False):
        state = SimpleNamespace(is_world_process_zero=first, global_step=9)
        Calling(lambda values, step: heard.append((values, step))).on_log(None, state, None, logs=logs)
    assert heard == [({"loss": 1.0}, 9)]
    assert heard[0][0] is not logs
