"""The rows of all runs below a folder, kept up to date by a thread that rescans the files."""

from __future__ import annotations

import heapq
import math
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from xdpx.board import kept_rows
from xdpx.board.finding import LOGS, RunFolder, folders_in, is_run, listing
from xdpx.board.summary import Summary, all_shown, compared, differences, lower_is_better, run_id, summary_of
from xdpx.training.status import STATUS_FILE
from xdpx.utils import io
from xdpx.utils.storage import scheme_of

HOT_SECONDS = 900
"""Runs that wrote something in the last `HOT_SECONDS` are rescanned every `SHORT_PAUSE` seconds, others less often."""
MOST_HOT = 500
SHORT_PAUSE, LONG_PAUSE = 1.0, 15.0
KEEPING_PAUSE = 600.0
SHARE = 0.05
"""The largest share of one core that rescanning may use in the long run."""
PAGE = 2_000
"""The most rows of one response."""
LOCAL_THREADS, REMOTE_THREADS = 4, 32
"""Number of folders scanned concurrently: each needs about ten disk accesses or requests to a remote store."""


@dataclass(frozen=True)
class _Known:
    """A run as of the last scan. `version` increases with each change of any run; `summary` is None if it is gone."""

    version: int
    stamp: object
    run: RunFolder
    summary: Summary | None


@dataclass(frozen=True)
class Changes:
    """Rows that changed after a version.

    Attributes:
        rows: of the runs; a run that is gone has only an id.
        headers: tuples of column names; a row refers by index to those of its logs.
        lower: those of these names of which a lower value is better.
        version: to request later changes with.
        more: whether there are more rows for the next response.
        total: number of runs.
        whole: whether all folders have been scanned once.
        common: per program, the settings relative to which the rows' settings are given.
    """

    rows: list[dict[str, object]]
    headers: list[tuple[str, ...]]
    lower: list[str]
    version: int
    more: bool
    total: int
    whole: bool
    common: dict[str, dict[str, str]]


