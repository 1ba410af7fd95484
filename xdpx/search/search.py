"""One search: issues orders and consumes results; its decisions do not depend on which worker was faster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from xdpx.config.declarations import declarations_of
from xdpx.config.faults import ConfigError, Fault, did_you_mean, unknown_name, wrong_return
from xdpx.config.parameters import Parameters
from xdpx.config.registry import made
from xdpx.search.schedules import Budget, Move, Schedule, schedules
from xdpx.search.spaces import Space, Value, Values
from xdpx.search.trials import Decision, Direction, Order, Result, Trial, Trials
from xdpx.search.tuners import Tuner, tuners


class Search:
    """Decides what to train next.

    Workers run at different speeds, so decisions must not depend on which of them is first. The search keeps a virtual
    clock, on which an order takes as long as it has samples to train and `parallel` workers are served in turn. A
    result is consumed when this clock reaches the end of its order, however early it arrived. So at most `parallel`
    orders are in progress, and the same results give the same orders on every machine and after every interruption.

    Args:
        space: the search space.
        tuner: proposes its points.
        schedule: decides which trials are promoted.
        max_trials: most trials to begin.
        parallel: most orders in progress at once.
        direction: whether the score is maximized or minimized.
        recorded: {trial number: values} from a journal, used instead of the tuner's proposals.
    """

    def __init__(
        self, space: Space, tuner: Tuner, schedule: Schedule, *, max_trials: int, parallel: int = 1,
        direction: Direction = "maximize", recorded: Mapping[int, Values] | None = None,
    ) -> None:  # fmt: skip
        self.space, self.tuner, self.schedule = space, tuner, schedule
        self.max_trials, self.parallel, self.direction = max_trials, parallel, direction
        self.trials = Trials()
        self.orders: list[Order] = []
        self._recorded = dict(recorded or {})
        self._results: dict[int, Result] = {}
        self._ends: dict[int, int] = {}
        self._aims: dict[int, int] = {}  # the samples of each trial's last order
        self._clock = 0
        self._exhausted = False
        self._advance()

    # ---- for drivers

    def ready(self) -> list[Order]:
        """Return the orders to carry out or in progress: issued, but without a result."""
        return [self.orders[number] for number in sorted(self._ends) if number not in self._results]

    def tell(self, result: Result) -> None:
        """Accept a result; results may come in any order. New orders may be ready afterwards.

        Raises:
            ValueError: as `check` does.
        """
        self.check(result)
        self._results[result.order] = result
        self._advance()

    def check(self, result: Result) -> None:
        """Raise ValueError if no such order is open, or it was not carried out to its end."""
        if result.order in self._results or result.order not in self._ends:
            known = 0 <= result.order < len(self.orders)
            raise ValueError(f"order {result.order} {'has a result already' if known else 'was never issued'}.")
        order = self.orders[result.order]
        if result.score is not None and not result.ended and result.samples < order.samples:
            raise ValueError(
                f"order {order.number}: trial {order.trial} has seen {result.samples} of {order.samples} samples, and "
                "did not end early."
            )

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return not self._ends

    @property
    def best(self) -> Trial | None:
        """The trial with the best score consumed so far."""
        return self.trials.best()

    @property
    def decisions(self) -> list[Decision]:
        """All decisions in order: which trial was begun, promoted, culled, finished or failed, when and why."""
        return self.trials.decisions

    @property
    def samples(self) -> int:
        """Number of samples trained on for the results consumed so far."""
        return sum(trial.samples for trial in self.trials)

    # ---- the clock

    def _advance(self) -> None:
        """Issue orders and consume results until the next result to consume is missing, or nothing is left."""
        while True:
            while len(self._ends) < self.parallel and self._issue():
                pass
            if not self._ends:
                self._close()
                return
            number = min(self._ends, key=lambda each: (self._ends[each], each))
            if number not in self._results:
                return
            self._clock = self._ends.pop(number)
            self._consume(self.orders[number], self._results[number])

    def _issue(self) -> bool:
        """Issue one order and return True; False if the schedule waits."""
        more = not self._exhausted and len(self.trials) < self.max_trials
        move = self.schedule.next(self.trials, more=more)
        if move is None:
            return False
        move = self._checked(move, more=more)
        trial = move.trial
        verdict = "begun" if trial is None else "promoted"
        if trial is None:
            trial = self._begun(move)
            if trial is None:
                self._exhausted = True
                return self._issue()
        order = Order(len(self.orders), trial.number, trial.values, move.samples, trial.samples)
        trial.state, trial.aim = "running", move.samples
        self._aims[trial.number] = move.samples
        self.trials.note(
            trial, "promoted" if verdict == "promoted" else "begun", f"to {move.samples} samples: {move.why}"
        )
        self.orders.append(order)
        self._ends[order.number] = self._clock + max(order.samples - order.begin, 0)
        return True

    def _checked(self, move: object, *, more: bool) -> Move:
        """Return the move of a schedule, in whole samples. Raises ConfigError for one that cannot be carried out."""
        total, remedy = self.schedule.budget.total, "Return Move(samples, why, trial), or None to wait for results."
        if not isinstance(move, Move):
            raise wrong_return("schedule", self.schedule, "next", f"{move!r:.100}", remedy)
        samples = move.samples.__index__() if hasattr(move.samples, "__index__") else 0  # numbers of NumPy, too
        trial, problem = move.trial, ""
        if not 0 < samples <= total:
            problem = f"a Move to {move.samples!r} samples, which is not a whole number from 1 to {total}"
        elif trial is None:
            problem = "" if more else "a Move of a new trial where more is False"
        elif not any(each is trial for each in self.trials):
            problem = f"a Move of {trial!r:.60}, which is none of the trials"
        elif trial.state != "waiting":
            problem = f"a Move of trial {trial.number}, which is {trial.state} and not waiting"
        elif samples <= self._aims[trial.number]:
            problem = (
                f"a Move of trial {trial.number} to {samples} samples, but it had {self._aims[trial.number]} to reach"
            )
        if problem:
            raise wrong_return("schedule", self.schedule, "next", problem, remedy)
        return replace(move, samples=samples)

    def _begun(self, move: Move) -> Trial | None:
        number = len(self.trials)
        values = self._recorded.get(number)
        proposed = self.tuner.propose(number, self.trials) if values is None else values
        if proposed is None:
            return None
        try:
            values = self.space.point_of(proposed) if values is None else values
        except ValueError as error:
            remedy = (
                "Return {parameter: value} of a point of the space, e.g. self.space.at(...), or None if none is left."
            )
            raise wrong_return("tuner", self.tuner, "propose", f"{error}, for trial {number}", remedy) from error
        trial = Trial(number, values, 1 if self.direction == "maximize" else -1, move.bracket)
        self.trials.append(trial)
        return trial

    def _consume(self, order: Order, result: Result) -> None:
        trial = self.trials[order.trial]
        trial.samples = max(result.samples, trial.samples)
        trial.reached[order.samples] = trial.samples
        score = None if result.score is None or not math.isfinite(result.score) else float(result.score)
        points = [*result.history, *([] if score is None else [(result.samples, score)])]
        known = dict(trial.history) | {int(seen): float(one) for seen, one in points if math.isfinite(one)}
        trial.history = sorted(known.items())
        trial.ended = result.ended
        if score is None:
            trial.state = "failed"
            self.trials.note(trial, "failed", result.note or "no finite score")
        elif result.ended or trial.samples >= self.schedule.budget.total:
            trial.state = "finished"
            self.trials.note(
                trial, "finished", result.note or ("ended by itself" if result.ended else "all samples seen")
            )
        else:
            trial.state = "waiting"

    def _close(self) -> None:
        for trial in self.trials:
            if trial.state == "waiting":
                self.trials.cull(trial, self.schedule.reason_to_end(trial))


def make_search(  # noqa: PLR0913 - what a search is, all of it by name
    space: Space | Mapping[str, object],
    *,
    budget: Budget,
    max_trials: int,
    tuner: str = "random",
    schedule: str = "full",
    parallel: int = 1,
    seed: int = 1,
    direction: Direction = "maximize",
    recorded: Mapping[int, Values] | None = None,
    **options: Value,
) -> Search:
    """Return a search from the names of its tuner and schedule; `options` are their parameters.

    Raises:
        ConfigError: an unknown name or option, an invalid value, or an invalid space.
    """
    found = space if isinstance(space, Space) else Space.read(space)
    parts = [(tuners, "tuner", tuner), (schedules, "schedule", schedule)]
    faults = [unknown_name(key, name, table) for table, key, name in parts if name not in table]
    if faults:
        raise ConfigError("search", faults)
    classes = [table[name] for table, _, name in parts]
    chosen, scheduled = _typed_options(classes, options)
    return Search(
        found,
        made("tuner", classes[0], chosen, space=found, seed=seed, direction=direction),
        made("schedule", classes[1], scheduled, budget=budget, parallel=parallel, max_trials=max_trials),
        max_trials=max_trials, parallel=parallel, direction=direction, recorded=recorded,
    )  # fmt: skip


def _typed_options(classes: Sequence[type[Tuner] | type[Schedule]], options: Mapping[str, Value]) -> list[Parameters]:
    """Return one validated Parameters per class, each with the options that it declares."""
    declared = [{each.key for each in declarations_of(one.Parameters)} for one in classes]
    known = sorted(set().union(*declared))
    faults = []
    for key in options:
        if key not in known:
            remedy = did_you_mean(key, known, f"There are: {', '.join(known) or 'none'}.")
            faults.append(Fault(key, "is not an option of this tuner and schedule.", remedy))
    typed = []
    for one, keys in zip(classes, declared, strict=True):
        try:
            typed.append(one.Parameters(**{key: value for key, value in options.items() if key in keys}))
        except ValidationError as error:
            faults += [Fault(str((each["loc"] or ("option",))[0]), f"{each['msg']}.") for each in error.errors()]
            continue
        faults += [Fault(key, problem) for key, problem in typed[-1].conflicts()]
    if faults:
        raise ConfigError("search", faults)
    return typed
