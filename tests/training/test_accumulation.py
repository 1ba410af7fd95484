import json
from math import inf, nan
from typing import Any

import pytest
import torch

from xdpx.reports.windows import Stopwatch
from xdpx.training.accumulation import LOOKED_AT, PENDING_AT_MOST, Diverged, MetricAccumulator


def facts(loss: float, **more: float) -> dict[str, float]:
    return {"loss_sum": loss, "count": 2.0, **more}


def test_each_reader_empties_its_own_window(engine: Any) -> None:
    accumulator = MetricAccumulator(engine.facts_to_host, windows=("log", "evaluation"))
    accumulator.add(1, facts(1.0))
    assert accumulator.take("log").ratio("loss_sum", "count") == 0.5
    accumulator.add(2, facts(5.0))
    assert accumulator.take("log").ratio("loss_sum", "count") == 2.5
    assert accumulator.take("evaluation").ratio("loss_sum", "count") == 1.5


def test_sums_do_not_depend_on_where_they_were_interrupted(engine: Any) -> None:
    losses = [0.1 * number for number in range(20)]
    straight, first, second = (MetricAccumulator(engine.facts_to_host, windows=("log",)) for _ in range(3))
    for number, loss in enumerate(losses):
        straight.add(number, facts(loss))
        (first if number < 7 else second).add(number, facts(loss))
        if number == 6:
            second.load_state_dict(first.state_dict())
    assert second.take("log").sums == straight.take("log").sums


def test_facts_that_were_still_on_the_device_are_entered_after_a_restart(engine: Any) -> None:
    straight, first, second = (MetricAccumulator(engine.facts_to_host, windows=("log",)) for _ in range(3))
    for each in (straight, first):
        for number in range(1, 4):
            each.add(number, {name: torch.tensor(value) for name, value in facts(0.1 * number).items()})
            each.record("entropy", torch.tensor(0.7))
            if number == 1:
                each.settle()
    saved = first.state_dict()
    told = [[number, {name: float(value) for name, value in each.items()}] for number, each in saved["pending"]]
    assert [number for number, _ in told] == [2, 3]
    sums = {name: [float(total), count] for name, (total, count) in saved["recorded"].items()}
    second.load_state_dict(json.loads(json.dumps({**saved, "pending": told, "recorded": sums})))
    assert (second.peek("log").sums, second.last) == (straight.peek("log").sums, straight.last)
    assert second.take("log").recorded == straight.take("log").recorded == first.take("log").recorded


@pytest.mark.parametrize("bad", [facts(nan), facts(inf), facts(1.0, grad_norm=nan)])
def test_a_number_that_is_none_stops_with_its_step_and_what_was_before(engine: Any, bad: dict[str, float]) -> None:
    accumulator = MetricAccumulator(engine.facts_to_host, windows=("log",))
    accumulator.add(6, facts(1.5))
    accumulator.add(7, bad)
    with pytest.raises(Diverged, match=r"step 7 .*\n?.*loss_sum 1\.5"):
        accumulator.settle()


def test_a_skipped_update_under_fp16_is_no_divergence(engine: Any) -> None:
    accumulator = MetricAccumulator(engine.facts_to_host, windows=("log",), tolerated=("grad_norm",))
    accumulator.add(1, facts(1.0, grad_norm=inf))
    accumulator.add(2, facts(1.0, grad_norm=4.0))
    assert accumulator.take("log").mean("grad_norm") == 2.0


def test_a_metric_that_is_infinite_once_is_not_told_as_finite(engine: Any) -> None:
    accumulator = MetricAccumulator(engine.facts_to_host, windows=("log",))
    accumulator.add(1, facts(1.0, perplexity=inf))
    accumulator.add(2, facts(1.0, perplexity=4.0))
    assert accumulator.take("log").mean("perplexity") == inf


@pytest.mark.parametrize("before", [0, PENDING_AT_MOST - 2])
def test_updates_are_counted_that_were_taken_although_loss_or_gradient_is_not_finite(engine: Any, before: int) -> None:
    accumulator = MetricAccumulator(engine.facts_to_host, windows=("log",), tolerated=LOOKED_AT)
    for number in range(before):
        accumulator.add(number, facts(1.0, grad_norm=1.0))
    bad = [facts(nan, grad_norm=1.0), facts(1.0, grad_norm=inf), facts(1.0, grad_norm=inf, skipped=1.0), facts(1.0)]
    for number, each in enumerate(bad, before):
        accumulator.add(number, each)
    assert accumulator.take("log").nonfinite == [before, before + 1]
    assert accumulator.take("log").nonfinite == []


def test_what_is_recorded_between_updates_is_given_once_with_its_count(engine: Any) -> None:
    accumulator = MetricAccumulator(engine.facts_to_host, windows=("log",))
    for value in (1.0, torch.tensor(3.0, requires_grad=True), torch.tensor(5.0)):
        accumulator.record("entropy", value)
    accumulator.settle()
    accumulator.record("entropy", 1)
    assert accumulator.take("log").recorded == {"entropy": (10.0, 4)}
    assert accumulator.take("log").recorded == {}


def test_facts_do_not_wait_without_end(engine: Any) -> None:
    accumulator = MetricAccumulator(engine.facts_to_host, windows=("log",))
    for number in range(PENDING_AT_MOST - 1):
        accumulator.add(number, facts(nan))
    with pytest.raises(Diverged):
        accumulator.add(PENDING_AT_MOST, facts(1.0))


def test_what_is_done_while_paused_is_not_counted() -> None:
    times = iter([0.0, 10.0, 40.0, 45.0])
    watch = Stopwatch(lambda: next(times))
    watch.start()
    with watch.paused():
        pass
    assert watch.lap() == 15.0


def test_what_is_settled_before_a_pause_is_not_charged_with_it() -> None:
    now = [0.0]
    watch = Stopwatch(lambda: now[0])
    watch.start()
    now[0] = 2.0
    trained = watch.lap()
    with watch.paused():
        now[0] = 12.0
    now[0] = 13.0
    assert (trained, watch.lap()) == (2.0, 1.0)


def test_many_values_in_half_precision_have_their_mean(engine: Any) -> None:
    accumulator = MetricAccumulator(engine.facts_to_host, windows=("log",))
    for _ in range(1000):
        accumulator.record("extra", torch.tensor(1.0, dtype=torch.bfloat16))
    assert accumulator.take("log").recorded == {"extra": (1000.0, 1000)}
