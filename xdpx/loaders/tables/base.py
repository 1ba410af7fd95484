"""What every database can be asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from xdpx.config.faults import ConfigError, Fault

ROWS_AT_ONCE = 4096


class Place(NamedTuple):
    """Where a table is: the address of its database, and its name."""

    source: str
    table: str


def place_of(path: str) -> Place:
    """Take a path such as `sqlite:///reviews.db/train` apart: behind the database stands the table.

    In `odps://project/tables/train/ds=20200101` the partition belongs to the table.
    """
    scheme, _, rest = path.partition("://")
    if scheme.lower() == "odps":
        project, _, table = rest.partition("/")
        return Place(f"odps://{project}", table.removeprefix("tables/").strip("/"))
    source, _, table = path.rpartition("/")
    return Place(source, table)


class Tables(ABC):
    """The tables of one database. All methods raise OSError when it cannot be reached."""

    def __init__(self, source: str) -> None:
        self.source = source

    @abstractmethod
    def names(self) -> list[str]:
        """Give the names of its tables and views, sorted."""

    @abstractmethod
    def columns(self, table: str) -> list[str]:
        """Give the names of the columns of a table. Raises ConfigError when there is no such table."""

    @abstractmethod
    def rows(self, table: str, columns: Sequence[str], order_by: Sequence[str]) -> Iterator[Sequence[Any]]:
        """Yield these columns of every row, a few thousand in memory at a time.

        Args:
            table: one of `names`.
            columns: some of `columns`.
            order_by: columns to sort by; without any, rows come as the database gives them.
        """

    def absent(self, table: str) -> ConfigError:
        """Say that there is no such table."""
        from xdpx.config.faults import nearest

        there = self.names()
        near = nearest(table, there)
        remedy = f"Did you mean '{near}'?" if near else f"There is: {', '.join(there[:6]) or 'nothing'}."
        fault = Fault("data_files", f"there is no table '{table}'.", remedy, code="missing_path")
        return ConfigError(self.source, [fault])


def quoted(name: str) -> str:
    """Write a name as SQL wants it."""
    return '"' + name.replace('"', '""') + '"'
