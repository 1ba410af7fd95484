"""Accumulate the facts of updates between two readings, with the seconds spent training; used by every door."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from xdpx.engines.base import Facts
from xdpx.engines.origin import NonFiniteUpdate
from xdpx.reports.windows import Stopwatch, Window
from xdpx.utils.pulse import WAITING, pulse
from xdpx.utils.summands import summand

LOOKED_AT = ("loss_sum", "grad_norm")
"""Facts that tell that a training has diverged, when they are NaN or infinite."""

PLAIN = (float, int)
"""Types of facts that are on the host. A tuple: a union would be built again for each fact of each update."""

Fetch = Callable[[Facts], dict[str, float]]
"""Waits for the device and returns plain floats: `Engine.facts_to_host`."""

PENDING_AT_MOST = 512
"""Facts that may wait on the device before they are fetched, so that a large `log_interval` holds no memory."""


class Diverged(NonFiniteUpdate):
    """The loss or the gradient norm is NaN or infinite. No later checkpoint may be trusted."""


class MetricAccumulator:
    """Collects the facts of updates without waiting for the device, and fetches them when numbers are needed.

    Args:
        fetch: copies facts to the host; the only place that waits for the device.
        windows: names of the readers; each has its own `Window`, and empties it by `take`.
        tolerated: facts of `LOOKED_AT` that may be NaN or infinite: "grad_norm" where gradients sometimes overflow
            (fp16) and the update is skipped; the loss as well where non-finite updates are taken all the same.
    """

    def __init__(self, fetch: Fetch, *, windows: tuple[str, ...], tolerated: Collection[str] = ()) -> None:
        self.stopwatch = Stopwatch()
        self.last: dict[str, float] = {}
        self._fetch = fetch
        self._looked_at = [name for name in LOOKED_AT if name not in tolerated]
        self._windows = {name: Window() for name in windows}
        self._pending: list[tuple[int, Facts]] = []
        self._recorded: dict[str, tuple[Any, int]] = {}  # sums, which may still live on the device

    def add(self, number: int, facts: Facts) -> None:
        """Note the facts of update `number`."""
        self._pending.append((number, facts))
        if len(self._pending) >= PENDING_AT_MOST:
            self.settle()

    def record(self, name: str, value: object) -> None:
        """Add a value to the mean of `name`, any number of times per update; it may still be on the device."""
        total, count = self._recorded.get(name, (0.0, 0))
        self._recorded[name] = (total + summand(value), count + 1)

    def settle(self) -> None:
        """Fetch all pending facts from the device in one transfer, and add them to every window.

        Raises:
            Diverged: a loss or a gradient norm is NaN or infinite, and not `tolerated`.
        """
        pending, self._pending = self._pending, []
        recorded, self._recorded = self._recorded, {}
        flat = {
            f"{index} {name}": value
            for index, (_, facts) in enumerate(pending)
            for name, value in facts.items()
            if not isinstance(value, PLAIN)  # the host has them already
        }
        flat |= {f"recorded {name}": total for name, (total, _) in recorded.items()}
        with pulse.doing(WAITING, patience=1.0):
            numbers = self._fetch(flat) if flat else {}
        for index, (number, facts) in enumerate(pending):
            self._enter(
                number,
                {
                    name: float(value) if isinstance(value, PLAIN) else numbers[f"{index} {name}"]
                    for name, value in facts.items()
                },
            )
        sums = {name: (numbers[f"recorded {name}"], count) for name, (_, count) in recorded.items()}
        seconds = self.stopwatch.lap()
        for window in self._windows.values():
            window.record(sums)
            window.seconds += seconds

    def _enter(self, number: int, facts: dict[str, float]) -> None:
        if not all(isfinite(facts.get(name, 0.0)) for name in self._looked_at):
            raise Diverged(_report(number, facts, self.last), number)
        broken = not isfinite(facts.get("loss_sum", 0.0)) or not (
            isfinite(facts.get("grad_norm", 0.0)) or facts.get("skipped")
        )
        for window in self._windows.values():
            window.add(facts)
            window.nonfinite += [number] if broken else []
        self.last = facts

    def take(self, name: str) -> Window:
        """Settle, then return the window of one reader and start an empty one."""
        self.settle()
        window, self._windows[name] = self._windows[name], Window()
        return window

    def put_back(self, name: str, window: Window) -> None:
        """Return a taken window to its reader, in front of what has been added since."""
        window.join(self._windows[name])
        self._windows[name] = window

    def peek(self, name: str) -> Window:
        """Settle, then return the window of one reader without emptying it."""
        self.settle()
        return self._windows[name]

    def state_dict(self) -> dict[str, Any]:
        """Return the windows and the facts that are not in them yet, without waiting for the device.

        All values are plain if `settle` was called before; else some facts may still be on the device.
        """
        seconds = self.stopwatch.lap()
        for window in self._windows.values():
            window.seconds += seconds
        return {
            "windows": {name: asdict(window) for name, window in self._windows.items()},
            "last": dict(self.last),
            "pending": [[number, dict(facts)] for number, facts in self._pending],
            "recorded": {name: list(sums) for name, sums in self._recorded.items()},
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, with all facts as plain values."""
        self._windows = {name: Window(**saved["windows"][name]) for name in self._windows}
        self.last = dict(saved["last"])
        self._pending = [(int(number), facts) for number, facts in saved.get("pending", [])]
        self._recorded = {name: (total, count) for name, (total, count) in saved.get("recorded", {}).items()}


def _report(number: int, facts: Mapping[str, float], before: Mapping[str, float]) -> str:
    shown = ", ".join(f"{name} {value:g}" for name, value in sorted(facts.items()))
    last = ", ".join(f"{name} {value:g}" for name, value in sorted(before.items())) or "nothing"
    return (
        f"training diverged: the loss or gradient of step {number} is NaN or infinite ({shown}). Before it: {last}. "
        "Nothing was saved after it. Lower learning_rate, lengthen the warm-up, clip gradients more (clip_norm; "
        "max_grad_norm of a Trainer), or train without fp16."
    )
