from pathlib import Path
from typing import Any

from xdpx.logger import log
from xdpx.reports.growing_table import GrowingTable
from xdpx.training.accumulation import MetricAccumulator
from xdpx.training.callbacks.logging import LOG, Logging
from xdpx.training.loop import Callback, Session, Step, fit
from xdpx.training.progress import Progress


class Gate(Callback):
    """A model's summary that appears late."""

    def on_step(self, session: Session, step: Step) -> None:
        if step.number > 4:
            log.add_summary("gate", step.number)


def table_of(folder: Path, engine: Any, groups: Any, *callbacks: Callback, until: int = 8) -> list[dict[str, str]]:
    accumulator = MetricAccumulator(engine.facts_to_host, windows=(LOG,))
    path = folder / "train.log.tsv"
    logging = Logging(GrowingTable(str(path)), accumulator, lambda sums: {"b": 2.0, "a": 1.0}, interval=2)
    fit(Session(engine, engine.start(0), Progress(), until, until), groups(), [*callbacks, logging])
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def test_a_row_has_the_promised_columns_in_their_order(tmp_path: Path, engine: Any, groups: Any) -> None:
    rows = table_of(tmp_path, engine, groups)
    assert [row["step"] for row in rows] == ["2", "4", "6", "8"]
    assert list(rows[0]) == ["epoch", "step", "loss", "gnorm", "clip", "wps", "ups", "a", "b", "lr"]


def test_a_summary_that_appears_later_gets_a_column_and_shifts_none(tmp_path: Path, engine: Any, groups: Any) -> None:
    rows = table_of(tmp_path, engine, groups, Gate())
    assert [row["gate"] for row in rows] == ["", "", "5.5", "7.5"]
    assert {row["lr"] for row in rows} == {"0.1"}


def test_the_loss_of_a_row_is_over_all_updates_since_the_row_before(tmp_path: Path, engine: Any, groups: Any) -> None:
    state, losses = engine.start(0), []
    for _, (_, group) in zip(range(2), groups(), strict=False):
        state, facts = engine.update(state, group)
        losses.append(facts["loss_sum"] / facts["count"])
    row = table_of(tmp_path, engine, groups)[0]
    assert abs(float(row["loss"]) - sum(losses) / 2) < 1e-8
