from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.logger import log
from xdpx.reports.growing_table import GrowingTable
from xdpx.training.accumulation import MetricAccumulator
from xdpx.training.callbacks.evaluating import EVALUATION, Evaluating, EvaluationPlan, score_of
from xdpx.training.callbacks.logging import LOG, Logging
from xdpx.training.loop import Callback, Session, Step, fit
from xdpx.training.progress import Progress


@pytest.mark.parametrize(("plan", "due"), [
    (EvaluationPlan(10, "acc"), [10, 20, 30, 40, 50, 60]),
    (EvaluationPlan(-1, "acc"), []),
    (EvaluationPlan(10, "acc", warmup=45, warmup_multiplier=2), [20, 40, 50, 60]),
    (EvaluationPlan(10, "acc", warmup=30, warmup_multiplier=6), [30, 40, 50, 60]),
])  # fmt: skip
def test_it_is_due_at_the_interval_and_less_often_while_warming_up(plan: EvaluationPlan, due: list[int]) -> None:
    assert [number for number in range(1, 61) if plan.due(number)] == due


@pytest.fixture
def run(tmp_path: Path, engine: Any, loss: Any, held_out: Any, groups: Any) -> Callable[..., list[dict[str, str]]]:
    def train(plan: EvaluationPlan, *, until: int, first: Callback | None = None) -> list[dict[str, str]]:
        accumulator = MetricAccumulator(engine.facts_to_host, windows=(LOG, EVALUATION))
        tables = [GrowingTable(str(tmp_path / f"{name}.log.tsv")) for name in ("train", "valid")]

        def metrics(sums: Any) -> dict[str, float]:
            return {"gap": sums["loss_sum"] / sums["count"]}

        evaluating = Evaluating(plan, held_out, loss, table=tables[1], accumulator=accumulator, metrics=metrics)
        callbacks = [first or Callback(), Logging(tables[0], accumulator, metrics, interval=2), evaluating]
        fit(Session(engine, engine.start(0), Progress(), until, until), groups(), callbacks)
        lines = [line.split("\t") for line in (tmp_path / "valid.log.tsv").read_text().splitlines()]
        return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]

    return train


def test_the_final_evaluation_is_never_missing_and_never_double(run: Callable[..., Any]) -> None:
    assert [row["step"] for row in run(EvaluationPlan(-1, "closeness"), until=5)] == ["5"]


def test_the_last_update_that_was_due_anyway_is_scored_once(run: Callable[..., Any]) -> None:
    assert [row["step"] for row in run(EvaluationPlan(2, "closeness"), until=4)] == ["2", "4"]


def test_a_row_has_the_promised_columns_in_their_order(run: Callable[..., Any]) -> None:
    row = run(EvaluationPlan(3, "closeness"), until=3)[0]
    assert list(row) == [
        "epoch", "step", "ups", "wps", "train_wall", "train_loss", "gnorm", "clip",
        "train_gap", "valid_closeness", "valid_rows", "best_score",
    ]  # fmt: skip
    assert row["train_loss"] == row["train_gap"]


class Memory(Callback):
    """A model that counts its visits over an evaluation."""

    def on_step(self, session: Session, step: Step) -> None:
        log.add_accumulative_summary("visits", step.number, lambda numbers: {"visits": sum(numbers)})


def test_what_the_model_accumulated_becomes_columns(run: Callable[..., Any]) -> None:
    rows = run(EvaluationPlan(3, "closeness"), until=6, first=Memory())
    assert [row["visits"] for row in rows] == ["6", "15"]


@pytest.mark.parametrize(("ascending", "best"), [(True, max), (False, min)])
def test_the_best_score_follows_the_direction(run: Callable[..., Any], ascending: bool, best: Any) -> None:
    rows = run(EvaluationPlan(2, "closeness", ascending=ascending), until=8)
    scores = [float(row["valid_closeness"]) for row in rows]
    assert [float(row["best_score"]) for row in rows] == [best(scores[: count + 1]) for count in range(len(scores))]


def test_a_score_that_is_nan_is_told_and_is_never_the_best(
    run: Callable[..., Any], loss: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loss, "scores", lambda gathered: {"closeness": float("nan")})
    rows = run(EvaluationPlan(2, "closeness"), until=4)
    assert [row["best_score"] for row in rows] == ["", ""]
    assert capsys.readouterr().err.count("major_metric closeness is NaN on the held-out rows") == 1


def test_a_metric_that_does_not_exist_is_an_error_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="closenes.*Did you mean 'closeness'"):
        score_of({"closeness": 1.0, "rows": 3.0}, "closenes")
