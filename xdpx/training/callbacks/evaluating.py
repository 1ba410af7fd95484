"""Evaluate on held-out data: when, which metric decides, and where scores are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from xdpx.config.faults import did_you_mean, refusal
from xdpx.engines.base import Batch
from xdpx.logger import log
from xdpx.reports.growing_table import Cell, GrowingTable
from xdpx.reports.run_tables import BEST_STEP, valid_row
from xdpx.tasks.scoring import Metrics, in_one_line, score
from xdpx.training.accumulation import MetricAccumulator
from xdpx.training.callbacks.logging import TrainMetrics, train_metrics
from xdpx.training.loop import Callback, Interrupted, Session, Step, Stop
from xdpx.training.preemption import Preemption
from xdpx.utils.decisions import due
from xdpx.utils.pulse import pulse

EVALUATION = "evaluation"
"""The name of this reader's window in the accumulator."""

AVERAGED = frozenset({"precision", "recall", "f1"})
"""Metrics of classes that `f1_average` averages."""


@dataclass(frozen=True)
class EvaluationPlan:
    """When to evaluate, and which metric decides what is best. Steps are optimizer updates.

    Attributes:
        interval: evaluate at its multiples; -1: only at the end.
        warmup: before this step, evaluations are `warmup_multiplier` times less frequent.
    """

    interval: int
    major_metric: str
    ascending: bool = True
    warmup: int = 0
    warmup_multiplier: int = 6

    def due(self, number: int) -> bool:
        """Return whether to evaluate after update `number`."""
        return due(number, self.interval * self.warmup_multiplier if number < self.warmup else self.interval)


class Scoring(Callback):
    """Base of evaluation callbacks: scores held-out data and writes valid.log.tsv. Subclasses define when and what.

    It has no state to save: scores are part of the progress, and training facts are part of the accumulator. A signal
    ends an evaluation between two batches; nothing of it is recorded, and the resumed run begins it again.

    Attributes:
        metrics: of the last evaluation; empty before the first.
    """

    name = "evaluating"

    def __init__(
        self, table: GrowingTable, accumulator: MetricAccumulator, metrics: TrainMetrics, *, ascending: bool
    ) -> None:
        self.metrics: dict[str, float] = {}
        self._table = table
        self._accumulator = accumulator
        self._train_metrics = metrics
        self._ascending = ascending
        self._was_reset = False

    def on_start(self, session: Session) -> None:
        """Drop the rows of evaluations that a resumed run repeats."""
        progress = session.progress
        self._table.drop_after(progress.last_eval_step)
        self._was_reset = BEST_STEP in self._table.columns or (progress.best_score is None and progress.best_step > 0)

    def evaluate(self, session: Session) -> None:
        """Evaluate now: log the scores, and record whether this is the best step so far."""
        session.guard()
        # What training cost is read before scoring begins: settled inside the pause, scoring would count as training.
        window, progress = self._accumulator.take(EVALUATION), session.progress
        train_wall = progress.train_seconds + self._accumulator.peek("log").seconds
        with self._accumulator.stopwatch.paused(), pulse.doing("evaluating"):
            try:
                self.metrics = self._score(session)
            except Interrupted:
                self._accumulator.put_back(EVALUATION, window)
                log.forget_scored()
                raise
            if not self.metrics:
                return
            is_best = progress.take_score(self._decisive(), ascending=self._ascending)
            row = valid_row(
                progress.epoch, progress.num_updates, window, train_wall=train_wall,
                train=train_metrics(window, self._train_metrics), valid=self.metrics, more=log.take_accumulated(),
                best_score=progress.best_score,
            )  # fmt: skip
            if self._was_reset and progress.best_score is not None:
                row[BEST_STEP] = progress.best_step
            self._table.append(row)
            self._table.flush()
            self._tell(row, is_best=is_best)

    def _score(self, session: Session) -> dict[str, float]:
        """Return the metrics of the held-out data; {} if there is none."""
        raise NotImplementedError

    def _decisive(self) -> float:
        """Return the metric that decides which step is best."""
        raise NotImplementedError

    def _tell(self, row: Mapping[str, Cell], *, is_best: bool) -> None:
        """Log an evaluation."""


