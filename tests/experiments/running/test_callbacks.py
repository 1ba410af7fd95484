import gc
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

from tests.tiers import some
from xdpx.checkpoints.folders import ALONE
from xdpx.engines.rounding import UPDATES
from xdpx.engines.spmd.pgle import Pgle, newest_run
from xdpx.experiments.running.callbacks import (
    CollectingGarbage,
    Profiling,
    Rounding,
    SkippingAccumulator,
    StoppingEarly,
)
from xdpx.training.accumulation import Diverged
from xdpx.training.loop import Step
from xdpx.training.progress import Progress
from xdpx.utils import io


class Engine:
    def facts_to_host(self, facts: Any) -> Any:
        return {name: float(value) for name, value in facts.items()}


def step(number: int) -> Step:
    return Step(number, {}, {}, SimpleNamespace(epoch=1, group=number))  # type: ignore[arg-type]


def test_updates_that_were_skipped_are_counted_and_others_that_are_no_numbers_end_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    accumulator = SkippingAccumulator(Engine().facts_to_host, windows=("log",))
    accumulator.add(1, {"loss_sum": 2.0, "count": 1.0, "grad_norm": 1.0, "skipped": 0.0})
    accumulator.add(2, {"loss_sum": float("nan"), "count": 1.0, "grad_norm": float("nan"), "skipped": 1.0})
    window = accumulator.take("log")
    assert (window.ratio("loss_sum", "count"), window.sums["skipped"], window.num_updates) == (2.0, 1.0, 2)
    accumulator.add(3, {"loss_sum": 0.0, "count": 0.0, "grad_norm": 0.0, "skipped": 0.0})
    accumulator.take("log")
    assert "an update has no rows that count, as all weights of its batches are 0" in capsys.readouterr().err
    accumulator.add(3, {"loss_sum": float("nan"), "count": 1.0, "grad_norm": 1.0, "skipped": 0.0})
    with pytest.raises(Diverged, match="step 3"):
        accumulator.take("log")


