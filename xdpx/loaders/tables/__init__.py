"""Tables of databases as raw data: which tables a database has, their columns, their rows."""

from __future__ import annotations

from xdpx.loaders.tables.base import Tables, place_of
from xdpx.utils.raw_places import is_table

__all__ = ["Tables", "is_table", "open_tables", "place_of"]


def open_tables(source: str) -> Tables:
    """Give the tables of a database by its address; nothing is asked of it yet.

    Raises:
        ConfigError: the address cannot be used, or the package that reads such a database is missing.
    """
    scheme = source.partition("://")[0].lower()
    if scheme == "sqlite":
        from xdpx.loaders.tables.sqlite import SqliteTables

        return SqliteTables(source)
    if scheme == "odps":
        from xdpx.loaders.tables.odps import OdpsTables

        return OdpsTables(source)
    from xdpx.loaders.tables.sql import SqlTables

    return SqlTables(source)
