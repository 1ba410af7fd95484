"""Run a search: convert its orders to stages, and their outcomes to results, each journaled before it is used.

A kill at any moment loses nothing: the journal replays every decision, and an interrupted stage continues from the
newest state of its run.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from xdpx.config.faults import ConfigError, Fault
from xdpx.inference.own_code import warn_of_changes
from xdpx.logger import LogFile, log
from xdpx.runs.imports import modules_of
from xdpx.search.journal import Journal
from xdpx.search.search import Search
from xdpx.search.trials import Order, Result
from xdpx.training.preemption import Preemption
from xdpx.tuning import outputs
from xdpx.tuning.executors import Executor, executor_named
from xdpx.tuning.folder import OUTPUT, holds_search
from xdpx.tuning.objective import result_of
from xdpx.tuning.plan import Plan
from xdpx.tuning.stages import Outcome, Stage
from xdpx.tuning.watching import Watch, watching
from xdpx.utils import commit, io

SECONDS_BETWEEN_LOOKS = 0.5
"""Longest time until a signal is noticed."""


def tune(plan: Plan) -> bool:
    """Run a search to its end, or until a signal; return whether it reached the end.

    Raises:
        ConfigError: save_dir holds another search; or not a single trial could be trained.
        OSError: the disk or the network failed, or another process runs this search.
    """
    with _claimed(plan) as (journal, preemption):
        driver = _Driver(plan, journal, preemption)
        return driver.work()


@contextmanager
def _claimed(plan: Plan) -> Generator[tuple[Journal, Preemption]]:
    """Hold the lease on the folder of the search inside the block, with its journal and log open."""
    folder, log_file = plan.settings.save_dir, plan.settings.log_file
    with ExitStack() as stack:
        preemption = stack.enter_context(Preemption())
        begun = holds_search(folder)
        journal = stack.enter_context(plan.journal())
        commit.sweep_top(folder)  # a killed driver may have left a partly written table
        if log_file is not None:
            stack.enter_context(LogFile(io.join(folder, log_file)))
        if begun:
            done = len(journal.search.orders) - len(journal.search.ready())
            log.info(f"{folder}: continuing after {done} results")
        yield journal, preemption


@dataclass
class _Open:
    """An order in progress: its stages, and the outcomes of those that have ended."""

    order: Order
    stages: list[Stage]
    waiting: list[Stage]
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def has_failed(self) -> bool:
        return any(outcome.kind == "failed" for outcome in self.outcomes.values())


class _Driver:
    """Passes orders of the search to the executor, and results back to the search."""

    def __init__(self, plan: Plan, journal: Journal, preemption: Preemption) -> None:
        self.plan, self.journal, self.preemption = plan, journal, preemption
        self.search: Search = journal.search
        self.open: dict[int, _Open] = {}
        self.running: dict[str, _Open] = {}
        self.folder = plan.settings.save_dir
        self.stopping = False  # whether the running stages have been asked to save and end

    def work(self) -> bool:
        """Run the search to its end, or until a signal."""
        for doubt in self.plan.doubts():
            log.warning(doubt)
        begun = outputs.member_folders(self.plan, 0)[0]
        if self.search.trials and io.isdir(begun):
            warn_of_changes(begun, self.plan.base_runs, so="trials from here on are trained with other code")
        with watching(self.plan, self.search) as watch:
            try:
                self._carry_out(watch)
                outputs.write_all(self.plan, self.search)
                if self.search.finished and self.search.best is None:
                    raise self._nothing_trained()
            except BaseException as error:
                outputs.write_state(self.plan, self.search, "failed", f"{type(error).__name__}: {error}")
                raise
        if not self.search.finished:
            reason = f"interrupted by {self.preemption.received}"
            outputs.write_state(self.plan, self.search, "preempted", reason)
            log.info(f"{reason}; to continue, run the same command.")
            return False
        outputs.write_state(self.plan, self.search, "finished")
        outputs.finish(self.plan, self.search)
        return True

    def _carry_out(self, watch: Watch) -> None:
        outputs.write_state(self.plan, self.search, "running")
        executor: Executor | None = None
        try:
            while not self.search.finished:
                self._open_orders(watch)
                if executor is None and self.open:
                    executor = self._executor()
                if executor is None:
                    continue
                if self.preemption.received is None:
                    self._hand_out(executor)
                elif self._stopped(executor):
                    return
                for stage, outcome in executor.wait(SECONDS_BETWEEN_LOOKS):
                    self._take(stage, outcome, watch)
                watch.look(self.running)
        finally:
            if executor is not None:
                executor.close()

    def _executor(self) -> Executor:
        stage = next(iter(self.open.values())).stages[0]
        output = io.join(self.folder, OUTPUT)
        if io.islocal(output):
            io.makedirs(output, exist_ok=True)
        settings, imported = self.plan.settings, [*modules_of(stage.run), "xdpx.tuning.stages"]
        executor = executor_named(settings.executor, settings, stage=stage, preload=imported, output=output)
        log.info(f"{executor.capacity} run{'s' if executor.capacity > 1 else ''} at a time")
        return executor

    def _open_orders(self, watch: Watch) -> None:
        """Convert every new order to stages. A trial whose values the base config refuses fails at once."""
        for order in self.search.ready():
            if order.number in self.open or self.preemption.received is not None:
                continue
            try:
                runs = self.plan.runs_of(order.trial, order.values)
            except ConfigError as error:
                note = "; ".join(str(fault) for fault in error.faults)
                self._tell(Result(order.number, order.begin, None, ended=True, note=note), watch)
                return  # the search may have other orders now
            outputs.write_trial(self.plan, order.trial, runs)
            stages = self.plan.stages_of(runs, order.trial, order.samples)
            self.open[order.number] = _Open(order, stages, list(stages))

    def _hand_out(self, executor: Executor) -> None:
        for number in sorted(self.open):
            opened = self.open[number]
            while opened.waiting and len(self.running) < executor.capacity:
                stage = opened.waiting.pop(0)
                self.running[stage.name] = opened
                executor.start(stage)

    def _stopped(self, executor: Executor) -> bool:
        """Ask all running stages, once, to save and end; return whether all have ended."""
        if self.running and not self.stopping:
            log.info(f"{self.preemption.received}: waiting for {len(self.running)} runs to save")
            executor.stop()
            self.stopping = True
        return not self.running

    def _take(self, stage: Stage, outcome: Outcome, watch: Watch) -> None:
        opened = self.running.pop(stage.name)
        if outcome.kind == "world":
            raise OSError(f"{stage.name}: {outcome.reason}")
        if outcome.kind == "interrupted":
            if self.preemption.received is None:  # only this process was stopped: the search goes on
                opened.waiting.insert(0, stage)
            return
        opened.outcomes[stage.name] = outcome
        if opened.has_failed:
            opened.waiting.clear()
        beside = any(each is opened for each in self.running.values())
        if not opened.waiting and not beside:
            del self.open[opened.order.number]
            if opened.order.trial == 0:
                watch.warned(opened.stages)
            self._tell(result_of(opened.order, opened.stages, list(opened.outcomes.values())), watch)

    def _tell(self, result: Result, watch: Watch) -> None:
        order = self.search.orders[result.order]
        self.journal.tell(result)
        watch.told(order, result)
        outputs.write_progress(self.plan, self.search)

    def _nothing_trained(self) -> ConfigError:
        if not self.search.trials:
            problem, remedy = "has started no trial.", "Let it return a Move of a new trial, and the tuner a point."
            return ConfigError(self.plan.source, [Fault("schedule", problem, remedy)])
        reasons = [decision.why for decision in self.search.decisions if decision.verdict == "failed"]
        first = reasons[0].rstrip(".")
        problem = f"yields no trial that could be trained: all {len(reasons)} failed, the first by: {first}."
        remedy = f"Try one by itself: x-train {io.join(self.folder, 'configs', 'trial_0')}"
        return ConfigError(self.plan.source, [Fault("base_config", problem, remedy)])