class Evaluating(Scoring):
    """Evaluates when that is due, and at the end.

    Args:
        batches: returns an iterable of the held-out batches, the same ones at each call.
        labels: names of the classes, if known.
        preemption: records signals, which end an evaluation; None for none.
    """

    def __init__(
        self,
        plan: EvaluationPlan,
        batches: Callable[[], Iterable[Batch]],
        loss: Metrics,
        *,
        table: GrowingTable,
        accumulator: MetricAccumulator,
        metrics: TrainMetrics,
        labels: Sequence[str] | None = None,
        preemption: Preemption | None = None,
    ) -> None:
        super().__init__(table, accumulator, metrics, ascending=plan.ascending)
        self.plan = plan
        self._batches = batches
        self._loss = loss
        self._labels = labels
        self._preemption = preemption
        self._each_class = ""
        self._told_nan = False

    def on_start(self, session: Session) -> None:
        """Prepare the log, and log how the major metric averages over classes."""
        super().on_start(session)
        name, average = self.plan.major_metric, self._loss.average
        if average is not None and name in AVERAGED:
            log.info(f"major_metric {name}: the {average} average of the classes; f1_average chooses another")

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Evaluate if that is due, or was cut short."""
        if self.plan.due(step.number) or step.cut_at == self.name:
            self.evaluate(session)
        return None

    def on_end(self, session: Session, stop: Stop) -> None:
        """Evaluate the last step, unless training was interrupted and can be resumed."""
        if stop.finished and session.number > 0 and not session.progress.just_evaluated:
            super().evaluate(session)  # not passed to the schedule: a run that is extended later must not depend on it
        self._table.flush()

    def evaluate(self, session: Session) -> None:
        """Evaluate now, and pass the score to the schedule of the learning rate."""
        super().evaluate(session)
        session.engine.take_score(session.state, self._decisive())

    def _score(self, session: Session) -> dict[str, float]:
        batches = self._batches()
        if self._preemption is not None:
            batches = self._preemption.scored(batches, session.number)
        scores = score(session.engine, session.state, batches, self._loss, labels=self._labels)
        self._each_class = in_one_line(scores.each_class) if scores.each_class else ""
        return scores.metrics

    def _decisive(self) -> float:
        name = self.plan.major_metric
        found = score_of(self.metrics, name)
        if isnan(found) and not self._told_nan:
            self._told_nan = True  # once for each run of a loop
            warn_of_nan("major_metric", name)
        return found

    def _tell(self, row: Mapping[str, Cell], *, is_best: bool) -> None:
        log.info(_sentence(row, self.plan.major_metric, is_best=is_best))
        if self._each_class:
            log.info(f"step {row['step']}: {self._each_class}")


def score_of(metrics: Mapping[str, float], name: str) -> float:
    """Return the metric of this name. Raises ConfigError if there is no such metric."""
    if name in metrics:
        return metrics[name]
    remedy = did_you_mean(name, metrics, rest=f"It has: {', '.join(sorted(metrics))}.")
    raise refusal("major_metric", f"this loss has no '{name}'.", remedy)


def warn_of_nan(key: str, name: str) -> None:
    """Log that the metric `name`, which the key selects to tell what is best, is NaN."""
    log.warning(
        f"{key} {name} is NaN on the held-out rows, so these weights do not count as the best. Some metrics need rows "
        "of several labels: look at the labels of these rows, or choose another metric."
    )


def _sentence(row: Mapping[str, Cell], metric: str, *, is_best: bool) -> str:
    parts = [f"step {row['step']} (epoch {row['epoch']}): train_loss {_short(row['train_loss'])}"]
    names = [name for name in row if name.startswith("valid_")]
    names.sort(key=lambda name: (name != f"valid_{metric}", name))
    parts += [f"{name} {_short(row[name])}" for name in names]
    return ", ".join(parts) + (" <- best so far" if is_best else f", best {_short(row['best_score'])}")


def _short(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
