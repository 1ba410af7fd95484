"""An evaluation during training, which a signal may end: the resumed run then takes it again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, TypeVar

from xdpx.logger import log
from xdpx.reports.results import plain_numbers
from xdpx.trainer.files import rng
from xdpx.trainer.hooks.state import restore_states, states_of
from xdpx.training.loop import Interrupted
from xdpx.training.preemption import Preemption

Value = TypeVar("Value")
Metrics = dict[str, float]


class Evaluation:
    """An evaluation, of one set or of several, one after another. What the run holds is as before a set that was cut.

    A set is cut short until it logs: what is logged counts.

    Args:
        exportable: returns the callbacks, and the control, whose states go into checkpoints.
        preemption: notes signals.
        number: of the last update.
        scored: the sets that were evaluated before a signal cut this evaluation short, see below.

    Attributes:
        scored: metrics of each set that is done, by the prefix of their names.
    """

    def __init__(
        self, exportable: Callable[[], list[Any]], preemption: Preemption, number: int, scored: Mapping[str, Metrics]
    ) -> None:
        self._exportable, self._preemption, self._number = exportable, preemption, number
        self.scored = {prefix: dict(metrics) for prefix, metrics in scored.items()}
        self._before: tuple[Any, Any] | None = None  # None: no signal may end what is evaluated now
        self._begin_set()

    def _begin_set(self) -> None:
        self._before = rng.capture(), deepcopy(states_of(self._exportable()))

    def counts(self) -> None:
        """Let this set go on to its end, now that something of it is logged."""
        self._before = None

    def batches(self, batches: Iterable[Value]) -> Iterable[Value]:
        """Return the batches of a set, which end at a signal; on all processes that train together.

        Raises:
            Interrupted: before a batch, on all processes, because a signal came to one of them.
        """
        return batches if self._before is None else self._preemption.scored(batches, self._number)

    def once(self, prefix: str, score: Callable[[], Metrics]) -> Metrics:
        """Return the metrics of one of several sets, computed by `score` unless they are known from before a signal."""
        if prefix in self.scored:
            return self.scored[prefix]
        metrics = score()
        plain = plain_numbers(metrics)
        if all(isinstance(value, int | float) for value in plain.values()):  # else a checkpoint could not hold them
            self.scored[prefix] = plain
            self._begin_set()
        return metrics

    @contextmanager
    def taking_back(self) -> Generator[None]:
        """Restore random generators and callbacks if the evaluation inside is cut short."""
        try:
            yield
        except Interrupted:
            if self._before is not None:
                random, states = self._before
                rng.restore(random)
                restore_states(self._exportable(), states)
            log.forget_scored()
            raise
