"""Show the progress of a search: a live table on a terminal, log lines elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xdpx.logger import log
from xdpx.search.search import Search
from xdpx.search.trials import Order, Result, Trial
from xdpx.tuning.objective import progress_of
from xdpx.tuning.plan import Plan
from xdpx.tuning.stages import Stage
from xdpx.utils import io
from xdpx.utils.aside import text_of
from xdpx.utils.progress import format_seconds, on_terminal

if TYPE_CHECKING:
    from rich.live import Live

SECONDS_BETWEEN_LOOKS = 2.0
MOST_ROWS = 12
WARNING = re.compile(r"\| (?:\S+ )?warning: (.*)")
"""A line of a log.txt."""


class Watch:
    """Logs the results of a search, and updates the live table if there is one."""

    def __init__(self, plan: Plan, search: Search, live: Live | None = None) -> None:
        self._plan, self._search, self._live = plan, search, live
        self._decided = len(search.decisions)
        self._began, self._samples_before = time.monotonic(), search.samples
        self._next_look = 0.0
        self._running: dict[str, str] = {}

    def warned(self, stages: Sequence[Stage]) -> None:
        """Repeat the warnings in the logs of a trial, most of which are about the base config."""
        for stage in stages:
            name = stage.run.values.get("log_file")
            path = io.join(stage.folder, str(name))
            for line in text_of(path)[0].splitlines() if name and io.isfile(path) else ():
                if found := WARNING.match(line):
                    log.warning(f"{stage.name}: {found[1]}", once=True)

    def told(self, order: Order, result: Result) -> None:
        """Log a result, and the decisions since the last one."""
        values = ", ".join(f"{name} {value}" for name, value in order.values.items())
        score = f"failed: {result.note}" if result.score is None else f"{self._plan.metric} {result.score:.4g}"
        log.info(f"trial {order.trial} ({values}): {score} after {result.samples:,} samples")
        for each in self._search.decisions[self._decided :]:
            if each.verdict in {"culled", "promoted"}:
                log.info(f"  {each.verdict} trial {each.trial}: {each.why}")
        self._decided = len(self._search.decisions)
        best = self._search.best
        if best is not None:
            log.info(f"  best so far: trial {best.number} with {best.best:.4g}; {self.outlook()}")

    def outlook(self) -> str:
        """Return the number of trials started and an upper estimate of the remaining time, as text."""
        began = len(self._search.trials)
        text = f"{began} of at most {self._search.max_trials} trials started"
        seconds = self._seconds_left()
        return text if seconds is None else f"{text}, about {format_seconds(seconds)} left"

    def _seconds_left(self) -> float | None:
        trained = self._search.samples - self._samples_before
        if trained <= 0:
            return None
        over = [trial for trial in self._search.trials if trial.state not in {"running", "waiting"}]
        total = self._search.schedule.budget.total
        usual = sum(trial.samples for trial in over) / len(over) if over else total
        left: float = sum(max(trial.aim - trial.samples, 0) for trial in self._search.trials if trial not in over)
        left += usual * (self._search.max_trials - len(self._search.trials))
        return left * (time.monotonic() - self._began) / trained

    def look(self, running: Mapping[str, Any]) -> None:
        """Update the live table with the progress of the running stages, every few seconds."""
        if self._live is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + SECONDS_BETWEEN_LOOKS
        self._running = {}
        for name, opened in running.items():
            stage = next(stage for stage in opened.stages if stage.name == name)
            curve = progress_of(stage).curve
            self._running[name.partition(".")[0]] = f"{curve[-1][0]:,}" if curve else "starting"
        self._live.update(self.table())

    def table(self) -> Any:
        """Return the table of the running and the best trials, to be drawn by rich."""
        from rich.table import Table

        search = self._search
        table = Table(title=f"{self._plan.settings.save_dir}: {self.outlook()}", title_justify="left", expand=False)
        for name in ("trial", "state", self._plan.metric, "samples", *search.space.names):
            table.add_column(name, justify="left" if name in {"state"} else "right", no_wrap=True)
        best = search.best
        for trial in self._shown():
            cells = [f"{trial.values.get(name, '')}" for name in search.space.names]
            score = "" if trial.best is None else f"{trial.best:.4g}"
            seen = self._running.get(f"trial_{trial.number}", f"{trial.samples:,}")
            style = "bold green" if best is not None and trial.number == best.number else _STYLES.get(trial.state, "")
            table.add_row(str(trial.number), trial.state, score, seen, *cells, style=style)
        return table

    def _shown(self) -> list[Trial]:
        trials = list(self._search.trials)
        under_way = [trial for trial in trials if trial.state in {"running", "waiting"}]
        others = sorted((trial for trial in trials if trial not in under_way), key=lambda each: each.place)
        return [*under_way[:MOST_ROWS], *others[: max(3, MOST_ROWS - len(under_way))]]


_STYLES = {"running": "", "waiting": "", "finished": "blue", "culled": "dim", "failed": "red"}


@contextmanager
def watching(plan: Plan, search: Search) -> Generator[Watch]:
    """Show the live table inside the block, on a terminal, if rich is installed."""
    if not on_terminal():
        yield Watch(plan, search)
        return
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        log.info("a live table needs the package rich: pip install 'xdpx[tune]'")
        yield Watch(plan, search)
        return
    with Live(console=Console(stderr=True), refresh_per_second=2, transient=True) as live:
        yield Watch(plan, search, live)
