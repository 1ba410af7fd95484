"""SQLite files, by what Python brings: `sqlite:///relative.db`, `sqlite:////absolute.db`."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

from xdpx.config.faults import ConfigError, Fault
from xdpx.loaders.tables.base import ROWS_AT_ONCE, Tables, quoted
from xdpx.utils import io


class SqliteTables(Tables):
    """The tables of one SQLite file, which is only read."""

    def names(self) -> list[str]:
        """Give the names of its tables and views, sorted."""
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
        with self._connection() as connection:
            return sorted(name for (name,) in connection.execute(query))

    def columns(self, table: str) -> list[str]:
        """Give the names of the columns of a table."""
        with self._connection() as connection:
            found = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        if not found:
            raise self.absent(table)
        return found

    def rows(self, table: str, columns: Sequence[str], order_by: Sequence[str]) -> Iterator[Sequence[Any]]:
        """Yield these columns of every row."""
        query = f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(table)}"
        query += f" ORDER BY {', '.join(map(quoted, order_by))}" if order_by else ""
        with self._connection() as connection:
            cursor = connection.execute(query)
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield from rows

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        path = self.source.partition("://")[2].removeprefix("/")
        if not io.isfile(path):
            whole = f"/{path}"
            remedy = f"Did you mean 'sqlite:///{whole}'?" if io.isfile(whole) else "Correct the path."
            fault = Fault("data_source", f"there is no file '{path}'.", remedy, code="missing_path")
            raise ConfigError(self.source, [fault])
        try:
            with closing(sqlite3.connect(f"file:{quote(io.abspath(path))}?mode=ro", uri=True)) as connection:
                yield connection
        except sqlite3.DatabaseError as error:
            raise OSError(f"{self.source}: cannot be read: {error}") from error
