"""Where the time of a training goes, and what is wrong with it in words: too little data, or a rhythm of slow updates.

On by default: a few assignments an update, from the phases that `pulse` is told anyway.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from xdpx.logger import log
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.utils.decisions import due
from xdpx.utils.progress import format_seconds
from xdpx.utils.pulse import WAITING, pulse

DATA, UPDATE, CALLBACKS = "data", "update", "callbacks"
WARM_UP = 5
"""First updates that are not judged: they compile, open files and fill caches."""
JUDGED_EVERY = 100
KEPT = 4000
"""Updates whose times are kept: enough for forty slow ones in a hundred each."""
DATA_BOUND = 0.3
"""Share of the time spent waiting for data from which a training is said to be bound by it."""
DATA_SECONDS = 0.001
"""And so much an update, for what is faster is bound by nothing that matters."""
SLOW = 3.0
"""An update is slow from so many times the median on."""
SLOW_SECONDS = 0.01
"""And from so much more than the median, for shorter ones are the machine's own."""
SLOW_SEEN = 4
"""Slow updates that must be seen, with one and the same distance between them."""

REMEDIES = {
    DATA: "the data does: look at how shards or blocks of it are opened, or at workers that are refilled.",
    UPDATE: "the update itself does: look at its batch (the longest?), and at what compiles or frees memory.",
    CALLBACKS: "callbacks do: log, draw or save less often, or look at those of your own.",
}
EXPECTED = frozenset({
    "beginning", "ending", "evaluating", "saving", "copying", "logging, evaluating or saving", "hunting for NaN",
    "profiling",
})  # fmt: skip
"""Phases that are long now and then, as they should be."""
NAMES = {DATA: "waiting for data", UPDATE: "updates", WAITING: "waiting for the device", CALLBACKS: "callbacks"}


@dataclass(frozen=True)
class Spent:
    """Seconds of one update.

    Attributes:
        data: waiting for its batches.
        update: forward, backward and step, as far as the host takes part.
        callbacks: logging and whatever else follows, without what is `EXPECTED` to take long.
        waiting: for the device, when numbers are fetched.
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
        """All but waiting for the device, which falls on the update at which somebody happens to ask."""
        return self.data + self.update + self.callbacks


class Spending(Callback):
    """Keeps the seconds of each update, says what is wrong with them once, and at the end where all time went."""

    def __init__(self) -> None:
        self._spent: deque[Spent] = deque(maxlen=KEPT)
        self._before: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._first = 0
        self._told: set[str] = set()

    def on_start(self, session: Session) -> None:
        """Begin to count, after what was spent on the way here."""
        self._begun = dict(pulse.spent)
        self._before = dict(pulse.spent)
        self._first = session.number

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Note the seconds of the update before, whose callbacks are done by now; judge now and then."""
        before, self._before = self._before, dict(pulse.spent)
        new = {name: seconds - before.get(name, 0.0) for name, seconds in self._before.items()}
        data, update, waiting = new.pop(DATA, 0.0), new.pop(UPDATE, 0.0), new.pop(WAITING, 0.0)
        callbacks = sum(seconds for name, seconds in new.items() if name not in EXPECTED)
        found = Spent(data, update, callbacks, waiting)
        if step.number - self._first > WARM_UP:
            self._spent.append(found)
        if due(step.number - self._first, JUDGED_EVERY):
            self._judge()
        return None

    def _judge(self) -> None:
        for kind, words in troubles(list(self._spent)).items():
            if kind not in self._told:
                self._told.add(kind)
                log.warning(words)

    def on_end(self, session: Session, stop: Stop) -> None:
        """Say what was not said yet, and where the time went."""
        self._judge()
        seconds = {name: spent - self._begun.get(name, 0.0) for name, spent in pulse.spent.items()}
        if sum(seconds.values()) > 1.0:
            log.info(f"time: {shares(seconds)}")


def shares(seconds: Mapping[str, float]) -> str:
    """Say which share of the time went where, largest first; what is below half a percent is left out."""
    total = sum(seconds.values())
    shown = sorted(((spent / total, name) for name, spent in seconds.items() if spent / total >= 0.005), reverse=True)
    told = ", ".join(f"{NAMES.get(name, name)} {share:.0%}" for share, name in shown)
    return f"{format_seconds(total)}, of it {told}"


def troubles(spent: Sequence[Spent]) -> dict[str, str]:
    """Return what is wrong with the times of some updates, in words by kind; {} where nothing is."""
    found = {}
    data = _data_bound(spent)
    if data:
        found["data"] = data
    slow = _slow_every(spent)
    if slow:
        found["slow"] = slow
    return found


def _data_bound(spent: Sequence[Spent]) -> str:
    """Say whether updates wait for data.

    Where the device works on while the host waits for data, the host waits for the device all the longer when it asks
    for numbers; so data is what all wait for only where the latter is short.
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
    """Say whether one update in every so many is slow, and what makes it so."""
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
