"""Columns of .parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BLOCK_ROWS, BadLine, Row, RowParser, missing_extra
from xdpx.loaders.parsers.excel import positions
from xdpx.loaders.parsers.files import open_raw
from xdpx.loaders.parsers.json import cell


class ParquetParser(RowParser):
    """Read columns of a .parquet file. Needs `xdpx[data]`."""

    class Parameters(RowParser.Parameters):
        """What the parquet parser can be told."""

        fields: list[str] | None = param(None, doc="Names of the columns to take, in this order; null takes all.")

    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield the chosen cells of each row."""
        with open_raw(path) as stream:
            file = _open(stream, path)
            names = [file.schema_arrow.names[index] for index in self._picked(file, path)]
            for number, values in enumerate(_cells(file, names, path), 1):
                yield number, _row(number, names, values)

    def header(self, path: str) -> Row | None:
        """Give the names of the columns."""
        if self.parameters.fields is not None:
            return list(self.parameters.fields)
        with open_raw(path) as stream:
            return list(_open(stream, path).schema_arrow.names)

    def _picked(self, file: Any, path: str) -> list[int]:
        return positions(list(file.schema_arrow.names), self.parameters.fields, path)


def _cells(file: Any, names: list[str], path: str) -> Iterator[tuple[Any, ...]]:
    """Give the named cells of each row."""
    read = 0
    try:
        for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=names):
            yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            read += len(batch)
    except (OSError, ValueError) as error:  # what pyarrow raises for damaged pages
        fault = Fault("data_files", f"is damaged behind row {read} ({error}).", "Make the file anew.")
        raise ConfigError(path, [fault]) from error


def _open(stream: IO[bytes], path: str) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise missing_extra("parquet", "pyarrow", error) from error
    try:
        return parquet.ParquetFile(stream)
    except (OSError, ValueError) as error:
        fault = Fault("data_files", f"is no parquet file, or is cut short ({error}).", "Make the file anew.")
        raise ConfigError(path, [fault]) from error


def _row(number: int, names: list[str], values: tuple[Any, ...]) -> Row | BadLine:
    row = []
    for name, value in zip(names, values, strict=True):
        text = cell(value)
        if text is None:
            found = "null" if value is None else f"a {type(value).__name__}"
            return BadLine(number, f"column '{name}' is {found}, not text")
        row.append(text)
    return row
