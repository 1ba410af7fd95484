"""Database tables as raw data: list the tables of a database and their columns, and read their rows."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.utils import io

ROWS_AT_ONCE = 4096


class TableAddress(NamedTuple):
    """The address of a database, and the name of a table in it."""

    source: str
    table: str


def address_of(path: str) -> TableAddress:
    """Return the database and the table of a path such as `sqlite:///reviews.db/train`.

    In `odps://project/tables/train/ds=20200101`, the partition is part of the table.
    """
    scheme, _, rest = path.partition("://")
    if scheme.lower() == "odps":
        project, _, table = rest.partition("/")
        return TableAddress(f"odps://{project}", table.removeprefix("tables/").strip("/"))
    source, _, table = path.rpartition("/")
    return TableAddress(source, table)


class Tables(ABC):
    """The tables of one database. All methods raise OSError if it cannot be read."""

    def __init__(self, source: str) -> None:
        self.source = source

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of its tables and views, sorted."""

    @abstractmethod
    def columns(self, table: str) -> list[str]:
        """Return the names of the columns of a table. Raises ConfigError if there is no such table."""

    @abstractmethod
    def rows(self, table: str, columns: Sequence[str], order_by: Sequence[str]) -> Iterator[Sequence[Any]]:
        """Yield these columns of every row, a few thousand in memory at a time.

        Args:
            table: one of `names`.
            columns: some of `columns`.
            order_by: columns to sort by; if empty, rows are in the order of the database.
        """

    def absent(self, table: str) -> ConfigError:
        """Return the error for a table that does not exist."""
        there = self.names()
        remedy = did_you_mean(table, there, f"There is: {', '.join(there[:6]) or 'nothing'}.")
        fault = Fault("data_files", f"there is no table '{table}'.", remedy, code="missing_path")
        return ConfigError(self.source, [fault])


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class SqliteTables(Tables):
    """The tables of one SQLite file, opened read-only."""

    def names(self) -> list[str]:
        """Return the names of its tables and views, sorted."""
        query = (
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
        )
        with self._connection() as connection:
            return sorted(name for (name,) in connection.execute(query))

    def columns(self, table: str) -> list[str]:
        """Return the names of the columns of a table."""
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


PASSWORD = "holds a password, which would be written into args.py and logs."
NO_PASSWORD = "Leave it out: PostgreSQL reads PGPASSWORD or ~/.pgpass, MySQL its option file."


class SqlTables(Tables):
    """The tables of one database, through SQLAlchemy; with a server-side cursor if the driver supports it."""

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
            fault = Fault(
                "data_source", f"is not the address of a database ({error}).", "Use e.g. postgresql://host/name."
            )
            raise ConfigError(source, [fault]) from error

    def names(self) -> list[str]:
        """Return the names of its tables and views, sorted."""
        with self._reached():
            there = self._alchemy.inspect(self._engine)
            return sorted({*there.get_table_names(), *there.get_view_names()})

    def columns(self, table: str) -> list[str]:
        """Return the names of the columns of a table."""
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


CREDENTIALS = (
    "Set ODPS_ENDPOINT, ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET, or call "
    "ODPS(access_id, access_key, project, endpoint).to_global() in user/modules/*.py."
)


class OdpsTables(Tables):
    """The tables of one ODPS project, through pyodps. A name may include a partition: `train/ds=20200101/hour=3`."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        try:
            from odps import ODPS
        except ImportError as error:
            fault = Fault("data_source", "needs the package pyodps.", "Install it: pip install 'xdpx[odps]'.")
            raise ConfigError(source, [fault]) from error
        self._door = ODPS.from_global() or ODPS.from_environments()
        if self._door is None:
            raise ConfigError(source, [Fault("data_source", "needs credentials.", CREDENTIALS)])
        self._project = source.partition("://")[2].strip("/")

    def names(self) -> list[str]:
        """Return the names of its tables, sorted."""
        return sorted(str(table.name) for table in self._door.list_tables(project=self._project))

    def columns(self, table: str) -> list[str]:
        """Return the names of the columns of a table, without partition columns."""
        name = table.partition("/")[0]
        if not self._door.exist_table(name, project=self._project):
            raise self.absent(name)
        found = self._door.get_table(name, project=self._project)
        return [str(column.name) for column in found.table_schema.simple_columns]

    def rows(self, table: str, columns: Sequence[str], order_by: Sequence[str]) -> Iterator[Sequence[Any]]:
        """Yield these columns of every row in the order of the table. Raises ConfigError if `order_by` is given."""
        if order_by:
            problem = "cannot be used with odps://, whose tables are read in their stored order."
            raise ConfigError(self.source, [Fault("order_by", problem, "Leave it out.")])
        name, _, partition = table.partition("/")
        found = self._door.get_table(name, project=self._project)
        with found.open_reader(partition=partition.replace("/", ",") or None) as reader:
            for record in reader:
                yield [record[column] for column in columns]


def open_tables(source: str) -> Tables:
    """Return the tables of a database by its address, without connecting to it yet.

    Raises:
        ConfigError: the address is invalid or contains a password, or a package or credentials are missing.
    """
    scheme = source.partition("://")[0].lower()
    if scheme == "sqlite":
        return SqliteTables(source)
    if scheme == "odps":
        return OdpsTables(source)
    return SqlTables(source)
