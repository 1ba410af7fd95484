"""`x-tune <config>`: search for better values of a training config, over runs that can be paused and resumed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from xdpx.commands import batch
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.logger import wrong_name
from xdpx.training.preemption import EXIT_CODE
from xdpx.tuning.folder import fault_of, holds_search
from xdpx.tuning.parameters import TuneParameters

if TYPE_CHECKING:
    from xdpx.tuning.plan import Plan


class Tune:
    """Search for better values of a training config; unpromising trials are stopped early."""

    class Parameters(TuneParameters):
        """The keys of `x-tune`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._settings: TuneParameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return the faults of the three configs and of files. Needs no torch."""
        return [*self._about_folder(), *self._about_configs()]

    def outdated(self) -> bool:
        """Return whether this very search has finished, but its configs or data have changed since."""
        try:
            return bool(self._plan.journal().differences())
        except ConfigError:  # they are gone
            return False

    def outlook(self) -> str:
        """Return a sentence on the planned search, and its warnings, for `--dry`."""
        plan, settings = self._plan, self._settings
        parameters = ", ".join(plan.space.names)
        runs = f" of {len(plan.members)} runs each" if len(plan.members) > 1 else ""
        return (
            f"at most {settings.max_trials} trials{runs} over {parameters}; {settings.tuner} proposes, "
            f"{settings.schedule} decides by {plan.metric} ({plan.better} is better) which trials continue; "
            f"a whole run has {plan.budget.total:,} samples"
            + (f"; continues the search in {settings.save_dir}" if holds_search(settings.save_dir) else "")
            + "".join(f"\nwarning: {doubt}" for doubt in plan.doubts())
        )

    def run(self) -> int:
        """Search. The exit code is 85 if a signal interrupted it and the same command can resume."""
        from xdpx.tuning.driver import tune

        return 0 if tune(self._plan) else EXIT_CODE

    @cached_property
    def _plan(self) -> Plan:
        from xdpx.tuning.plan import make_plan

        return make_plan(self._run)

    def _about_folder(self) -> Iterator[Fault]:
        if wrong_name(self._settings.log_file):
            yield Fault("log_file", wrong_name(self._settings.log_file))
        fault = fault_of(self._settings)
        if fault is not None:
            yield fault

    def _about_configs(self) -> Iterator[Fault]:
        from xdpx.tuning.plan import make_plan

        try:
            self._plan = make_plan(self._run, inspect=batch.inspect)
            self._plan.search()
        except ConfigError as error:
            yield from error.faults
            return
        if self._settings.resume:
            yield from self._plan.journal().differences()
