"""What a run says: lines on the console and in its log file, bars, and numbers for the next row of the log tables.

`log` is the object everybody uses. Nothing is configured at import; a process that only imports this prints nothing.
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
from xdpx.utils.progress import Progress, is_quiet
from xdpx.utils.redaction import redact

T = TypeVar("T")
ReduceFunction = Callable[[list[Any]], Mapping[str, float]]
MARK = "| "
"""Every line of a log begins with this, as users' scripts expect."""

KEPT_VALUES, KEPT_CALLS = 4096, 512
"""Of a distribution so many numbers of a call are kept, and so many calls between two rows."""
PERCENTILES = (5, 25, 50, 75, 95)

NO_LOGS = frozenset({"vocab.txt", "word_vocab.txt", "target_map.txt"})
"""Names of other text files that lie beside logs."""


class _Console(logging.Handler):
    """Writes to standard error, above a bar when there is one. What goes well tells the master alone, if not quiet."""

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
    """Writes every line to a file, local or remote, with the time in front. Close it, or use it in a `with`."""

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
        """Say once that the log file cannot be written, and go on: a full disk must not stop a run by its log."""
        del record
        logging.getLogger("xdpx").removeHandler(self)
        log.warning(f"The log file cannot be written any more: {sys.exc_info()[1]}")

    def close(self) -> None:
        """Stop writing."""
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
    """Yield the handlers of a logger and of those above it, but none that writes to the console, where ours does."""
    above: logging.Logger | None = logger
    while above is not None:
        for handler in above.handlers:
            if getattr(handler, "stream", None) not in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
                yield handler
        above = above.parent if above.propagate else None


