"""The parser `parquet`: columns of .parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BLOCK_ROWS, BadLine, Row, RowParser, missing_extra, picked, row_of
from xdpx.loaders.parsers.files import open_raw
from xdpx.loaders.parsers.json import cell


class ParquetParser(RowParser):
    """Reads columns of a .parquet file. Needs `xdpx[data]`."""

    class Parameters(RowParser.Parameters):
        """Keys of the parquet parser."""

        fields: list[str] | None = param(
            None, doc="Names of the columns to take, in this order, the label last; null takes all."
        )

    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield the selected cells of each row."""
        with open_raw(path) as stream:
            file = _open(stream, path)
            there = list(file.schema_arrow.names)
            names = [there[index] for index in picked(there, self.parameters.fields, path)]
            for number, values in enumerate(_cells(file, names, path), 1):
                yield number, row_of(number, names, values, [cell(value) for value in values])

    def objects(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield each row with its values as they are: lists, numbers, bytes, None."""
        with open_raw(path) as stream:
            file = _open(stream, path)
            names = list(file.schema_arrow.names)
            yield from (dict(zip(names, values, strict=True)) for values in _cells(file, names, path))

    def header(self, path: str) -> Row | None:
        """Return the names of the columns."""
        with open_raw(path) as stream:
            there = list(_open(stream, path).schema_arrow.names)
            return [there[index] for index in picked(there, self.parameters.fields, path)]


def _cells(file: Any, names: list[str], path: str) -> Iterator[tuple[Any, ...]]:
    """Yield the named cells of each row."""
    read = 0
    try:
        for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=names):
            yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            read += len(batch)
    except (OSError, ValueError) as error:  # what pyarrow raises for damaged pages
        fault = Fault("data_files", f"is damaged after row {read} ({error}).", "Recreate the file.")
        raise ConfigError(path, [fault]) from error


def _open(stream: IO[bytes], path: str) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise missing_extra("parquet", "pyarrow", error) from error
    try:
        return parquet.ParquetFile(stream)
    except (OSError, ValueError) as error:
        fault = Fault("data_files", f"is not a parquet file, or is truncated ({error}).", "Recreate the file.")
        raise ConfigError(path, [fault]) from error
