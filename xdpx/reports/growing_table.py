"""A tab separated log that can gain rows and columns without shifting any cell."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Mapping

from xdpx.reports.metric_lines import MetricLines, Phase
from xdpx.utils import commit, io
from xdpx.utils.aside import is_unreadable, set_aside
from xdpx.utils.local_files import BLOCK, lines_from_end
from xdpx.utils.owners import temporary_name
from xdpx.utils.replacing import adding

Cell = str | int | float | None
_BREAKS = re.compile(r"[\t\n\r]+")
LONGEST_HEADER = 1 << 20


class GrowingTable:
    """A file with a header that rows are appended to. A new column rewrites it atomically, with old rows padded.

    A local file is appended to row by row. For a store without append, rows are collected in a local file, which
    `flush` uploads as a whole. An existing file is continued; of a damaged one, the complete rows are kept.

    Args:
        path: of the file.
        lines: also receives each row; None for no second log.
        phase: of the rows, as recorded in `lines`.
    """

    def __init__(self, path: str, *, lines: MetricLines | None = None, phase: Phase = "train") -> None:
        self.path = path
        self._lines, self._phase = lines, phase
        self._file = path if io.islocal(path) else temporary_name(io.join(io.cache.spool(), io.name(path)))
        self._dirty = False
        self._fetch()
        self.columns = self._mended_header()

    def _fetch(self) -> None:
        """Download an existing remote file into the local one."""
        if self._file != self.path and io.isfile(self.path):
            io.copy(self.path, self._file)

    def append(self, row: Mapping[str, Cell], *, more: Mapping[str, str] | None = None) -> None:
        """Append a row; columns that it does not name stay empty. `more` is written to the JSON lines only."""
        row = {_in_one_cell(name): cell for name, cell in row.items()}
        new = [name for name in row if name not in self.columns]
        if new:
            self._rewrite([*self.columns, *new], _whole_lines(self._file, len(self.columns)))
        with adding(self._file) as log_file:
            log_file.write("\t".join(_text(row.get(column)) for column in self.columns) + "\n")
        self._dirty = True
        if self._lines is not None:
            self._lines.append(self._phase, {**row, **(more or {})})

    def drop_after(self, step: int) -> int:
        """Drop the rows of later steps, which a resumed run will write again, and return how many there were.

        Steps increase, so the file is read from its end.
        """
        if self._lines is not None:
            self._lines.drop_after(self._phase, step)
        if "step" not in self.columns:
            return 0
        index, dropped = self.columns.index("step"), 0
        with io.open(self._file, "r+b") as log_file:
            end = header_end = len(log_file.readline())
            for start, line in lines_from_end(log_file, header_end):
                found = _step_in(line, index, len(self.columns))
                if found is not None and found <= step:
                    end = start + len(line)
                    break
                dropped += found is not None
            if end != log_file.seek(0, 2):
                log_file.truncate(end)
                self._dirty = True
        return dropped

    def flush(self) -> None:
        """Make sure that every row has reached the file."""
        if self._dirty and self._file != self.path:
            io.copy(self._file, self.path)
        self._dirty = False
        if self._lines is not None:
            self._lines.flush()

    def _rewrite(self, columns: list[str], lines: Iterator[str]) -> None:
        padding = "\t" * (len(columns) - len(self.columns)) if self.columns else ""
        with commit.replacing(self._file, own=True) as target:
            target.write("\t".join(columns) + "\n")
            target.writelines(f"{line}{padding}\n" for line in lines)
        self.columns, self._dirty = columns, True

    def _mended_header(self) -> list[str]:
        """Return the columns of the existing file. A damaged file is set aside and its complete rows are rewritten."""
        if os.path.islink(self._file):  # in a folder from elsewhere, a link may point anywhere
            set_aside(self._file, "is a link", then="a new one is started")
        if not io.exists(self._file):
            return []
        trouble = _trouble_of(self._file)
        if not trouble:
            return _header(self._file)
        kept = set_aside(self.path, trouble, then="a new one continues with the intact rows")
        source = kept if io.islocal(kept) else self._file
        columns = [] if is_unreadable(source) else _header(source)
        if "step" not in columns or not all(name.isprintable() and "\ufffd" not in name for name in columns):
            return []
        self.columns = columns
        self._rewrite(columns, _whole_lines(source, len(columns)))
        return columns


class UnwrittenTable(GrowingTable):
    """The table of a process that writes none: its methods do nothing."""

    def __init__(self) -> None:
        self.path, self.columns = "", []

    def append(self, row: Mapping[str, Cell], *, more: Mapping[str, str] | None = None) -> None:
        """Discard the row."""

    def drop_after(self, step: int) -> int:
        """Return 0: there is nothing to drop."""
        return 0

    def flush(self) -> None:
        """Do nothing."""


def _trouble_of(path: str) -> str:
    """Return what is wrong with a log (it is unreadable, not UTF-8, or has no header); '' if nothing is."""
    trouble = is_unreadable(path)
    if trouble:
        return trouble
    decoder = codecs.getincrementaldecoder("utf-8")()
    with io.open(path, "rb") as log_file:
        try:
            while block := log_file.read(BLOCK):
                if b"\0" in block:
                    return "contains bytes that are not text"
                if not block.isascii() or decoder.getstate()[0]:
                    decoder.decode(block)
        except UnicodeDecodeError:
            return "contains bytes that are not text"
        size = log_file.tell()
    columns = _header(path)
    return "has no header line" if size and columns and "step" not in columns else ""


def _header(path: str) -> list[str]:
    """Return the column names; [] if a kill cut the header short."""
    with io.open(path, "rb") as log_file:
        line = log_file.readline(LONGEST_HEADER)
    return line[:-1].decode(errors="replace").split("\t") if line.endswith(b"\n") else []


def _whole_lines(path: str, width: int) -> Iterator[str]:
    """Yield the rows without line ends, except those that were cut short by a kill or are not valid text."""
    if not width:
        return
    with io.open(path, errors="replace", newline="\n") as log_file:
        log_file.readline()
        for line in log_file:
            whole = line.endswith("\n") and "\0" not in line and "\ufffd" not in line
            if whole and line.count("\t") == width - 1:
                yield line[:-1]


def _step_in(line: bytes, index: int, width: int) -> int | None:
    """Return the step of a row; None if the row was cut short by a kill or has no step."""
    cells = line.split(b"\t")
    try:
        return int(cells[index]) if line.endswith(b"\n") and len(cells) == width else None
    except ValueError:
        return None


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    # Nine digits: enough to compare a recomputed score to 1e-6, few enough to read.
    return f"{cell:.9g}" if isinstance(cell, float) else _in_one_cell(cell)


def _in_one_cell(text: object) -> str:
    """Return a text, or a name that a user chose, without tabs and line ends, which would make several cells of it."""
    return _BREAKS.sub(" ", str(text))
