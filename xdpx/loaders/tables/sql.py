"""Databases that SQLAlchemy knows: `postgresql://user@host/database`, `mysql://...`, and what else has a driver."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.loaders.tables.base import ROWS_AT_ONCE, Tables

PASSWORD = "holds a password, which would be written into args.py and logs."
NO_PASSWORD = "Leave it out: PostgreSQL reads PGPASSWORD or ~/.pgpass, MySQL its option file."


class SqlTables(Tables):
    """The tables of one database, read by a cursor on the server where the driver has such."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        try:
            import sqlalchemy
        except ImportError as error:
            raise _missing(source, "the package sqlalchemy", error) from error
        self._alchemy = sqlalchemy
        try:
            url = sqlalchemy.make_url(source.replace("postgres://", "postgresql://", 1))
            if url.password:
                hidden = url.render_as_string(hide_password=True)
                raise ConfigError(hidden, [Fault("data_source", PASSWORD, NO_PASSWORD)])
            self._engine = sqlalchemy.create_engine(url)
        except ImportError as error:
            raise _missing(source, f"a driver ({error})", error) from error
        except sqlalchemy.exc.ArgumentError as error:
            fault = Fault("data_source", f"is no address of a database ({error}).", "Use e.g. postgresql://host/name.")
            raise ConfigError(source, [fault]) from error

    def names(self) -> list[str]:
        """Give the names of its tables and views, sorted."""
        with self._reached():
            there = self._alchemy.inspect(self._engine)
            return sorted({*there.get_table_names(), *there.get_view_names()})

    def columns(self, table: str) -> list[str]:
        """Give the names of the columns of a table."""
        try:
            with self._reached():
                return [str(column["name"]) for column in self._alchemy.inspect(self._engine).get_columns(table)]
        except self._alchemy.exc.NoSuchTableError as error:
            raise self.absent(table) from error

    def rows(self, table: str, columns: Sequence[str], order_by: Sequence[str]) -> Iterator[Sequence[Any]]:
        """Yield these columns of every row."""
        column = self._alchemy.column
        query: Any = self._alchemy.select(*map(column, columns)).select_from(self._alchemy.table(table))
        query = query.order_by(*map(column, order_by))
        with self._reached(), self._engine.connect() as connection:
            yield from connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query)

    @contextmanager
    def _reached(self) -> Generator[None]:
        try:
            yield
        except self._alchemy.exc.DBAPIError as error:
            raise OSError(f"{self.source}: cannot be read: {error.orig}") from error


def _missing(source: str, what: str, error: ImportError) -> ConfigError:
    remedy = "Install both: pip install 'xdpx[sql]', and the driver of your database, e.g. psycopg."
    return ConfigError(source, [Fault("data_source", f"needs {what}.", remedy)])