class Index:
    """The runs below `root`.

    Args:
        root: local or remote.
    """

    def __init__(self, root: str) -> None:
        self.root = io.plain(root)
        self._runs: dict[str, _Known] = {}
        self._lock = threading.Lock()
        self._version = 0
        self._whole = False
        self._common: dict[str, dict[str, str]] = {}
        self._closed = threading.Event()
        self._threads = ThreadPoolExecutor(REMOTE_THREADS if scheme_of(self.root) else LOCAL_THREADS, "board")
        self._kept: dict[str, kept_rows.Kept] = {}
        self._written, self._written_at = -1, -math.inf

    # ---- scanning

    def refresh(self) -> None:
        """Scan all folders. The first time, cached rows are used for runs that have not changed since."""
        if not self._whole:
            self._kept, self._common = kept_rows.read(self.root)
        seen, level = set[str](), [self.root]
        while level:  # breadth-first, so that all folders of a level can be scanned concurrently
            deeper: list[str] = []
            for run, summary, inner in self._visited(level):
                if run is not None:
                    seen.add(run.path)
                    self._note(run, summary)
                deeper += inner
            level = deeper
        if self._closed.is_set():
            return
        for path in [path for path in self._runs if path not in seen]:
            self._forget(path)
        self._whole = True
        self._kept = {}
        if time.monotonic() > self._written_at + KEEPING_PAUSE:
            self.keep_rows()

    def keep_rows(self) -> None:
        """Write the rows to the cache, if any have changed since they were last written."""
        self._written_at = time.monotonic()
        with self._lock:
            version, known = self._version, list(self._runs.items())
        if version != self._written:
            rows = [(path, each.stamp, each.summary) for path, each in known if each.summary is not None]
            kept_rows.write(self.root, rows, self._common)
            self._written = version

    def refresh_hot(self) -> None:
        """Rescan the runs that wrote something recently."""
        now = time.time()
        with self._lock:
            shown = [(known.summary, path) for path, known in self._runs.items() if known.summary]
        moved = [(each.updated, path) for each, path in shown if now - each.updated < HOT_SECONDS]
        hot = [path for _, path in heapq.nlargest(MOST_HOT, moved)]
        for path, (run, summary, _) in zip(hot, self._visited(hot), strict=True):
            if run is not None:
                self._note(run, summary)
            elif not self._closed.is_set():
                self._forget(path)

    def keep_fresh(self) -> None:
        """Rescan until `close` is called; runs in a thread."""
        while not self._closed.is_set():
            begun = time.monotonic()
            self.refresh()
            took = time.monotonic() - begun
            until = time.monotonic() + max(LONG_PAUSE, took / SHARE)
            pause = SHORT_PAUSE
            while time.monotonic() < until and not self._closed.wait(pause):
                begun = time.monotonic()
                self.refresh_hot()
                pause = max(SHORT_PAUSE, (time.monotonic() - begun) / SHARE)
        self._threads.shutdown(wait=False)
        if self._whole:
            self.keep_rows()

    def close(self) -> None:
        """Stop `keep_fresh`."""
        self._closed.set()

    def _visited(self, folders: list[str]) -> Iterator[tuple[RunFolder | None, Summary | None, list[str]]]:
        """Visit folders in order: concurrently in the first scan and in stores; else serially, to keep answers fast."""
        together = not self._whole or bool(scheme_of(self.root))
        return (self._threads.map if together else map)(self._visit, folders)

    def _visit(self, folder: str) -> tuple[RunFolder | None, Summary | None, list[str]]:
        """Return the run in a folder, its row if it is new or changed, and the folders inside to scan next."""
        if self._closed.is_set():
            return None, None, []
        files = listing(folder)
        run = RunFolder(folder, files) if is_run(files) else None
        return run, self._news_of(run) if run else None, folders_in(files)

    def _news_of(self, run: RunFolder) -> Summary | None:
        """Return the row of a run; None if the known or cached row is still valid."""
        known, stamp = self._runs.get(run.path), _stamp(run)
        if known and known.stamp == stamp and known.summary and known.summary.state != "running":
            return None
        kept = self._kept.get(run.path)
        if known is None and kept is not None and kept[0] == kept_rows.mark(stamp):
            self._keep(run, stamp, kept[1])
            return None
        try:
            return summary_of(run, self.root)
        except Exception as error:
            return Summary(run_id(run.path), io.name(run.path), run.door, trouble=f"{type(error).__name__}: {error}")

    def _note(self, run: RunFolder, summary: Summary | None) -> None:
        """Store the result of a visit. Called in folder order, so that each program's first run is always the same."""
        if summary is None:
            return
        self._sparing(summary)
        known, stamp = self._runs.get(run.path), _stamp(run)
        if known and known.summary == summary:
            self._runs[run.path] = replace(known, stamp=stamp, run=run)
            return
        self._keep(run, stamp, summary)

    def _forget(self, path: str) -> None:
        known = self._runs[path]
        if known.summary is not None:
            self._keep(known.run, None, None)

    def _keep(self, run: RunFolder, stamp: object, summary: Summary | None) -> None:
        with self._lock:
            self._version += 1
            self._runs[run.path] = _Known(self._version, stamp, run, summary)

    def _sparing(self, summary: Summary) -> None:
        """Keep only the settings that differ from those of the program's first run, to save memory: most are equal."""
        if summary.settings:
            if summary.door not in self._common:
                self._common[summary.door] = compared(summary.settings)
            summary.settings = differences(summary.settings, self._common[summary.door])
        summary.train, summary.valid = [list(map(sys.intern, names)) for names in (summary.train, summary.valid)]

    # ---- answering

    def since(self, version: int, most: int = PAGE) -> Changes:
        """Return the rows that changed after a version, oldest change first."""
        with self._lock:
            changed = sorted((known for known in self._runs.values() if known.version > version), key=_version)
            if version == 0:
                changed = [known for known in changed if known.summary]
            shown, newest = changed[:most], self._version
            total = sum(known.summary is not None for known in self._runs.values())
        more = len(changed) > len(shown)
        common = {door: all_shown(settings) for door, settings in list(self._common.items())}
        headers: dict[tuple[str, ...], int] = {}
        rows: list[dict[str, object]] = [
            known.summary.facts(headers) if known.summary else {"id": run_id(known.run.path), "gone": True}
            for known in shown
        ]
        last = shown[-1].version if more else newest
        return Changes(rows, list(headers), lower_is_better(headers), last, more, total, self._whole, common)

    def find(self, name: str) -> RunFolder | None:
        """Return the run with an id; None if there is none."""
        with self._lock:
            known = next((known for known in self._runs.values() if known.summary and known.summary.id == name), None)
        return known.run if known else None

    def all_of(self, names: list[str]) -> Iterator[tuple[str, RunFolder]]:
        """Yield (id, run) for those of the ids that exist."""
        wanted = set(names)
        with self._lock:
            found = [
                (known.summary.id, known.run)
                for known in self._runs.values()
                if known.summary and known.summary.id in wanted
            ]
        yield from found


def _version(known: _Known) -> int:
    return known.version


def _stamp(run: RunFolder) -> object:
    """Return a value that changes whenever anything changes that a row is made from."""
    names = (*LOGS, STATUS_FILE, "args.py", run.newest_checkpoint)
    entries = [run.files.get(name) for name in names]
    return tuple((entry.size, entry.tag) if entry else None for entry in entries), len(run.files)