def warn_user(text: str, category: type[Warning]) -> None:
    """Raise one of Python's warnings for the line of the user's program that led here, however deep this is called."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "xdpx":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def wrong_name(name: str | None) -> str:
    """Say what is wrong with the name of a log file, '' when nothing is. Lines are added to it: it must be no other."""
    if name is None or ("/" not in name and name.endswith((".txt", ".log")) and name not in NO_LOGS):
        return ""
    return f"is '{name}'. Use a file name that ends in .txt or .log, e.g. log.txt; null for none."


class EarlyLines(logging.Handler):
    """Remembers every line until `open_file` is called: for a run that may be refused before it may write a log file.

    Use it in a `with`; that closes the file too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._records: list[logging.LogRecord] = []
        self._file: LogFile | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Remember one record."""
        self._records.append(record)

    def open_file(self, path: StrPath | None) -> None:
        """Write what was remembered to a log file, with its own times, and all that follows; None for no file."""
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
    """Lines, bars and summaries of this process."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("xdpx")
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._console = _Console()
        self._logger.addHandler(self._console)
        self._lock = threading.Lock()
        self._scoring = False
        self._summaries: dict[tuple[bool, str], tuple[Any, Any]] = {}  # by whether held-out data were scored
        self._accumulated: dict[tuple[str, str], tuple[ReduceFunction, list[tuple[bool, Any]]]] = {}
        self._samples: dict[tuple[bool, str], list[Any]] = {}  # of distributions, as they were given
        self._texts: dict[str, str] = {}
        self._figures: dict[str, bytes] = {}
        self._muted = False
        self._warned: set[str] = set()

    # ---- lines

    def info(self, text: str) -> None:
        """Tell something."""
        self._logger.info("%s", text)

    def warning(self, text: str, *, once: bool = False, under: str | None = None) -> None:
        """Tell something that the user should look at.

        Args:
            text: what.
            once: only the first time in this process.
            under: name of the logger that users of another library silence, filter or listen to for this.
        """
        if once and text in self._warned:
            return
        self._warned.add(text)
        if under is None:
            self._logger.warning("%s", text)
        else:
            self._pass_through(logging.getLogger(under), text)

    def _pass_through(self, logger: logging.Logger, text: str) -> None:
        """Tell a warning as a logger of another library would: by its level and filters, and to who listens there."""
        record = logger.makeRecord(logger.name, logging.WARNING, "", 0, "%s", (text,), None)
        if not (logger.isEnabledFor(record.levelno) and self._logger.isEnabledFor(record.levelno)):
            return
        if logger.filter(record):
            for handler in [*self._logger.handlers, *_listeners(logger)]:
                if record.levelno >= handler.level:
                    handler.handle(record)

    def speak_from(self, level: int) -> None:
        """Tell what is at least as grave as a level of `logging`, on this process, whatever its rank."""
        self._logger.setLevel(level)
        self._console.on_every_rank = True

    def early(self) -> EarlyLines:
        """Remember every line until it is known that a log file may be written, and where."""
        return EarlyLines()

    # ---- bars

    def progress(
        self, items: Iterable[T] = (), *, total: int | None = None, what: str = "", unit: str = "it"
    ) -> Progress[T]:
        """Return a bar over `items` (or counted by hand with `update`); plain lines where nobody watches."""
        return Progress(items, total=total, what=what, unit=unit, shown=is_master())

    # ---- summaries

    @contextmanager
    def scoring(self) -> Generator[None]:
        """Let what is added inside belong to the data that are scored there, not to training."""
        before, self._scoring = self._scoring, True
        try:
            yield
        finally:
            self._scoring = before

    def add_summary(self, name: str, value: Any, n: float = 1) -> None:
        """Add a number to the average shown in the next row of the training log; while scoring, in the row of scores.

        Args:
            name: of the column.
            value: a number or a tensor with one element; it is not read before the row is written, so the device
                need not be waited for.
            n: how many samples it stands for.
        """
        value = value.detach() if hasattr(value, "detach") else value
        with self._lock:
            if not self._muted:
                place = self._scoring, name
                total, count = self._summaries.get(place, (0.0, 0))
                self._summaries[place] = (total + value * n, count + n)

    def add_histogram(self, name: str, values: Any) -> None:
        """Add numbers to a distribution, of which the next row shows the quantiles as `<name>_p5` to `<name>_p95`.

        Args:
            name: of the distribution.
            values: a tensor or array of any shape. Of many only some are kept, evenly spread over them.
        """
        values = values.detach() if hasattr(values, "detach") else values
        flat = values.reshape(-1)
        flat = flat[:: max(1, len(flat) // KEPT_VALUES)]
        with self._lock:
            kept = self._samples.setdefault((self._scoring, name), [])
            if not self._muted and len(kept) < KEPT_CALLS:
                kept.append(flat)

    def add_text(self, name: str, text: str) -> None:
        """Note a text: the last one of each name stands in metrics.jsonl, beside the next row, and goes to trackers."""
        with self._lock:
            self._texts[name] = str(text)

    def add_figure(self, name: str, figure: Any) -> None:
        """Note a picture; the last one of each name is written to `plots/summaries` with the next row of training.

        Args:
            name: of the picture.
            figure: a figure of matplotlib, or the bytes of a PNG.
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
        """Let what is added inside count for nothing: a batch that only fills up the last round of all processes."""
        before, self._muted = self._muted, self._muted or not unless
        try:
            yield
        finally:
            self._muted = before

    def take_summaries(self) -> dict[str, float]:
        """Return the average of each summary of training since the last call, and begin anew. On all processes."""
        return self._averages(scored=False)

    def take_notes(self) -> tuple[dict[str, str], dict[str, bytes]]:
        """Return the texts and pictures (PNG) of this process since the last call, by name, and begin anew."""
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
        """Collect something at each step of an evaluation, to be reduced once at its end.

        What only training adds is reduced with the next evaluation; what both add, over the evaluation alone. Where
        several processes score, what all of them add is reduced, in the order of one process.

        Args:
            name: of the collection.
            values: what this step adds; anything that can be pickled.
            reduce_fn: takes the list of all `values`, gives {column: number}.
            prefix: put in front of each column.
        """
        with self._lock:
            collected = self._accumulated.setdefault((name, prefix), (reduce_fn, []))[1]
            if not self._muted:
                collected.append((self._scoring, values))

    def take_accumulated(self) -> dict[str, float]:
        """Reduce what was collected since the last call, average what was added while scoring, and begin anew.

        On all processes; each returns the same.
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


def _quantiles(name: str, numbers: list[float]) -> dict[str, float]:
    """Return the quantiles of a distribution by column, of the numbers in it that are finite."""
    finite = sorted(number for number in numbers if isfinite(number))
    if not finite:
        return {f"{name}_p{percent}": float("nan") for percent in PERCENTILES}
    last = len(finite) - 1
    return {f"{name}_p{percent}": finite[round(last * percent / 100)] for percent in PERCENTILES}


log = Log()

__all__ = ["MARK", "Log", "LogFile", "Progress", "log", "warn_user"]
