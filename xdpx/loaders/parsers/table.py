"""The parser `table`: rows of a table in a database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BadLine, Row, RowParser, picked, row_of
from xdpx.loaders.parsers.json import cell
from xdpx.loaders.tables import address_of, open_tables


class TableParser(RowParser):
    """Reads a table or view: data_source is a database (sqlite://, postgresql://, odps://), data_files its tables."""

    class Parameters(RowParser.Parameters):
        """Keys of the parser of tables."""

        fields: list[str] | None = param(
            None, doc="Names of the columns to take, in this order, the label last; null takes all."
        )
        order_by: list[str] = param(
            [], doc="Columns to sort rows by, for a reproducible order; none: the order of the database."
        )

    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield the selected cells of each row."""
        address = address_of(path)
        tables = open_tables(address.source)
        there = tables.columns(address.table)
        names = [there[index] for index in picked(there, self.parameters.fields, path)]
        missing = [name for name in self.parameters.order_by if name not in there]
        if missing:
            problem, remedy = f"there is no column '{missing[0]}'.", f"Choose among: {', '.join(there)}."
            raise ConfigError(path, [Fault("order_by", problem, remedy)])
        for number, values in enumerate(tables.rows(address.table, names, self.parameters.order_by), 1):
            texts = [
                str(value) if isinstance(value, Decimal | date | datetime | time) else cell(value) for value in values
            ]
            yield number, row_of(number, names, values, texts)

    def header(self, path: str) -> Row | None:
        """Return the names of the columns."""
        address = address_of(path)
        there = open_tables(address.source).columns(address.table)
        return [there[index] for index in picked(there, self.parameters.fields, path)]
