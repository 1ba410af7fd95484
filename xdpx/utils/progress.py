"""Progress bars with the remaining time, or log lines every 30 seconds outside of terminals and notebooks."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 30.0
_logger = logging.getLogger("xdpx.progress")


_QUIET = "XDPX_QUIET"
"""An environment variable, so that child processes inherit the setting."""


def is_quiet() -> bool:
    """Return whether the console shows only warnings, and no bars."""
    return bool(os.environ.get(_QUIET))


@contextmanager
def quietly(*, wanted: bool) -> Generator[None]:
    """Show only warnings on the console inside the block, if `wanted`; log files still get every line."""
    before = os.environ.get(_QUIET)
    if wanted:
        os.environ[_QUIET] = "1"
    try:
        yield
    finally:
        if wanted and before is None:
            del os.environ[_QUIET]


def on_terminal() -> bool:
    """Return whether standard error is a terminal and the console is not quiet."""
    return bool(sys.stderr and sys.stderr.isatty()) and not is_quiet()


def in_notebook() -> bool:
    """Return whether this process is a notebook kernel, whose page can show a bar without being a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def format_seconds(seconds: float) -> str:
    """Return a duration as text for people: `42 s`, `3 min 05 s`, `2 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_bytes(count: float) -> str:
    """Return a number of bytes as text for people, in powers of 1024: `512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class ProgressBar(Generic[T]):
    """Counts and shows progress: a bar on a terminal or in a notebook, a log line every 30 seconds elsewhere.

    Iterate over it to count `items`, or call `update` by hand. Use it as a context manager, or `close` it.

    Args:
        items: to iterate over.
        total: number of units; by default the length of `items`, None if unknown.
        what: label in front.
        unit: of the count; `B` is shown as KiB, MiB and so on.
        shown: False to only count.
    """

    def __init__(
        self, items: Iterable[T] = (), *, total: int | None = None, what: str = "", unit: str = "it", shown: bool = True
    ) -> None:
        self.items = items
        self.total = total if total is not None else _length(items)
        self.what, self.unit = what, unit
        self.done = 0
        self._note = ""
        self._start = self._last_line = time.monotonic()
        self._start_done = 0
        self._shown = shown
        self._bar = self._make_bar() if shown and (on_terminal() or in_notebook()) else None

    def _make_bar(self) -> Any:
        from tqdm import tqdm

        in_bytes = self.unit == "B"
        return tqdm(
            total=self.total, desc=self.what or None, unit=self.unit, unit_scale=in_bytes, unit_divisor=1024,
            dynamic_ncols=True, leave=False, file=sys.stderr,
        )  # fmt: skip

    def start_at(self, done: int) -> None:
        """Record that `done` units were done before: they count for the percentage, not for the speed."""
        self.done = self._start_done = done
        if self._bar is not None:
            self._bar.initial = self._bar.n = done
            self._bar.refresh()

    def update(self, count: int = 1) -> None:
        """Count `count` more units."""
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
        elif self._shown and time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            _logger.info(str(self))

    def note(self, text: str) -> None:
        """Show `text` behind the numbers, e.g. the current loss and the best score."""
        self._note = text
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()

    def __iter__(self) -> Iterator[T]:
        with self:
            for item in self.items:
                yield item
                self.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        amount = format_bytes if self.unit == "B" else lambda count: f"{count:,.0f}"
        rate = (self.done - self._start_done) / max(time.monotonic() - self._start, 1e-9)
        speed = f"{amount(rate)}/s" if self.unit == "B" else f"{rate:,.1f} {self.unit}/s"
        parts = [f"{amount(self.done)} {'' if self.unit == 'B' else self.unit}".strip(), speed]
        if self.total:
            parts[0] = f"{self.done / self.total:.1%} ({amount(self.done)} of {amount(self.total)})"
            if rate > 0:
                parts.append(f"{format_seconds(max(self.total - self.done, 0) / rate)} left")
        if self._note:
            parts.append(self._note)
        return f"{self.what}: {', '.join(parts)}" if self.what else ", ".join(parts)


def _length(items: object) -> int | None:
    return len(items) if hasattr(items, "__len__") and items != () else None
