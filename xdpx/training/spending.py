"""Measure where training time goes, and warn when it waits for data or when every n-th update is slow.

On by default: costs a few assignments per update, since `pulse` records the phases anyway.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from xdpx.logger import log
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.utils.progress import format_seconds
from xdpx.utils.pulse import WAITING, pulse

DATA, UPDATE, CALLBACKS = "data", "update", "callbacks"
WARM_UP = 5
"""First updates that are not judged: they compile, open files and fill caches."""
JUDGED_FIRST = 100
"""Updates after which times are judged; again whenever they are twice as many, so that judging costs little per update.
"""
KEPT = 4000
"""Updates whose times are kept: enough for forty slow ones in a hundred each."""
DATA_BOUND = 0.3
"""Share of the time spent waiting for data from which a training counts as data-bound."""
DATA_SECONDS = 0.001
"""Minimum wait for data per update in seconds; below it a warning would not be worth acting on."""
SLOW = 3.0
"""An update is slow if it takes more than this many times the median."""
SLOW_SECONDS = 0.01
"""And at least this many seconds longer than the median; smaller differences are noise of the machine."""
SLOW_SEEN = 4
"""Number of slow updates, at equal distances, needed for a warning."""

REMEDIES = {
    DATA: "the cause is the data: look at how shards or blocks of it are opened, or at workers that are refilled.",
    UPDATE: "the cause is the update itself: look at its batch (the longest?), and at what compiles or frees memory.",
    CALLBACKS: "the cause is callbacks: log, draw or save less often, or look at those of your own.",
}
EXPECTED = frozenset({
    "beginning", "ending", "evaluating", "saving", "copying", "logging, evaluating or saving", "hunting for NaN",
    "profiling",
})  # fmt: skip
"""Phases that are expected to take long at times."""
NAMES = {DATA: "waiting for data", UPDATE: "updates", WAITING: "waiting for the device", CALLBACKS: "callbacks",
         "beginning": "startup", "ending": "shutdown"}  # fmt: skip


class Spent(NamedTuple):
    """Seconds of one update.

    Attributes:
        data: waiting for its batches.
        update: forward, backward and step, as far as the host takes part.
        callbacks: logging and everything else after the update, except the phases in `EXPECTED`.
        waiting: for the device, when facts are fetched.
    """

    data: float
    update: float
    callbacks: float
    waiting: float = 0.0

    def of(self, phase: str) -> float:
        """Return the seconds of a phase."""
        return {DATA: self.data, UPDATE: self.update, CALLBACKS: self.callbacks}[phase]

    @property
    def total(self) -> float:
        """All but waiting for the device, which falls on whichever update happens to fetch the facts."""
        return self.data + self.update + self.callbacks


class Spending(Callback):
    """Records the seconds of each update, warns once per kind of trouble, and logs a summary of the time at the end."""

    def __init__(self) -> None:
        self._spent: deque[Spent] = deque(maxlen=KEPT)
        self._before = self._begun = dict[str, float]()
        self._warm_up, self._unjudged = WARM_UP, JUDGED_FIRST  # updates until then
        self._told: set[str] = set()

    def on_start(self, session: Session) -> None:
        """Start counting here, so that the time spent before training is left out."""
        self._before = self._begun = dict(pulse.spent)
        self._warm_up, self._unjudged = WARM_UP, JUDGED_FIRST

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Record the seconds since the last call, which include the callbacks of the previous update."""
        before, now = self._before, pulse.spent.copy()
        data = update = waiting = callbacks = 0.0
        for name, until_now in now.items():
            seconds = until_now - before.get(name, 0.0)
            if name == DATA:
                data = seconds
            elif name == UPDATE:
                update = seconds
            elif name == WAITING:
                waiting = seconds
            elif name not in EXPECTED:
                callbacks += seconds
        self._before = now
        if self._warm_up:
            self._warm_up -= 1
            return None
        self._spent.append(Spent(data, update, callbacks, waiting))
        self._unjudged -= 1
        if not self._unjudged:
            self._judge()
            self._unjudged = len(self._spent)
        return None

    def _judge(self) -> None:
        for kind, words in troubles(list(self._spent)).items():
            if kind not in self._told:
                self._told.add(kind)
                log.warning(words)

    def on_end(self, session: Session, stop: Stop) -> None:
        """Log warnings not yet given, and the summary of the time."""
        self._judge()
        seconds = {name: spent - self._begun.get(name, 0.0) for name, spent in pulse.spent.items()}
        if sum(seconds.values()) > 1.0:
            log.info(f"time: {shares(seconds)}")


def shares(seconds: Mapping[str, float]) -> str:
    """Return the shares of the time as text, largest first, leaving out those below half a percent."""
    total = sum(seconds.values())
    shown = sorted(((spent / total, name) for name, spent in seconds.items() if spent / total >= 0.005), reverse=True)
    told = ", ".join(f"{NAMES.get(name, name)} {share:.0%}" for share, name in shown)
    return f"{format_seconds(total)}: {told}"


def troubles(spent: Sequence[Spent]) -> dict[str, str]:
    """Return a warning for each kind of trouble ("data", "slow") in the times of some updates; {} if there is none."""
    found = {}
    data = _data_bound(spent)
    if data:
        found["data"] = data
    slow = _slow_every(spent)
    if slow:
        found["slow"] = slow
    return found


def _data_bound(spent: Sequence[Spent]) -> str:
    """Return a warning if updates wait for data, else "".

    If the device was still busy while the host waited for data, the host waits for the device when it fetches facts.
    So data is the bottleneck only if that wait is short.
    """
    data, waiting = sum(each.data for each in spent), sum(each.waiting for each in spent)
    total = sum(each.total for each in spent) + waiting
    if data < DATA_SECONDS * max(len(spent), SLOW_SEEN) or data < DATA_BOUND * total or waiting > data / 2:
        return ""
    return (
        f"data-bound: {data / total:.0%} of the time is spent waiting for data, {1000 * data / len(spent):.3g} ms an "
        "update. Make batches cheaper (preprocess more, keep data on a near disk) or use more workers."
    )


def _slow_every(spent: Sequence[Spent]) -> str:
    """Return a warning if every n-th update is slow, with the phase that makes it slow; else ""."""
    if len(spent) < 2 * SLOW_SEEN:
        return ""
    usual = median(each.total for each in spent)
    limit = max(SLOW * usual, usual + SLOW_SECONDS)
    slow = [index for index, each in enumerate(spent) if each.total > limit]
    gaps = Counter(later - earlier for earlier, later in zip(slow, slow[1:], strict=False))
    if len(slow) < SLOW_SEEN or not gaps:
        return ""
    gap, times = gaps.most_common(1)[0]
    if gap < 2 or times < 0.8 * sum(gaps.values()):
        return ""
    excess = {
        phase: median(spent[index].of(phase) for index in slow) - median(each.of(phase) for each in spent)
        for phase in REMEDIES
    }
    phase = max(excess, key=lambda each: excess[each])
    multiple = median(spent[index].total for index in slow) / usual
    return f"a slow step every {gap}: it takes {multiple:.3g} times as long as the others, and {REMEDIES[phase]}"
