"""The log of a run: lines on the console and in its log file, progress bars, and values for the tables of metrics.

`log` is the object that all modules use. Importing this module prints nothing and leaves the root logger alone.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from io import BytesIO
from itertools import zip_longest
from math import isfinite
from typing import IO, Any, Self, TypeVar

from xdpx.utils.distributed_utils import gather_objects, is_master
from xdpx.utils.paths import StrPath
from xdpx.utils.progress import ProgressBar, is_quiet
from xdpx.utils.redaction import redact
from xdpx.utils.summands import summand

T = TypeVar("T")
ReduceFunction = Callable[[list[Any]], Mapping[str, float]]
MARK = "| "
"""Prefix of every log line, which scripts of users rely on."""

KEPT_VALUES, KEPT_CALLS = 4096, 512
"""Approximate number of values of a distribution kept per call, and maximum number of calls kept between two rows."""
PERCENTILES = (5, 25, 50, 75, 95)

NO_LOGS = frozenset({"vocab.txt", "word_vocab.txt", "target_map.txt"})
"""Names of other text files in the same folders, which a log must not have."""


class _Console(logging.Handler):
    """Writes to standard error, above any progress bar. Below warnings only on the master, and not if quiet."""

    on_every_rank = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING and (is_quiet() or not (self.on_every_rank or is_master())):
            return
        _write_line(_marked(_text_of(record)))


def _write_line(text: str) -> None:
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if tqdm is not None and getattr(tqdm, "_instances", None):
        tqdm.write(text, file=sys.stderr)
    elif sys.stderr is not None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _text_of(record: logging.LogRecord) -> str:
    text = redact(record.getMessage())
    return f"{record.levelname.lower()}: {text}" if record.levelno >= logging.WARNING else text


def _marked(text: str, stamp: str = "") -> str:
    return "\n".join(f"{MARK}{stamp}{line}".rstrip() for line in (text.splitlines() or [""]))


class LogFile(logging.Handler):
    """Appends every line, with a timestamp, to a file, local or remote. A context manager that closes the file."""

    def __init__(self, path: StrPath) -> None:
        super().__init__()
        from xdpx.utils.replacing import adding

        self._file: IO[Any] = adding(path)
        logging.getLogger("xdpx").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record and flush it."""
        stamp = datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="seconds")
        try:
            self._file.write(_marked(_text_of(record), f"{stamp} ") + "\n")
            self._file.flush()
        except (OSError, ValueError):
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Warn once that the log file cannot be written, and stop writing: the run goes on, e.g. with a full disk."""
        del record
        logging.getLogger("xdpx").removeHandler(self)
        log.warning(f"The log file cannot be written any more: {sys.exc_info()[1]}")

    def close(self) -> None:
        """Close the file, and detach this handler."""
        logging.getLogger("xdpx").removeHandler(self)
        try:
            self._file.close()
        except OSError as error:
            log.warning(f"The end of the log file could not be written: {error}")
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listeners(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers of a logger and its parents, except those of the console, which `_Console` writes to."""
    above: logging.Logger | None = logger
    while above is not None:
        for handler in above.handlers:
            if getattr(handler, "stream", None) not in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
                yield handler
        above = above.parent if above.propagate else None


