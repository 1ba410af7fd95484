"""The parser `excel`: one sheet of an .xlsx workbook."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BadLine, Row, RowParser, missing_extra, picked
from xdpx.loaders.parsers.files import open_raw


class ExcelParser(RowParser):
    """Reads one sheet of an .xlsx workbook, whose first row names the columns. Needs `xdpx[data]`."""

    class Parameters(RowParser.Parameters):
        """Keys of the excel parser."""

        sheet_name: str = param(doc="Name of the sheet to read.")
        start_line: int = param(
            0, doc="Number of rows above the names of the columns to skip, e.g. 1 for a title.", ge=0
        )
        fields: list[str] | None = param(
            None, doc="Names of the columns to take, in this order, the label last; null takes all."
        )

    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield the selected cells of each row below the names; empty rows are skipped."""
        with open_raw(path) as stream:
            rows = self._rows(stream, path)
            names = self._names(next(rows, ()))
            positions = picked(names, self.parameters.fields, path)
            for number, values in enumerate(rows, self.parameters.start_line + 2):
                if self.parameters.fields is None and any(map(_cell, values[len(names) :])):
                    yield number, BadLine(number, f"has a cell after the {len(names)} columns with a name")
                elif any(value is not None for value in values):
                    yield number, [_cell(values[index]) if index < len(values) else "" for index in positions]

    def header(self, path: str) -> Row | None:
        """Return the names of the columns."""
        with open_raw(path) as stream:
            names = self._names(next(self._rows(stream, path), ()))
            return [names[index] for index in picked(names, self.parameters.fields, path)]

    def top(self, path: str, count: int) -> list[Row]:
        """Return the cells of the first rows of the sheet, as many of each row."""
        with open_raw(path) as stream:
            rows = [
                list(map(_cell, values))
                for values in islice(self._sheet(stream, path).iter_rows(values_only=True), count)
            ]
        width = max(map(len, rows), default=0)
        return [row + [""] * (width - len(row)) for row in rows]

    def remedy(self, problem: str) -> str:
        """Return what to do about a row that cannot be used, for messages."""
        hint = (
            "Of merged cells only the first has a value, and a formula has none until a spreadsheet program saved it. "
        )
        hint *= "empty" in problem
        if "has a cell after" in problem:
            hint = "If the names of the columns stand further down, skip the rows above them by start_line. "
        return hint + super().remedy(problem)

    def _rows(self, stream: IO[bytes], path: str) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over the names of the columns, and the rows below."""
        return islice(self._sheet(stream, path).iter_rows(values_only=True), self.parameters.start_line, None)

    def _sheet(self, stream: IO[bytes], path: str) -> Any:
        book = _book(stream, path)
        name = self.parameters.sheet_name
        if name not in book.sheetnames:
            remedy = did_you_mean(name, book.sheetnames, f"Choose one of: {', '.join(book.sheetnames)}.")
            raise ConfigError(path, [Fault("sheet_name", f"there is no sheet '{name}'.", remedy)])
        return book[name]

    @staticmethod
    def _names(values: tuple[Any, ...]) -> Row:
        names = [_cell(value).strip() for value in values]
        while names and not names[-1]:
            names.pop()
        return names


def sheet_names(path: str) -> list[str]:
    """Return the names of the sheets of a workbook."""
    with open_raw(path) as stream:
        return list(_book(stream, path).sheetnames)


def _book(stream: IO[bytes], path: str) -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise missing_extra("excel", "openpyxl", error) from error
    try:
        return openpyxl.load_workbook(stream, read_only=True, data_only=True)
    except Exception as error:
        fault = Fault("data_files", f"is not an .xlsx workbook ({error}).", "Save it as .xlsx.")
        raise ConfigError(path, [fault]) from error


def _cell(value: object) -> str:
    """Return a cell as text: whole numbers without `.0`, an empty cell as ''."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
