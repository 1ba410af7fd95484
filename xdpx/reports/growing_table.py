"""A tab separated log that grows by rows, and by columns too, without ever shifting a cell."""

from __future__ import annotations

from collections.abc import Mapping

from xdpx.utils import commit, io

Cell = str | int | float | None


class GrowingTable:
    """Append rows to a file with a header. A new column rewrites the file atomically, old rows padded.

    A local file is appended to row by row. On a store without appending the whole file is put by `flush`.

    Args:
        path: of the file; what is there already is continued.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._local = io.islocal(path)
        self.columns, self._rows = _read(path)
        self._dirty = False

    def append(self, row: Mapping[str, Cell]) -> None:
        """Add a row; cells of columns that it does not name stay empty."""
        widened = self._widen(row)
        cells = [_text(row.get(column)) for column in self.columns]
        self._rows.append(cells)
        self._dirty = True
        if widened:
            self._rewrite()
        elif self._local:
            with io.open(self.path, "a") as log_file:
                log_file.write("\t".join(cells) + "\n")

    def drop_after(self, step: int) -> int:
        """Drop the rows of later steps, which a resumed run will write again; tell how many there were."""
        if "step" not in self.columns:
            return 0
        index = self.columns.index("step")
        kept = [row for row in self._rows if int(row[index]) <= step]
        dropped = len(self._rows) - len(kept)
        self._rows = kept
        if self.columns:
            self._rewrite()
        return dropped

    def flush(self) -> None:
        """Make sure that every row is in the file."""
        if self._dirty and not self._local:
            self._rewrite()

    def _widen(self, row: Mapping[str, Cell]) -> bool:
        new = [name for name in row if name not in self.columns]
        if not new:
            return False
        self._rows = [[*row, *([""] * len(new))] for row in self._rows]
        self.columns = [*self.columns, *new]
        return True

    def _rewrite(self) -> None:
        lines = ["\t".join(cells) + "\n" for cells in [self.columns, *self._rows]]
        commit.write_text(self.path, "".join(lines))
        self._dirty = False


def _read(path: str) -> tuple[list[str], list[list[str]]]:
    """Read header and rows. A last line that a kill cut short is left out, and so is one with missing cells."""
    if not io.exists(path):
        return [], []
    with io.open(path) as log_file:
        lines = log_file.read().split("\n")[:-1]
    if not lines:
        return [], []
    header, *rows = [line.split("\t") for line in lines]
    return header, [row for row in rows if len(row) == len(header)]


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    # Nine digits: enough to compare a score that was computed again to 1e-6, few enough to read.
    return f"{cell:.9g}" if isinstance(cell, float) else str(cell)