def warn_user(text: str, category: type[Warning]) -> None:
    """Issue a Python warning that is attributed to the innermost caller outside of xdpx."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "xdpx":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def wrong_name(name: str | None) -> str:
    """Return what is wrong with the name of a log file, '' if nothing is; it must not be that of another file."""
    if name is None or ("/" not in name and name.endswith((".txt", ".log")) and name not in NO_LOGS):
        return ""
    return f"is '{name}'. Use a file name that ends in .txt or .log, e.g. log.txt; null for none."


class EarlyLines(logging.Handler):
    """Buffers all lines until `open_file` is called, for a run that may be refused before it has a log file.

    A context manager that closes the file too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._records: list[logging.LogRecord] = []
        self._file: LogFile | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Buffer one record, until `open_file` is called."""
        self._records.append(record)

    def open_file(self, path: StrPath | None) -> None:
        """Write the buffered lines, with their original times, and all later ones to a log file; None: no file."""
        logging.getLogger("xdpx").removeHandler(self)
        records, self._records = self._records, []
        if path is None:
            return
        self._file = LogFile(path)
        for record in records:
            self._file.handle(record)

    def __enter__(self) -> Self:
        logging.getLogger("xdpx").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("xdpx").removeHandler(self)
        if self._file is not None:
            self._file.close()


class Log:
    """The log lines, progress bars and summaries of this process."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("xdpx")
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._console = _Console()
        self._logger.addHandler(self._console)
        self._lock = threading.Lock()
        self._scoring = False
        self._summaries: dict[tuple[bool, str], tuple[Any, Any]] = {}  # (during evaluation, name): (total, count)
        self._accumulated: dict[tuple[str, str], tuple[ReduceFunction, list[tuple[bool, Any]]]] = {}
        self._samples: dict[tuple[bool, str], list[Any]] = {}  # (during evaluation, name): tensors of a distribution
        self._texts: dict[str, str] = {}
        self._figures: dict[str, bytes] = {}
        self._muted = False
        self._warned: set[str] = set()

    # ---- lines

    def info(self, text: str, *, once: bool = False) -> None:
        """Log a line; with `once`, skip it if this process has logged the same text before."""
        if once and text in self._warned:
            return
        if once:
            self._warned.add(text)
        self._logger.info("%s", text)

    def warning(self, text: str, *, once: bool = False, under: str | None = None) -> None:
        """Log a warning.

        Args:
            text: the warning.
            once: skip it if this process has logged the same text before.
            under: name of a logger of another library, whose level, filters and handlers also apply.
        """
        if once and text in self._warned:
            return
        self._warned.add(text)
        if under is None:
            self._logger.warning("%s", text)
        else:
            self._pass_through(logging.getLogger(under), text)

    def _pass_through(self, logger: logging.Logger, text: str) -> None:
        """Log a warning subject to the level and filters of another library's logger, to its handlers too."""
        record = logger.makeRecord(logger.name, logging.WARNING, "", 0, "%s", (text,), None)
        if not (logger.isEnabledFor(record.levelno) and self._logger.isEnabledFor(record.levelno)):
            return
        if logger.filter(record):
            for handler in [*self._logger.handlers, *_listeners(logger)]:
                if record.levelno >= handler.level:
                    handler.handle(record)

    def log_from(self, level: int) -> None:
        """Log everything from this level of `logging` on, to the console on any rank."""
        self._logger.setLevel(level)
        self._console.on_every_rank = True

    def early(self) -> EarlyLines:
        """Return a handler that buffers all lines until the path of the log file is known."""
        return EarlyLines()

    # ---- bars

    def progress(
        self, items: Iterable[T] = (), *, total: int | None = None, what: str = "", unit: str = "it"
    ) -> ProgressBar[T]:
        """Return a progress bar over `items` (or advanced by `update`); it logs lines if there is no terminal."""
        return ProgressBar(items, total=total, what=what, unit=unit, shown=is_master())

    # ---- summaries

    @contextmanager
    def scoring(self) -> Generator[None]:
        """Attribute summaries that are added in the block to an evaluation instead of training."""
        before, self._scoring = self._scoring, True
        try:
            yield
        finally:
            self._scoring = before

    def add_summary(self, name: str, value: Any, n: float = 1) -> None:
        """Add a value to the average in the next row of the training log, or in that of the evaluation in `scoring`.

        Args:
            name: of the column.
            value: a number or a tensor with one element; a tensor is read only when the row is written, so there is
                no synchronisation with the device.
            n: weight in the average: number of samples of the value.

        Raises:
            ValueError: the value has several elements, or none.
        """
        value = summand(value)
        elements = value.numel() if hasattr(value, "numel") else getattr(value, "size", 1)
        if elements != 1:
            raise ValueError(f"add_summary: '{name}' has {elements} elements. Give one number, such as value.mean().")
        with self._lock:
            if not self._muted:
                place = self._scoring, str(name)
                total, count = self._summaries.get(place, (0.0, 0))
                self._summaries[place] = (total + value * n, count + n)

    def add_histogram(self, name: str, values: Any) -> None:
        """Add values to a distribution, whose quantiles are in the next row as `<name>_p5` to `<name>_p95`.

        Args:
            name: of the distribution.
            values: a tensor or array of any shape; if it is large, an evenly spaced subset is kept.
        """
        values = values.detach() if hasattr(values, "detach") else values
        flat = values.reshape(-1)
        flat = flat[:: max(1, len(flat) // KEPT_VALUES)]
        with self._lock:
            kept = self._samples.setdefault((self._scoring, name), [])
            if not self._muted and len(kept) < KEPT_CALLS:
                kept.append(flat)

    def add_text(self, name: str, text: str) -> None:
        """Add a text; the last one of each name is written to metrics.jsonl with the next row, and sent to trackers."""
        with self._lock:
            self._texts[name] = str(text)

    def add_figure(self, name: str, figure: Any) -> None:
        """Add a figure; the last one of each name is written to `plots/summaries` with the next row of training.

        Args:
            name: of the figure.
            figure: a matplotlib figure, or the bytes of a PNG.
        """
        if not is_master():
            return
        if not isinstance(figure, bytes):
            buffer = BytesIO()
            figure.savefig(buffer, format="png")
            figure = buffer.getvalue()
        with self._lock:
            self._figures[name] = figure

    @contextmanager
    def muted(self, *, unless: bool = False) -> Generator[None]:
        """Ignore summaries that are added in the block, for a batch that only pads the last round of all processes.

        Args:
            unless: True: do not ignore them.
        """
        before, self._muted = self._muted, self._muted or not unless
        try:
            yield
        finally:
            self._muted = before

    def take_summaries(self) -> dict[str, float]:
        """Return the averages of the training summaries since the last call, and reset; call it on all processes."""
        return self._averages(scored=False)

    def take_notes(self) -> tuple[dict[str, str], dict[str, bytes]]:
        """Return (texts, PNG figures) of this process since the last call, by name, and reset."""
        with self._lock:
            found = self._texts, self._figures
            self._texts, self._figures = {}, {}
        return found

    def _averages(self, *, scored: bool) -> dict[str, float]:
        with self._lock:
            sums = {name: self._summaries.pop((of, name)) for of, name in list(self._summaries) if of == scored}
            drawn = {name: self._samples.pop((of, name)) for of, name in list(self._samples) if of == scored}
        own = {name: (float(total), float(count)) for name, (total, count) in sums.items()}
        samples = {name: [number for part in parts for number in part.tolist()] for name, parts in drawn.items()}
        totals: dict[str, tuple[float, float]] = {}
        values: dict[str, list[float]] = {}
        for of_rank, samples_of_rank in gather_objects((own, samples)):
            for name, (total, count) in of_rank.items():
                before = totals.get(name, (0.0, 0.0))
                totals[name] = (before[0] + total, before[1] + count)
            for name, some in samples_of_rank.items():
                values.setdefault(name, []).extend(some)
        found = {name: total / count if count else float("nan") for name, (total, count) in totals.items()}
        for name, numbers in values.items():
            found |= _quantiles(name, numbers)
        return found

    def add_accumulative_summary(self, name: str, values: object, reduce_fn: ReduceFunction, prefix: str = "") -> None:
        """Collect values at each step of an evaluation, to reduce them once at its end.

        Values of training are reduced at the next evaluation, unless that has added some under the same name: then only
        those count. Values of all processes are reduced together, in the order in which a single process would add
        them.

        Args:
            name: of the collection.
            values: of this step; anything that can be pickled.
            reduce_fn: returns {column: number} for the list of all `values`.
            prefix: of the names of the columns.
        """
        with self._lock:
            collected = self._accumulated.setdefault((name, prefix), (reduce_fn, []))[1]
            if not self._muted:
                collected.append((self._scoring, values))

    def take_accumulated(self) -> dict[str, float]:
        """Return the reduced collections and the averages of `scoring` since the last call, and reset.

        Call it on all processes; all return the same.
        """
        found = self._averages(scored=True)
        with self._lock:
            taken, self._accumulated = self._accumulated, {}
        of_ranks = gather_objects({place: collected for place, (_, collected) in taken.items()})
        for (name, prefix), (reduce_fn, _) in taken.items():
            rounds = zip_longest(*(each.get((name, prefix), []) for each in of_ranks))
            collected = [one for each in rounds for one in each if one is not None]
            of_scoring = any(scored for scored, _ in collected)
            values = [values for scored, values in collected if scored == of_scoring]
            if values:
                found |= {f"{prefix}{column}": float(value) for column, value in reduce_fn(values).items()}
        return found

    def forget_scored(self) -> None:
        """Drop what was added in `scoring` since the last evaluation: this one is cut short, and does not count."""
        with self._lock:
            self._summaries = {place: sums for place, sums in self._summaries.items() if not place[0]}
            self._samples = {place: drawn for place, drawn in self._samples.items() if not place[0]}
            for _, collected in self._accumulated.values():
                collected[:] = [one for one in collected if not one[0]]


def _quantiles(name: str, numbers: list[float]) -> dict[str, float]:
    """Return the quantiles of the finite values of a distribution by column; NaN if there are none."""
    finite = sorted(number for number in numbers if isfinite(number))
    if not finite:
        return {f"{name}_p{percent}": float("nan") for percent in PERCENTILES}
    last = len(finite) - 1
    return {f"{name}_p{percent}": finite[round(last * percent / 100)] for percent in PERCENTILES}


log = Log()

__all__ = ["MARK", "Log", "LogFile", "ProgressBar", "log", "warn_user"]
