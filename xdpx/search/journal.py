"""The journal of a search on disk: a line per order and result, synced before it takes effect, so nothing is lost.

    {"search": 1, "facts": {...}, "crc": "..."}           identifies the search: a journal continues no other one
    {"order": 0, "trial": 0, "values": {...}, ...}        written before the order is handed out
    {"result": 0, "samples": 100, "score": 0.7, ...}      written before the search consumes it

A killed search is replayed: the results are passed to it again in the order of the journal, and give the same orders.
"""

from __future__ import annotations

import contextlib
import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.hints import shown
from xdpx.search.search import Search
from xdpx.search.spaces import Values
from xdpx.search.trials import Order, Result
from xdpx.utils.commit import Lease, write_bytes
from xdpx.utils.io_utils import io
from xdpx.utils.paths import StrPath
from xdpx.utils.replacing import adding

FORMAT = 1
FILE_NAME = "search.jsonl"
DATA = "data"
"""Fact with the digests of the files that trials are trained and scored on, by path."""
ADVICE = "Restore the file, or choose another folder to start over."
Line = dict[str, Any]
Build = Callable[[Mapping[int, Values]], Search]
"""Makes the search, given {trial number: values} from the journal."""


class Journal:
    """A search that survives the end of its process. A context manager: while open, only this process may write.

    Args:
        folder: of `search.jsonl`, which is created if missing; any path.
        facts: everything that determines the search, as plain values: space, names and parameters, seed, number of
            trials, base config. A journal with other facts is refused. Under `DATA`, the digests of files by path;
            some may be missing there or here.
        build: makes the search.
        lease: whether to take the lease of the folder; False if the caller holds it.

    Attributes:
        search: the search, in the state that the journal records.
    """

    search: Search

    def __init__(self, folder: StrPath, *, facts: Mapping[str, object], build: Build, lease: bool = True) -> None:
        self.path = io.join(io.plain(folder), FILE_NAME)
        self._facts = json.loads(json.dumps(facts))
        self._build = build
        self._lease = Lease(folder) if lease else None
        self._known_orders = 0
        self._lines: list[bytes] = []
        """All lines so far, for file systems that cannot append."""

    def __enter__(self) -> Self:
        if self._lease:
            self._lease.acquire()
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lease:
            self._lease.release()

    def tell(self, result: Result) -> None:
        """Write a result, then pass it to the search; the orders that follow are written before this returns.

        Raises:
            ValueError: no such order is open, or it was not carried out to its end.
            OSError: a line could not be written; if it is the result, the search has not consumed it.
        """
        if self._lease:
            self._lease.check()
        self.search.check(result)
        self._append([_result_line(result)])
        self.search.tell(result)
        self._keep_new_orders()

    def differences(self) -> list[Fault]:
        """Return the facts that differ from those of the search in the folder; [] if it holds none. Writes nothing."""
        if not io.isfile(self.path):
            return []
        with io.open(self.path, "rb") as file:
            first = _checked(bytes(file.readline()))
        return [] if first is None or first.get("search") != FORMAT else self._differences(first)

    # ---- opening

    def _open(self) -> None:
        """Read and replay the journal, and write what is missing; begin a new one if there is none.

        Raises:
            ConfigError: it is the journal of another search.
            OSError: it is damaged before its last line, of another format, or its replay gives other orders.
        """
        lines = self._read()
        if not lines:
            self.search = self._build({})
            self._append([{"search": FORMAT, "facts": self._facts}])
            self._keep_new_orders()
            return
        self._check_facts(lines[0])
        orders = [line for line in lines if "order" in line]
        self.search = self._build({line["trial"]: line["values"] for line in orders})
        for line in lines[1:]:
            if "result" in line:
                self._replay(_result_of(line))
        self._check_orders(orders)
        self._known_orders = len(orders)
        self._keep_new_orders()

    def _replay(self, result: Result) -> None:
        """Pass a result of the journal to the search; raise OSError if it does not fit to the lines before it."""
        try:
            self.search.tell(result)
        except ConfigError:  # of a user's own tuner or schedule
            raise
        except ValueError as error:
            problem = f"a line is missing or duplicated, or another version wrote it: {error}"
            raise OSError(f"{self.path}: {problem} {ADVICE}") from error

    def _read(self) -> list[Line]:
        """Return the complete lines; a truncated last line, left by a killed writer, is removed from the file."""
        if not io.isfile(self.path):
            return []
        with io.open(self.path, "rb") as file:
            content = bytes(file.read())
        whole, found = content.splitlines(keepends=True), list[Line]()
        for number, text in enumerate(whole, start=1):
            line = _checked(text)
            if line is None and number < len(whole):
                raise OSError(f"{self.path}: line {number} is damaged, and {len(whole) - number} follow it. {ADVICE}")
            if line is None:
                self._cut_to(b"".join(whole[:-1]))
                whole.pop()
                break
            found.append(line)
        self._lines = whole
        return found

    def _cut_to(self, content: bytes) -> None:
        write_bytes(self.path, content)

    def _check_facts(self, first: Line) -> None:
        if first.get("search") != FORMAT:
            raise OSError(f"{self.path}: is not a journal of a search that this version can read (format {FORMAT}).")
        faults = self._differences(first)
        if faults:
            raise ConfigError(self.path, faults)

    def _differences(self, first: Line) -> list[Fault]:
        before, now = _flattened(first["facts"]), _flattened(self._facts)
        changed = [key for key in {**before, **now} if key not in before or key not in now or before[key] != now[key]]
        there = f"the search in {io.parent(self.path)}"
        remedy = "Put it back to continue the search, or choose another folder to start over."
        faults = []
        for key in changed:
            if key.startswith(f"{DATA}."):
                if key in before and key in now:
                    path = key.removeprefix(f"{DATA}.")
                    faults.append(Fault("data_dir", f"'{path}' was rebuilt after {there} was started.", remedy))
                continue
            problem = f"is {_told(now, key)}, but {there} was started with {_told(before, key)}."
            faults.append(Fault(CONFIG_KEYS.get(key, key), problem, remedy))
        return faults

    def _check_orders(self, orders: list[Line]) -> None:
        """Raise OSError if the replayed orders differ from those in the journal: continuing would mix two searches."""
        for line, order in zip(orders, self.search.orders, strict=False):
            if line != _order_line(order):
                raise OSError(
                    f"{self.path}: order {order.number} was trial {line['trial']} to {line['samples']} samples, and "
                    f"now it is trial {order.trial} to {order.samples}. Continue with the version of xdpx, and of "
                    "your own schedule, that started it."
                )
        if len(orders) > len(self.search.orders):
            raise OSError(f"{self.path}: has {len(orders)} orders, but its results imply {len(self.search.orders)}.")

    # ---- writing

    def _keep_new_orders(self) -> None:
        new = self.search.orders[self._known_orders :]
        if new:
            self._append([_order_line(order) for order in new])
        self._known_orders += len(new)

    def _append(self, lines: Iterable[Line]) -> None:
        """Append lines and sync them to disk. A remote store cannot append: there the whole file is rewritten."""
        texts = [_sealed(line) for line in lines]
        self._lines += texts
        if not io.islocal(self.path):
            write_bytes(self.path, b"".join(self._lines))
            return
        is_new = not io.isfile(self.path)
        try:
            with adding(self.path) as file:
                file.write(b"".join(texts).decode())
                io.local_files.sync(file)
        except OSError:
            self._lines = self._lines[: -len(texts)]
            with contextlib.suppress(OSError):  # a partial line would damage the lines that follow
                self._cut_to(b"".join(self._lines))
            raise
        if is_new:
            io.local_files.sync_folder(io.parent(self.path))