def test_a_loss_without_gradient_is_told_of_but_not_a_single_update_without(
    capsys: pytest.CaptureFixture[str],
) -> None:
    accumulator = SkippingAccumulator(Engine().facts_to_host, windows=("log",))
    for number, norm in enumerate((0.0, 0.0, 1.0, 0.0, 0.0), start=1):
        accumulator.add(number, {"loss_sum": 2.0, "count": 1.0, "grad_norm": norm, "skipped": 0.0})
    accumulator.take("log")
    assert "gradient" not in capsys.readouterr().err
    accumulator.add(6, {"loss_sum": 2.0, "count": 1.0, "grad_norm": 0.0, "skipped": 0.0})
    accumulator.take("log")
    assert "the gradient was exactly 0 in 3 updates in a row, up to step 6" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "rate", "told"),
    [("bfloat16", 1e-5, True), ("bfloat16", 0.01, False), ("bfloat16", 0.0, False), ("float32", 1e-5, False)],
)
def test_updates_that_rounding_undoes_are_told_of(
    kind: str, rate: float, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = SimpleNamespace(trained=lambda weights: set(weights) - {"frozen"})
    task = SimpleNamespace(learner=learner, model=None)
    rounding = Rounding(SimpleNamespace(task=task, engine=Engine()))  # type: ignore[arg-type]
    params = {"w": jnp.linspace(0.1, 1.0, 5000).reshape(50, 100), "b": jnp.ones(3), "frozen": jnp.ones(9)}
    params = {name: weight.astype(kind) for name, weight in params.items()}
    facts = {"learning_rate": jnp.float32(rate), "applied_grad_norm": jnp.float32(rate)}
    rounding.on_start(SimpleNamespace(number=7, state={"params": params}))  # type: ignore[arg-type]
    for number in range(8, 7 + UPDATES + 5):
        params = {name: weight - (name != "frozen") * jnp.asarray(rate, kind) for name, weight in params.items()}
        rounding.on_step(
            SimpleNamespace(),  # type: ignore[arg-type]
            Step(number, {"params": params}, facts, SimpleNamespace()),  # type: ignore[arg-type]
        )
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("rounding undoes updates: after 100 of them with a learning rate that is 1e-05 now") == told


@pytest.mark.parametrize(("kind", "told"), [(jnp.float16, 1), (jnp.bfloat16, 0), ("float32", 0)])
def test_computing_in_float16_is_told_of(kind: Any, told: int, capsys: pytest.CaptureFixture[str]) -> None:
    learner = SimpleNamespace(trained=lambda weights: set(weights))
    task = SimpleNamespace(learner=learner, model=SimpleNamespace(compute_dtype=kind))
    callback = Rounding(SimpleNamespace(task=task, engine=Engine()))  # type: ignore[arg-type]
    callback.on_start(SimpleNamespace(number=0, state={"params": {"w": jnp.ones(3)}}))  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("is float16, and there is no loss scale") == told


def test_garbage_is_collected_at_its_updates_only() -> None:
    callback, session = CollectingGarbage(2), SimpleNamespace()
    try:
        callback.on_start(session)  # type: ignore[arg-type]
        assert not gc.isenabled()
        callback.on_step(session, step(2))  # type: ignore[arg-type]
    finally:
        callback.close()
    assert gc.isenabled()


@pytest.mark.parametrize("after", [0, 1])
def test_a_trace_of_some_updates_is_written(tmp_path: Any, after: int) -> None:
    train = SimpleNamespace(profiler_capture_step=after, profiler_num_steps=1, profiler_min_duration_sec=0.0)
    options = SimpleNamespace(profile_guided=Pgle())
    profiling = Profiling(SimpleNamespace(train=train, folder=str(tmp_path), options=options))  # type: ignore[arg-type]
    session: Any = SimpleNamespace(state=jnp.ones(2), progress=Progress())
    profiling.on_start(session)
    profiling.on_step(session, step(1))
    (session.state * 2).block_until_ready()
    profiling.on_step(session, step(2))
    assert list(tmp_path.rglob("*.xplane.pb"))
    profiling.on_end(session, SimpleNamespace())  # type: ignore[arg-type]


def test_the_task_is_asked_after_each_evaluation_only() -> None:
    asked = []

    def ask(metrics: Any, mode: str, number: int, last: bool, path: str) -> bool:
        asked.append((mode, number, last))
        return False

    parts: Any = SimpleNamespace(task=SimpleNamespace(early_stopping=ask), folder="")
    evaluating: Any = SimpleNamespace(step=4, results={})
    decoding: Any = SimpleNamespace(step=-1, results={})
    session: Any = SimpleNamespace(until=8, total=8, progress=Progress())
    callback = StoppingEarly(parts, evaluating, decoding, ALONE)
    for number in (3, 4, 5):
        assert callback.on_step(session, step(number)) is None
    assert asked == [("eval", 4, False)]


@pytest.mark.parametrize("any_root", some(["local", "memory", "s3"], ["memory"]), indirect=True)
def test_pgle_traces_updates_after_the_first_into_a_job_folder_anywhere(any_root: str) -> None:
    train = SimpleNamespace(profiler_capture_step=None, profiler_num_steps=1, profiler_min_duration_sec=0.0)
    options = SimpleNamespace(profile_guided=Pgle("profile"))
    profiling = Profiling(SimpleNamespace(train=train, folder=any_root, options=options))  # type: ignore[arg-type]
    session = SimpleNamespace(state=jnp.ones(2), until=12, progress=SimpleNamespace(num_updates=3))
    profiling.on_start(session)  # type: ignore[arg-type]
    for number in range(4, 13):
        profiling.on_step(session, step(number))  # type: ignore[arg-type]
    assert newest_run(any_root).startswith(io.join(any_root, "summaries/train/plugins/profile/"))