def facts_of(search: Search) -> dict[str, object]:
    """Return what determines a search, for `Journal(facts=...)`; the caller adds what determines a trial's training."""
    budget, tuner, schedule = search.schedule.budget, search.tuner, search.schedule
    return {
        "space": search.space.describe(),
        "tuner": type(tuner).__name__,
        **{f"tuner.{key}": value for key, value in tuner.parameters.model_dump().items()},
        "schedule": type(schedule).__name__,
        **{f"schedule.{key}": value for key, value in schedule.parameters.model_dump().items()},
        "seed": tuner.seed,
        "direction": search.direction,
        "max_trials": search.max_trials,
        "parallel": search.parallel,
        "total_samples": budget.total,
        "samples_per_step": budget.per_step,
        "samples_per_epoch": budget.per_epoch,
    }


CONFIG_KEYS = {"parallel": "parallel_runs"}
"""Fact -> its key in configs, where the names differ. The fact keeps its name, which older journals hold."""


# ---- lines


def _sealed(line: Line) -> bytes:
    """Return a line as bytes, with its checksum."""
    body = json.dumps(line, sort_keys=True, ensure_ascii=True)
    return f"{json.dumps({**line, 'crc': _crc(body)}, sort_keys=True)}\n".encode()


def _crc(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


def _checked(text: bytes) -> Line | None:
    """Return a line without its checksum; None if it is incomplete or damaged."""
    if not text.endswith(b"\n"):
        return None
    try:
        line: Line = json.loads(text)
        found = line.pop("crc")
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
    return line if found == _crc(json.dumps(line, sort_keys=True, ensure_ascii=True)) else None


def _order_line(order: Order) -> Line:
    line: Line = {"order": order.number, "trial": order.trial, "samples": order.samples, "begin": order.begin}
    return {**line, "values": order.values}


def _result_line(result: Result) -> Line:
    history = [[int(seen), float(score)] for seen, score in result.history if math.isfinite(score)]
    score = None if result.score is None or not math.isfinite(result.score) else float(result.score)
    return {
        "result": result.order, "samples": int(result.samples), "score": score, "history": history,
        "ended": bool(result.ended), "note": result.note,
    }  # fmt: skip


def _result_of(line: Line) -> Result:
    history = tuple((seen, score) for seen, score in line["history"])
    return Result(line["result"], line["samples"], line["score"], history, line["ended"], line["note"])


def _flattened(facts: Mapping[str, object]) -> dict[str, object]:
    """Return facts with flattened tables (`space.dropout`), so that messages can name the entry that differs."""
    found: dict[str, object] = {}
    for key, value in facts.items():
        found |= {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
    return found


def _told(facts: Mapping[str, object], key: str) -> str:
    return shown(facts[key]) if key in facts else "not set"
